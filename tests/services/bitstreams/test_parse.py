import gzip
import struct
from collections.abc import Callable
from typing import Any

import pytest

from services import names
from services.bitstreams import gbs, model
from services.bitstreams.gbs import MAX_METADATA
from services.bitstreams.model import Kind, Metadata, OpenCl
from services.bitstreams.parse import (
    function_of,
    interface_of,
    parse,
    stored_name,
    stored_names,
)
from services.process.errors import InvalidBitstream
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


class TestGbs:
    def test_a_gbs_gives_its_ids_and_all_that_follows_its_metadata(self) -> None:
        data = make_gbs(INTERFACE, AFU, b"\0raw\xff")
        found = parse(data)
        assert (found.kind, found.memory) == (Kind.GBS, len(data) + found.size)
        assert (found.interface_id, found.function_id) == (INTERFACE, AFU)
        assert bytes(found.raw()) == b"\0raw\xff"
        assert found.size == 5
        assert found.metadata.name == "synthetic"
        assert found.metadata.platform == "DCP"
        assert found.metadata.version == 640
        assert found.metadata.contexts == 1
        assert found.metadata.magic == 488605312

    def test_ids_are_read_in_any_case_with_and_without_dashes(self) -> None:
        found = parse(make_gbs("CE489693-98F0-5F33-946D-560708BE108A", f" {AFU.upper()}"))
        assert (found.interface_id, found.function_id) == (INTERFACE, AFU)

    def test_what_only_people_read_may_be_null(self) -> None:
        def nulls(metadata: dict[str, Any]) -> None:
            metadata["platform-name"] = None
            metadata["afu-image"]["accelerator-clusters"][0]["name"] = None

        found = parse(with_metadata(nulls))
        assert (found.metadata.platform, found.metadata.name) == ("", "")

    @pytest.mark.parametrize(
        ("value", "mhz"),
        [
            (312, 312.0),
            (312.5, 312.5),
            ("312.5", 312.5),
            ("300", 300.0),
            (0, None),
            ("0", None),
            ("auto", None),
            ("auto-312.5", None),
            ("", None),
            (None, None),
        ],
    )
    def test_a_clock_is_a_number_or_its_text_or_left_open(
        self, value: object, mhz: float | None
    ) -> None:
        found = parse(with_metadata(image(clock_frequency_high=value, clock_frequency_low=200)))
        assert (found.metadata.clock_high, found.metadata.clock_low) == (mhz, 200.0)

    @pytest.mark.parametrize(
        "value",
        [-1, 1e9, "fast", "-3", "nan", "inf", "1e400", True, [], {}, "9" * 40, 10**400],
    )
    def test_a_clock_that_is_no_number_is_named(self, value: object) -> None:
        data = with_metadata(image(clock_frequency_low=value))
        with pytest.raises(
            InvalidBitstream, match=r"clock-frequency-low .* is not a number from 0"
        ):
            parse(data)

    def test_what_crashed_firmware_shows_is_no_id(self) -> None:
        for ids in (("f" * 32, AFU), (INTERFACE, "F" * 32)):
            with pytest.raises(InvalidBitstream, match="is all f, which crashed firmware shows"):
                parse(make_gbs(*ids))

    def test_what_is_optional_may_be_left_out(self) -> None:
        def strip(metadata: dict[str, Any]) -> None:
            del metadata["version"], metadata["platform-name"]
            for key in ("magic-no", "power"):
                del metadata["afu-image"][key]
            metadata["afu-image"]["accelerator-clusters"] = [{"accelerator-type-uuid": AFU}]

        assert parse(with_metadata(strip)).metadata == Metadata(INTERFACE, AFU)

    def test_metadata_may_end_in_padding(self) -> None:
        text = make_gbs(INTERFACE, AFU, b"")[len(GBS_MAGIC) + 4 :] + b" \n\0\0"
        assert bytes(parse(with_text(text)).raw()) == b"raw"

    @pytest.mark.parametrize("count", [0, 2])
    def test_a_gbs_has_exactly_one_accelerator(self, count: int) -> None:
        clusters = [{"accelerator-type-uuid": AFU}] * count
        with pytest.raises(InvalidBitstream, match=f"names {count} accelerators"):
            parse(with_metadata(image(accelerator_clusters=clusters)))

    @pytest.mark.parametrize("text", ["", AFU[:-1], AFU + "0", "g" * 32, "../" * 11])
    def test_an_id_that_is_none_is_named(self, text: str) -> None:
        with pytest.raises(InvalidBitstream, match=r"interface-uuid .* is not 32 hex digits"):
            parse(with_metadata(image(interface_uuid=text)))

    @pytest.mark.parametrize(
        "text",
        [b"{}", b"[]", b"\xff", b"{" * 4000, b"[" * MAX_METADATA, b'{"afu-image": 3}', b"\0"],
    )
    def test_metadata_that_is_no_such_json_is_refused(self, text: bytes) -> None:
        with pytest.raises(InvalidBitstream, match="metadata can't be read"):
            parse(with_text(text))

    @pytest.mark.parametrize("length", [0, MAX_METADATA + 1, 2**32 - 1])
    def test_a_length_of_metadata_that_the_format_lacks_is_refused(self, length: int) -> None:
        with pytest.raises(InvalidBitstream, match=f"says {length} bytes of metadata"):
            parse(GBS_MAGIC + struct.pack("<I", length) + b"{}")

    def test_each_place_to_be_cut_off_is_an_error_that_says_where(self) -> None:
        data = make_gbs(INTERFACE, AFU, b"")
        for length in range(len(GBS_MAGIC), len(data) + 1):
            with pytest.raises(InvalidBitstream, match=r"it ends (within|after)"):
                parse(data[:length])

    def test_a_file_beyond_the_limit_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        data = make_gbs(INTERFACE, AFU)
        monkeypatch.setattr(gbs, "MAX_FILE", len(data))
        assert parse(data).size
        monkeypatch.setattr(gbs, "MAX_FILE", len(data) - 1)
        with pytest.raises(InvalidBitstream, match="at most"):
            parse(data)


