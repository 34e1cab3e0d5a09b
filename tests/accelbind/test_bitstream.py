import json
from pathlib import Path

import pytest

from simulator.bitstreams import gbs_metadata, gbs_of, make_aocx, make_gbs
from tests.accelbind.running import Done, run

INTERFACE = "ce48969398f05f33946d560708be108a"
AFU = "d8424dc4a4a3c413f89e433683f9040b"
PROGRAM = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def gbs(tmp_path: Path) -> Path:
    path = tmp_path / "nlb0.gbs"
    path.write_bytes(make_gbs(INTERFACE, AFU))
    return path


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    return tmp_path / "storage"


def bitstream(*arguments: object) -> Done:
    return run("bitstream", *arguments)


def test_info_shows_what_is_in_a_gbs(gbs: Path) -> None:
    code, out, err = bitstream("info", gbs)
    assert (code, err) == (0, "")
    assert f"interface id  {INTERFACE}\nfunction id   {AFU}\n" in out
    assert f"stored as     {INTERFACE}/{AFU}.gbs\n" in out


def test_info_as_json_has_all_that_a_script_wants(gbs: Path, tmp_path: Path) -> None:
    aocx = tmp_path / "x.aocx"
    aocx.write_bytes(make_aocx(INTERFACE, PROGRAM))
    code, out, _ = bitstream("info", gbs, aocx, "-o", "json")
    first, second = json.loads(out)["items"]
    assert code == 0
    assert first["kind"] == "gbs"
    assert first["functionId"] == first["afuId"] == AFU
    assert second["functionId"] == second["opencl"]["programId"] == PROGRAM
    assert second["rawBytes"] == len(b"raw bitstream")
    assert first["storedAs"] == f"{INTERFACE}/{AFU}.gbs"
    assert second["storedAs"] == f"{INTERFACE}/{PROGRAM}.aocx"


def test_a_name_built_to_mislead_a_terminal_is_shown_harmless(
    tmp_path: Path, storage: Path
) -> None:
    path = tmp_path / "x"
    path.write_bytes(gbs_of(gbs_metadata(INTERFACE, AFU, name="a\x1b[31m\nb"), b"raw"))
    for arguments in (("info", path), ("install", path, "--bitstreams", storage)):
        assert "\x1b" not in bitstream(*arguments)[1]
    assert r"a\x1b[31m\nb" in bitstream("list", "--bitstreams", storage)[1]


def test_installed_bitstreams_are_listed_verified_and_removed(gbs: Path, storage: Path) -> None:
    code, out, _ = bitstream("install", gbs, "--bitstreams", storage)
    assert code == 0
    assert out == f"{gbs} → {storage}/{INTERFACE}/{AFU}.gbs (installed)\n"
    code, out, _ = bitstream("list", "--bitstreams", storage)
    row = out.splitlines()[1].split()
    assert row == [INTERFACE, AFU, "gbs", "synthetic", "13", "bytes", "ok"]
    assert bitstream("verify", "--bitstreams", storage)[0] == 0
    assert bitstream("remove", INTERFACE, AFU.upper(), "--bitstreams", storage)[0] == 0
    assert json.loads(bitstream("list", "--bitstreams", storage, "-o", "json")[1])["items"] == []


def test_verify_names_what_cannot_be_used_and_says_no(gbs: Path, storage: Path) -> None:
    bitstream("install", gbs, "--bitstreams", storage)
    (storage / INTERFACE / f"{'0' * 32}.gbs").write_bytes(gbs.read_bytes())
    code, out, _ = bitstream("verify", "--bitstreams", storage)
    assert code == 1
    assert "is not what its name says" in out
    assert "2 bitstreams" in out
    entries = json.loads(bitstream("verify", "--bitstreams", storage, "-o", "json")[1])["items"]
    assert [each["ok"] for each in entries] == [False, True]
    assert "not what its name says" in bitstream("list", "--bitstreams", storage)[1]


def test_verify_names_what_is_not_in_the_layout(gbs: Path, storage: Path) -> None:
    bitstream("install", gbs, "--bitstreams", storage)
    (storage / "READ\x1bME").touch()
    readme = (
        f"ignored: {storage}/READ\\x1bME is not named INTERFACE/FUNCTION.gbs or .aocx;"
        " nothing reads it, so it may be moved away"
    )
    summary = f"1 bitstream in {storage}"
    assert bitstream("verify", "--bitstreams", storage) == (0, f"{readme}\n{summary}\n", "")
    beside, copied = storage / "READ\x1bME", storage / INTERFACE / "nlb0.gbs"
    (storage / "empty").mkdir()
    copied.write_bytes(gbs.read_bytes())
    code, out, _ = bitstream("verify", "--bitstreams", storage)
    assert code == 1
    assert f"{copied} is not named" in out
    assert f"add it from there: accelbind bitstream install {copied.name}\n" in out
    code, out, _ = bitstream("list", "--bitstreams", storage, "-o", "json")
    ignored = [str(each) for each in (beside, copied, storage / "empty")]
    assert (code, json.loads(out)["ignored"]) == (0, ignored)


def test_a_dry_run_tells_what_would_come_of_it_and_writes_nothing(gbs: Path, storage: Path) -> None:
    def outcome(*flags: str) -> str:
        done = bitstream("install", gbs, "--bitstreams", storage, "-o", "json", *flags)
        assert (done.returncode, done.stderr) == (0, "")
        return str(json.loads(done.stdout)["items"][0]["outcome"])

    assert outcome("--dry-run") == "would-be-installed"
    assert not storage.exists()
    assert [outcome(), outcome(), outcome("--dry-run")] == ["installed", "unchanged", "unchanged"]


def test_of_several_files_none_is_installed_if_one_cannot_be(
    gbs: Path, storage: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad").write_bytes(b"bad")
    code, _, err = bitstream("install", gbs, tmp_path / "bad", "--bitstreams", storage)
    assert code == 2
    assert "neither a GBS nor an AOCX" in err
    assert not storage.exists()
