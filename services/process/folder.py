"""The files of a folder of YAML that others write."""

from pathlib import Path
from typing import Final

from services.process.errors import ExternalFailure
from services.process.files import open_regular

SUFFIXES: Final = (".yaml", ".yml", ".json")


def yaml_files(directory: Path, *, what: str) -> list[Path]:
    """The files of a folder that count, by name; an error says that it is one of `what`.

    Raises:
        ExternalFailure: It can't be listed.
    """
    try:
        paths = sorted(directory.iterdir())
    except OSError as error:
        raise ExternalFailure(f"the folder of {what} {directory}: {error.strerror}") from error
    # Without hidden ones, a mounted ConfigMap is read once: its files are links into `..data`.
    return [
        path
        for path in paths
        if path.name.lower().endswith(SUFFIXES) and not path.name.startswith(".")
    ]


def read_file(path: Path, limit: int) -> bytes:
    """The content of a regular file, of at most one byte more than the limit."""
    with open_regular(path, follow_links=True) as file:
        return file.read(limit + 1)
