"""Bitstreams, their formats and the folder that has them."""

import gzip
import os
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from services import names
from services.bitstreams.gbs import MAX_METADATA
from services.bitstreams.model import MAX_FILE, BitstreamKind, BitstreamMetadata, OpenCl
from services.bitstreams.storage import BitstreamStorage, InstallResult, parse, read_bitstream
from services.process.errors import BitstreamMissing, InvalidBitstream, StorageError
from simulator.bitstreams import (
    GBS_MAGIC,
    OPENCL_AFU,
    aocx_of,
    elf_of,
    gbs_metadata,
    gbs_of,
    make_aocx,
    make_gbs,
)

INTERFACE = "ce48969398f05f33946d560708be108a"
AFU = "d8424dc4a4a3c413f89e433683f9040b"
OTHER = "f7df405cbd7acf7222f144b0b93acd18"
PROGRAM = "0123456789abcdef0123456789abcdef01234567"

Change = Callable[[dict[str, Any]], Any]


def with_metadata(change: Change) -> bytes:
    metadata = gbs_metadata(INTERFACE, AFU)
    change(metadata)
    return gbs_of(metadata, b"raw")


def image(**values: object) -> Change:
    return lambda metadata: metadata["afu-image"].update(
        {key.replace("_", "-"): value for key, value in values.items()}
    )


def with_text(text: bytes) -> bytes:
    return GBS_MAGIC + struct.pack("<I", len(text)) + text + b"raw"


def test_a_gbs_gives_its_ids_and_all_that_follows_its_metadata() -> None:
    data = make_gbs(INTERFACE, AFU, b"\0raw\xff")
    found = parse(data)
    assert (found.kind, found.memory) == (BitstreamKind.GBS, len(data) + found.size)
    assert (found.interface_id, found.function_id) == (INTERFACE, AFU)
    assert bytes(found.raw()) == b"\0raw\xff"
    assert found.size == 5
    assert found.metadata.name == "synthetic"
    assert found.metadata.platform == "DCP"
    assert found.metadata.version == 640


@pytest.mark.parametrize(
    ("value", "mhz"),
    [
        (312.5, 312.5),
        ("312.5", 312.5),
        (0, None),
        ("auto", None),
        ("auto-312.5", None),
        ("", None),
    ],
)
def test_a_clock_is_a_number_or_its_text_or_left_open(value: object, mhz: float | None) -> None:
    found = parse(with_metadata(image(clock_frequency_high=value, clock_frequency_low=200)))
    assert (found.metadata.clock_high, found.metadata.clock_low) == (mhz, 200.0)


def test_optional_fields_may_be_missing_or_null() -> None:
    def strip(metadata: dict[str, Any]) -> None:
        del metadata["version"]
        metadata["platform-name"] = None
        for key in ("magic-no", "power"):
            del metadata["afu-image"][key]
        metadata["afu-image"]["accelerator-clusters"] = [{"accelerator-type-uuid": AFU}]

    assert parse(with_metadata(strip)).metadata == BitstreamMetadata(INTERFACE, AFU)


def test_metadata_may_end_in_padding() -> None:
    text = make_gbs(INTERFACE, AFU, b"")[len(GBS_MAGIC) + 4 :] + b" \n\0\0"
    assert bytes(parse(with_text(text)).raw()) == b"raw"


def test_each_place_to_be_cut_off_is_an_error_that_says_where() -> None:
    data = make_gbs(INTERFACE, AFU, b"")
    for length in range(len(GBS_MAGIC), len(data) + 1):
        with pytest.raises(InvalidBitstream, match=r"it ends (within|after)"):
            parse(data[:length])


def test_an_aocx_gives_the_gbs_in_it_and_the_id_of_its_program() -> None:
    """Though the id is written in upper case and ends in a newline."""
    data = make_aocx(INTERFACE, f"{PROGRAM.upper()}\n\0", b"r" * 10_000)
    found = parse(data)
    assert found.memory == len(data) + 10_000
    assert found.kind is BitstreamKind.AOCX
    assert (found.interface_id, found.function_id) == (INTERFACE, PROGRAM)
    assert found.metadata.afu_id == OPENCL_AFU == names.OPENCL_AFU
    assert found.opencl == OpenCl(PROGRAM, "pac_a10", "fpga", "19.4.0.64")
    assert bytes(found.raw()) == b"r" * 10_000
    assert found.size == 10_000


