import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from accelbind import __version__
from tests.support import REPOSITORY, clean_environment

ROOMS = {"accelbind", "webhook", "plugin", "certs", "services", "simulator"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as it would be published."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=REPOSITORY,
        capture_output=True,
        check=True,
    )
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_holds_the_rooms_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert tops == ROOMS | {f"accelbind-{__version__}.dist-info"}
    assert [name for name in names if "__pycache__" in name] == []


def test_the_wheel_holds_the_license_and_what_the_demo_shows(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    needed = {
        path.relative_to(REPOSITORY).as_posix()
        for path in (REPOSITORY / "simulator" / "demo").rglob("*.yaml")
    }
    assert len(needed) >= 8
    assert needed <= names
    assert f"accelbind-{__version__}.dist-info/licenses/LICENSE" in names


def test_the_command_works_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    script = "import sys; from accelbind.cli import main; sys.exit(main(['--version']))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=clean_environment() | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"accelbind {__version__}\n"
