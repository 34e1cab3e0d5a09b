"""Ways in which somebody removes or changes a file that a process keeps."""

import shutil
from pathlib import Path

from prometheus_client import CollectorRegistry


def truncate(path: Path) -> None:
    path.write_bytes(b"")


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def remove_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


def written(path: Path) -> tuple[bytes, int] | None:
    """The content and the mode of a regular file."""
    if path.is_symlink() or not path.is_file():
        return None
    return path.read_bytes(), path.stat().st_mode & 0o7777


def restored(registry: CollectorRegistry, kind: str, outcome: str = "restored") -> float:
    """How many files of a kind were restored, as the metric says."""
    labels = {"kind": kind, "outcome": outcome}
    value = registry.get_sample_value("accelbind_files_restored_total", labels)
    assert value is not None, labels
    return value