class TestAocx:
    def test_an_aocx_gives_the_gbs_in_it_and_the_id_of_its_program(self) -> None:
        data = make_aocx(INTERFACE, PROGRAM, b"r" * 10_000)
        found = parse(data)
        assert found.memory == len(data) + 10_000
        assert found.kind is Kind.AOCX
        assert (found.interface_id, found.function_id) == (INTERFACE, PROGRAM)
        assert found.metadata.afu_id == OPENCL_AFU == names.OPENCL_AFU
        assert found.opencl == OpenCl(PROGRAM, "pac_a10", "fpga", "19.4.0.64")
        assert bytes(found.raw()) == b"r" * 10_000
        assert found.size == 10_000

    def test_a_small_gbs_may_be_in_it_and_one_in_several_gzip_members(self) -> None:
        data = make_gbs(INTERFACE, AFU, b"raw")
        packed = gzip.compress(data[:100]) + gzip.compress(data[100:])
        assert bytes(parse(aocx_of(PROGRAM, packed)).raw()) == b"raw"

    def test_zeros_after_the_gzip_are_padding(self) -> None:
        packed = gzip.compress(make_gbs(INTERFACE, AFU, b"raw"))
        for count in (1, 8, 4096):
            assert bytes(parse(aocx_of(PROGRAM, packed + bytes(count))).raw()) == b"raw"

    def test_a_gzip_of_very_many_members_is_refused(self) -> None:
        packed = gzip.compress(make_gbs(INTERFACE, AFU, b"raw"))
        empty = gzip.compress(b"")
        most = packed + empty * (model.MAX_MEMBERS - 1)
        assert bytes(parse(aocx_of(PROGRAM, most)).raw()) == b"raw"
        with pytest.raises(InvalidBitstream, match="more than 4096 members"):
            parse(aocx_of(PROGRAM, most + empty))

    def test_its_id_may_be_upper_case_and_end_in_a_newline(self) -> None:
        packed = gzip.compress(make_gbs(INTERFACE, OPENCL_AFU))
        assert parse(aocx_of(f"{PROGRAM.upper()}\n\0", packed)).function_id == PROGRAM

    @pytest.mark.parametrize("text", ["0123", "g" * 40, "../../etc/passwd"])
    def test_an_id_that_is_none_is_quoted(self, text: str) -> None:
        with pytest.raises(InvalidBitstream, match=r"rand_hash is .* should be 40 hex digits"):
            parse(aocx_of(text, b""))

    def test_an_elf_file_without_an_id_is_no_aocx(self) -> None:
        with pytest.raises(InvalidBitstream, match=r"no section .acl.rand_hash"):
            parse(elf_of([(".text", b"code")]))

    def test_an_aocx_for_an_emulator_says_so(self) -> None:
        sections = [(".acl.rand_hash", PROGRAM.encode()), (".acl.target", b"emulator\x1b")]
        with pytest.raises(InvalidBitstream, match=r'not for an FPGA \(its target is "emulator\\'):
            parse(elf_of(sections))
        with pytest.raises(InvalidBitstream, match=r"not for an FPGA$"):
            parse(elf_of(sections[:1]))

    def test_an_aocx_without_a_gbs_is_for_another_card(self) -> None:
        sections = [
            (".acl.rand_hash", PROGRAM.encode()),
            (".acl.fpga.bin", elf_of([(".acl.sof", b"x")])),
        ]
        with pytest.raises(InvalidBitstream, match="for another card"):
            parse(elf_of(sections))

    @pytest.mark.parametrize(
        ("packed", "why"),
        [
            (b"", "ends within its header|start as a GBS"),
            (b"plain", "can't be unpacked"),
            (bytes(100), "can't be unpacked"),
            (gzip.compress(make_gbs(INTERFACE, AFU)) + bytes(300_000), "can't be unpacked"),
            (gzip.compress(make_gbs(INTERFACE, AFU))[:-5], "cut off"),
            (gzip.compress(make_gbs(INTERFACE, AFU)) + b"more", "can't be unpacked"),
            (gzip.compress(make_gbs(INTERFACE, AFU))[:-8] + bytes(8), "can't be unpacked"),
            (gzip.compress(b"\x7fELF" * 3000, mtime=0), "doesn't start as a GBS does"),
            (gzip.compress(make_gbs(INTERFACE, AFU, b"")), "no bitstream in it"),
        ],
    )
    def test_a_gbs_that_is_not_whole_is_refused(self, packed: bytes, why: str) -> None:
        with pytest.raises(InvalidBitstream, match=f"the GBS in it: .*({why})"):
            parse(aocx_of(PROGRAM, packed))

    def test_a_gzip_that_unpacks_to_too_much_is_refused(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data = make_gbs(INTERFACE, AFU, bytes(1_000_000))
        monkeypatch.setattr("services.bitstreams.aocx.MAX_FILE", len(data))
        assert parse(aocx_of(PROGRAM, gzip.compress(data))).size == 1_000_000
        with pytest.raises(InvalidBitstream, match="unpacks to more than"):
            parse(aocx_of(PROGRAM, gzip.compress(data + b"x")))

    def test_a_file_beyond_the_limit_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("services.bitstreams.aocx.MAX_FILE", 100)
        with pytest.raises(InvalidBitstream, match="at most 100 are read"):
            parse(make_aocx(INTERFACE, PROGRAM))

    def test_a_piece_of_what_is_unpacked_is_never_large(self) -> None:
        packed = memoryview(gzip.compress(bytes(10_000_000)))
        pieces = [len(piece) for piece in model.unpack(packed, limit=10_000_000)]
        assert sum(pieces) == 10_000_000
        assert max(pieces) <= 256 * 1024


class TestElf:
    @pytest.mark.parametrize(
        "data",
        [
            b"\x7fELF",
            b"\x7fELF\x02\x01",
            b"\x7fELF\x09\x01".ljust(64, b"\0"),
            b"\x7fELF\x02\x01".ljust(63, b"\xff"),
            elf_of([(".acl.board", b"x")])[:-64],
        ],
    )
    def test_a_header_that_cannot_be_read_is_refused(self, data: bytes) -> None:
        with pytest.raises(InvalidBitstream, match="not a readable ELF file"):
            parse(data)

    @pytest.mark.parametrize("count", [0, 513, 65535])
    def test_the_number_of_sections_is_bounded(self, count: int) -> None:
        data = bytearray(elf_of([(".acl.board", b"x")]))
        struct.pack_into("<H", data, 60, count)
        with pytest.raises(InvalidBitstream, match="sections, and a bitstream has 1 to 512"):
            parse(bytes(data))

    def test_headers_of_a_wrong_size_are_refused(self) -> None:
        data = bytearray(elf_of([(".acl.board", b"x")]))
        struct.pack_into("<H", data, 58, 8)
        with pytest.raises(InvalidBitstream, match="8 bytes, too few"):
            parse(bytes(data))

    def test_sections_without_a_table_of_names_are_refused(self) -> None:
        data = bytearray(elf_of([(".acl.board", b"x")]))
        struct.pack_into("<H", data, 62, 99)
        with pytest.raises(InvalidBitstream, match="have no names"):
            parse(bytes(data))

    def test_a_section_beyond_the_end_is_refused(self) -> None:
        data = bytearray(make_aocx(INTERFACE, PROGRAM))
        (start,) = struct.unpack_from("<Q", data, 40)
        struct.pack_into("<Q", data, start + 64 + 32, 2**63)
        with pytest.raises(InvalidBitstream, match=r'section ".acl.board" ends at byte .* cut off'):
            parse(bytes(data))

    @pytest.mark.parametrize(("field", "value"), [(4, 8), (8, 0x800)])
    def test_a_section_that_is_empty_or_packed_is_refused(self, field: int, value: int) -> None:
        data = bytearray(make_aocx(INTERFACE, PROGRAM))
        (start,) = struct.unpack_from("<Q", data, 40)
        struct.pack_into("<I", data, start + 64 + field, value)
        with pytest.raises(InvalidBitstream, match="not there as it should be"):
            parse(bytes(data))

    def test_two_sections_of_one_name_are_refused(self) -> None:
        with pytest.raises(InvalidBitstream, match=r'two sections ".acl.board"'):
            parse(elf_of([(".acl.board", b"x"), (".acl.board", b"y")]))


class TestFiles:
    @pytest.mark.parametrize(
        ("data", "why"),
        [
            (b"", "it is empty"),
            (b"PK\3\4rest", "it starts with 50 4b 03 04"),
            (gzip.compress(make_gbs(INTERFACE, AFU)), "it is packed with gzip, so unpack it first"),
        ],
    )
    def test_another_file_is_neither(self, data: bytes, why: str) -> None:
        with pytest.raises(InvalidBitstream, match=f"neither a GBS nor an AOCX: {why}"):
            parse(data)

    def test_a_gbs_is_looked_for_before_an_aocx(self) -> None:
        assert list(stored_names(INTERFACE, AFU)) == [
            (f"{INTERFACE}/{AFU}.gbs", Kind.GBS),
            (f"{INTERFACE}/{AFU}.aocx", Kind.AOCX),
        ]

    def test_a_bitstream_is_stored_where_it_is_looked_for(self) -> None:
        for data, function in (
            (make_gbs(INTERFACE, AFU), AFU),
            (make_aocx(INTERFACE, PROGRAM), PROGRAM),
        ):
            names = [name for name, _ in stored_names(INTERFACE, function)]
            assert stored_name(parse(data)) in names

    @pytest.mark.parametrize(
        ("name", "found"),
        [
            (f"{AFU}.gbs", (AFU, Kind.GBS)),
            (f"{PROGRAM}.aocx", (PROGRAM, Kind.AOCX)),
            (f"{AFU.upper()}.GBS", (AFU, Kind.GBS)),
            ("D8424DC4-A4A3-C413-F89E-433683F9040B.gbs", (AFU, Kind.GBS)),
            (f"{AFU}.gbs.new", None),
            ("readme.txt", None),
        ],
    )
    def test_the_name_of_a_stored_file_spells_its_function(
        self, name: str, found: tuple[str, Kind] | None
    ) -> None:
        assert function_of(name) == found

    @pytest.mark.parametrize(
        ("name", "found"),
        [
            (INTERFACE, INTERFACE),
            ("CE489693-98F0-5F33-946D-560708BE108A", INTERFACE),
            ("lost+found", None),
        ],
    )
    def test_the_name_of_a_folder_spells_its_interface(self, name: str, found: str | None) -> None:
        assert interface_of(name) == found
