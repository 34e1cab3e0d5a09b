import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from services.bitstreams.model import MAX_FILE
from services.bitstreams.storage import BitstreamStorage, InstallResult, read_bitstream
from services.process.errors import InvalidBitstream, InvalidSettings, StorageError
from simulator.bitstreams import make_aocx, make_gbs

INTERFACE = "ce48969398f05f33946d560708be108a"
AFU = "d8424dc4a4a3c413f89e433683f9040b"
OTHER = "f7df405cbd7acf7222f144b0b93acd18"
PROGRAM = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def storage(tmp_path: Path) -> BitstreamStorage:
    return BitstreamStorage(tmp_path / "srv" / "fpga")


@pytest.fixture
def gbs(tmp_path: Path) -> Path:
    path = tmp_path / "any name.bin"
    path.write_bytes(make_gbs(INTERFACE, AFU))
    return path


def halves(storage: BitstreamStorage) -> list[Path]:
    return [path for path in storage.folder.rglob(".*") if path.is_file()]


class TestInstall:
    def test_a_file_goes_where_its_ids_say(self, storage: BitstreamStorage, gbs: Path) -> None:
        before = os.umask(0)
        try:
            place, outcome = storage.install(gbs)
        finally:
            os.umask(before)
        folders = (storage.folder, place.parent)
        assert [each.stat().st_mode & 0o777 for each in folders] == [0o755, 0o755]
        assert place == storage.folder / INTERFACE / f"{AFU}.gbs"
        assert outcome is InstallResult.INSTALLED
        assert place.read_bytes() == gbs.read_bytes()
        assert place.stat().st_mode & 0o777 == 0o644
        assert bytes(storage.load(INTERFACE, AFU).raw()) == b"raw bitstream"

    def test_another_file_is_replaced_only_by_force(
        self, storage: BitstreamStorage, gbs: Path
    ) -> None:
        place, _ = storage.install(gbs)
        old = place.read_bytes()
        gbs.write_bytes(make_gbs(INTERFACE, AFU, b"newer"))
        with pytest.raises(InvalidSettings, match=r"is there already and differs.*--force"):
            storage.install(gbs)
        assert place.read_bytes() == old
        assert storage.install(gbs, force=True) == (place, InstallResult.REPLACED)
        assert place.read_bytes() == gbs.read_bytes()
        assert halves(storage) == []

    def test_installs_at_the_same_time_leave_one_whole_file(
        self, storage: BitstreamStorage, tmp_path: Path
    ) -> None:
        contents = [make_gbs(INTERFACE, AFU, bytes([n]) * 300_000) for n in range(6)]
        for number, content in enumerate(contents):
            (tmp_path / str(number)).write_bytes(content)
        threads = [
            threading.Thread(
                target=storage.install, args=(tmp_path / str(n),), kwargs={"force": True}
            )
            for n in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (storage.folder / INTERFACE / f"{AFU}.gbs").read_bytes() in contents
        assert halves(storage) == []


class TestLoad:
    def test_a_file_may_be_a_link(self, storage: BitstreamStorage, gbs: Path) -> None:
        place = storage.folder / INTERFACE / f"{AFU}.gbs"
        place.parent.mkdir(parents=True)
        place.symlink_to(gbs)
        assert storage.load(INTERFACE, AFU).size
        assert storage.remove(INTERFACE, AFU) == [place]
        assert gbs.exists()

    def test_a_file_in_another_ones_place_is_refused(
        self, storage: BitstreamStorage, gbs: Path
    ) -> None:
        place, _ = storage.install(gbs)
        place.rename(place.with_name(f"{OTHER}.gbs"))
        with pytest.raises(InvalidBitstream, match="is not what its name says.*function " + AFU):
            storage.load(INTERFACE, OTHER)

    @pytest.mark.parametrize(
        ("make", "problem"),
        [
            (os.mkfifo, "not a regular file"),
            (Path.mkdir, "not a regular file|directory"),
            (lambda path: path.symlink_to("nowhere"), "can't be read: No such file"),
        ],
    )
    def test_what_is_no_file_is_neither_waited_for_nor_missing(
        self, storage: BitstreamStorage, make: Callable[[Path], None], problem: str
    ) -> None:
        place = storage.folder / INTERFACE / f"{AFU}.gbs"
        place.parent.mkdir(parents=True)
        make(place)
        with pytest.raises(StorageError, match=problem):
            storage.load(INTERFACE, AFU)

    def test_a_file_that_is_being_written_is_not_taken_for_whole(
        self, gbs: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A GBS that is cut off looks like a shorter one."""
        fstat = os.fstat

        def writing(descriptor: int) -> os.stat_result:
            found = fstat(descriptor)
            with gbs.open("ab") as more:
                more.write(b"more")
            return found

        with monkeypatch.context() as patch:
            patch.setattr(os, "fstat", writing)
            with pytest.raises(StorageError, match="is being written: try again"):
                read_bitstream(gbs)
        assert read_bitstream(gbs).size > 0

    def test_a_file_beyond_the_limit_is_not_read(self, tmp_path: Path) -> None:
        huge = tmp_path / "huge"
        with huge.open("wb") as file:
            file.truncate(MAX_FILE + 1)
        with pytest.raises(InvalidBitstream, match=r"is not a usable bitstream: it has .* at most"):
            read_bitstream(huge)


class TestEntries:
    def test_the_memory_for_a_bitstream_is_known_before_it_is_read(
        self, storage: BitstreamStorage, tmp_path: Path
    ) -> None:
        program, gbs, aocx = "7" * 40, tmp_path / "x.gbs", tmp_path / "x.aocx"
        gbs.write_bytes(make_gbs(INTERFACE, AFU, bytes(5000)))
        aocx.write_bytes(make_aocx(INTERFACE, program, bytes(5000)))
        for each in (gbs, aocx):
            storage.install(each)
        assert storage.memory_needed(INTERFACE, AFU) == 2 * gbs.stat().st_size
        assert storage.load(INTERFACE, AFU).memory == gbs.stat().st_size + 5000
        assert storage.memory_needed(INTERFACE, program) == aocx.stat().st_size + MAX_FILE
        found = storage.load(INTERFACE, program)
        assert found.memory == aocx.stat().st_size + 5000
        assert storage.memory_needed(INTERFACE, "8" * 32) == 0
        (storage.folder / INTERFACE / f"{'8' * 32}.gbs").symlink_to("nowhere")
        assert storage.memory_needed(INTERFACE, "8" * 32) == 0

    def test_a_storage_that_cannot_be_listed_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises(StorageError, match="can't be listed: Not a directory"):
            list(BitstreamStorage(tmp_path / "file").entries())
