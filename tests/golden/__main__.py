"""Rewrites the golden files (`make golden`), or shows one of the reviews.

python -m tests.golden
python -m tests.golden 17
"""

import sys
from collections.abc import Sequence

from tests.golden.files import FROM_SHARED, makeable
from tests.golden.reviews import FOLDER, reviews


def main(arguments: Sequence[str]) -> None:
    if arguments:
        numbers = {int(each) for each in arguments}
        for review in reviews():
            if review.number in numbers:
                sys.stdout.write(review.body.decode(errors="replace") + "\n")
        return
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
    main(sys.argv[1:])
