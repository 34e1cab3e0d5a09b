"""Rewrites the golden files (`make golden`)."""

import sys

from tests.golden.files import FOLDER, FROM_SHARED, makeable


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    files = makeable()
    for name, make in files.items():
        path, text = FOLDER / name, "".join(f"{line}\n" for line in make())
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            sys.stdout.write(f"· {path.name}\n")
    for name in FROM_SHARED.keys() - files.keys():
        sys.stdout.write(f"· {name} is left as it is: the shared material is not here\n")


if __name__ == "__main__":
    main()