def test_a_gzip_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_gbs(INTERFACE, AFU, bytes(1_000_000))
    monkeypatch.setattr("services.bitstreams.aocx.MAX_FILE", len(data))
    assert parse(aocx_of(PROGRAM, gzip.compress(data))).size == 1_000_000
    with pytest.raises(InvalidBitstream, match="unpacks to more than"):
        parse(aocx_of(PROGRAM, gzip.compress(data + b"x")))


def clusters(count: int) -> Change:
    return image(accelerator_clusters=[{"accelerator-type-uuid": AFU}] * count)


def patched(data: bytes, form: str, offset: int, value: int, *, section: bool = False) -> bytes:
    """An ELF file with another number in its header, or in the header of its first section."""
    bent = bytearray(data)
    start = struct.unpack_from("<Q", bent, 40)[0] + 64 if section else 0
    struct.pack_into(form, bent, start + offset, value)
    return bytes(bent)


ELF, AOCX = elf_of([(".acl.board", b"x")]), make_aocx(INTERFACE, PROGRAM)
GBS = make_gbs(INTERFACE, AFU)
NO_NUMBERS: tuple[object, ...] = (
    *(-1, 1e9, 10**400, True, [], {}),
    *("fast", "-3", "nan", "inf", "1e400", "9" * 40),
)
NO_NUMBER = r"clock-frequency-low .* is not a number from 0"
NO_JSON = "metadata can't be read"
NO_ID = r"interface-uuid .* is not 32 hex digits"
NO_HASH = r"rand_hash, .* should be 40 hex digits"
NO_ELF = "not a readable ELF file"
NO_GZIP = "the GBS in it: .*can't be unpacked"
NAMED = (".acl.rand_hash", PROGRAM.encode())


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "neither a GBS nor an AOCX: it starts with nothing"),
        (b"PK\3\4rest", "it starts with 50 4b 03 04"),
        *((with_metadata(image(clock_frequency_low=value)), NO_NUMBER) for value in NO_NUMBERS),
        (make_gbs("f" * 32, AFU), "is all f, which crashed firmware shows"),
        (make_gbs(INTERFACE, "F" * 32), "is all f, which crashed firmware shows"),
        (with_metadata(clusters(0)), "names 0 accelerators"),
        (with_metadata(clusters(2)), "names 2 accelerators"),
        *(
            (with_metadata(image(interface_uuid=text)), NO_ID)
            for text in ("", AFU[:-1], AFU + "0", "g" * 32, "../" * 11)
        ),
        *(
            (with_text(text), NO_JSON)
            for text in (b"{}", b"[]", b"\xff", b"[" * MAX_METADATA, b'{"afu-image": 3}', b"\0")
        ),
        *(
            (GBS_MAGIC + struct.pack("<I", length) + b"{}", f"says {length} bytes of metadata")
            for length in (0, MAX_METADATA + 1)
        ),
        *((aocx_of(text, b""), NO_HASH) for text in ("0123", "g" * 40, "../../etc/passwd")),
        (elf_of([(".text", b"code")]), r'rand_hash, .* is "", and it should be 40 hex digits'),
        (elf_of([NAMED]), "not for an FPGA$"),
        (
            elf_of([NAMED, (".acl.target", b"emulator\x1b")]),
            r'not for an FPGA \(its target is "emulator\\',
        ),
        (elf_of([NAMED, (".acl.fpga.bin", elf_of([(".acl.sof", b"x")]))]), "for another card"),
        *((aocx_of(PROGRAM, packed), NO_GZIP) for packed in (b"", b"plain", bytes(100))),
        (aocx_of(PROGRAM, gzip.compress(GBS) + gzip.compress(b"")), NO_GZIP),
        (aocx_of(PROGRAM, gzip.compress(GBS)[:-8] + bytes(8)), NO_GZIP),
        (aocx_of(PROGRAM, gzip.compress(GBS)[:-5]), "the GBS in it: .*cut off"),
        (aocx_of(PROGRAM, gzip.compress(b"\x7fELF" * 3000)), "doesn't start as a GBS does"),
        (aocx_of(PROGRAM, gzip.compress(make_gbs(INTERFACE, AFU, b""))), "no bitstream in it"),
        (b"\x7fELF", NO_ELF),
        (b"\x7fELF\x02\x01".ljust(63, b"\xff"), NO_ELF),
        (ELF[:-64], NO_ELF),
        *(
            (patched(ELF, "<H", 60, count), "sections, and a bitstream has 1 to 512")
            for count in (0, 513, 65535)
        ),
        (patched(ELF, "<H", 58, 8), "8 bytes, too few"),
        (patched(ELF, "<H", 62, 99), "have no names"),
        (
            patched(AOCX, "<Q", 32, 2**63, section=True),
            r'section ".acl.board" ends at byte .* cut off',
        ),
        (patched(AOCX, "<I", 4, 8, section=True), "not there as it should be"),
        (patched(AOCX, "<I", 8, 0x800, section=True), "not there as it should be"),
        (elf_of([(".acl.board", b"x"), (".acl.board", b"y")]), r'two sections ".acl.board"'),
    ],
)
def test_other_files_than_bitstreams_are_refused_with_a_reason(data: bytes, why: str) -> None:
    with pytest.raises(InvalidBitstream, match=why):
        parse(data)


# In a folder


@pytest.fixture
def storage(tmp_path: Path) -> BitstreamStorage:
    return BitstreamStorage(tmp_path / "srv" / "fpga")


@pytest.fixture
def gbs(tmp_path: Path) -> Path:
    path = tmp_path / "any name.bin"
    path.write_bytes(make_gbs(INTERFACE, AFU))
    return path


@pytest.fixture
def place(storage: BitstreamStorage) -> Path:
    """Where the bitstream belongs."""
    found = storage.folder / INTERFACE / f"{AFU}.gbs"
    found.parent.mkdir(parents=True)
    return found


def test_a_file_goes_where_its_ids_say(storage: BitstreamStorage, gbs: Path) -> None:
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


def test_installs_at_the_same_time_leave_one_whole_file(
    storage: BitstreamStorage, tmp_path: Path
) -> None:
    contents = [make_gbs(INTERFACE, AFU, bytes([n]) * 300_000) for n in range(6)]

    def install(content: bytes) -> None:
        file = tmp_path / str(content[-1])
        file.write_bytes(content)
        storage.install(file, force=True)

    with ThreadPoolExecutor(len(contents)) as threads:
        assert [*threads.map(install, contents)] == [None] * len(contents)
    assert (storage.folder / INTERFACE / f"{AFU}.gbs").read_bytes() in contents
    assert [path for path in storage.folder.rglob(".*") if path.is_file()] == []


def test_a_file_may_be_a_link(storage: BitstreamStorage, place: Path, gbs: Path) -> None:
    place.symlink_to(gbs)
    assert storage.load(INTERFACE, AFU).size
    assert storage.remove(INTERFACE, AFU) == [place]
    assert gbs.exists()


def test_removing_does_not_make_the_storage(storage: BitstreamStorage) -> None:
    with pytest.raises(BitstreamMissing):
        storage.remove(INTERFACE, AFU)
    assert not storage.folder.exists()


def test_a_file_in_another_ones_place_is_refused(storage: BitstreamStorage, gbs: Path) -> None:
    place, _ = storage.install(gbs)
    place.rename(place.with_name(f"{OTHER}.gbs"))
    with pytest.raises(InvalidBitstream, match="is not what its name says.*function " + AFU):
        storage.load(INTERFACE, OTHER)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (os.mkfifo, "not a regular file"),
        (lambda path: path.symlink_to("nowhere"), "can't be read: No such file"),
    ],
)
def test_what_is_no_file_is_neither_waited_for_nor_missing(
    storage: BitstreamStorage, place: Path, make: Callable[[Path], None], problem: str
) -> None:
    make(place)
    with pytest.raises(StorageError, match=problem):
        storage.load(INTERFACE, AFU)


def test_a_file_that_is_being_written_is_not_taken_for_whole(
    gbs: Path, monkeypatch: pytest.MonkeyPatch
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


def test_a_file_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.truncate(MAX_FILE + 1)
    with pytest.raises(InvalidBitstream, match=r"is not a usable bitstream: it has .* at most"):
        read_bitstream(huge)


def test_the_memory_for_a_bitstream_is_known_before_it_is_read(
    storage: BitstreamStorage, gbs: Path, tmp_path: Path
) -> None:
    aocx = tmp_path / "x.aocx"
    aocx.write_bytes(make_aocx(INTERFACE, PROGRAM, bytes(5000)))
    for each, function, extra in ((gbs, AFU, gbs.stat().st_size), (aocx, PROGRAM, MAX_FILE)):
        storage.install(each)
        assert storage.memory_needed(INTERFACE, function) == each.stat().st_size + extra
        found = storage.load(INTERFACE, function)
        assert found.memory == each.stat().st_size + found.size
    assert storage.memory_needed(INTERFACE, OTHER) == 0
    (storage.folder / INTERFACE / f"{OTHER}.gbs").symlink_to("nowhere")
    assert storage.memory_needed(INTERFACE, OTHER) == 0


def test_a_storage_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="can't be listed: Not a directory"):
        list(BitstreamStorage(tmp_path / "file").entries())
