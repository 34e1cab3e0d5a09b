import json
from pathlib import Path

import pytest

from accelbind.cli import main
from simulator.bitstreams import gbs_metadata, gbs_of, make_aocx, make_gbs

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


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["bitstream", *map(str, arguments)])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_info_shows_what_is_in_a_gbs(capsys: pytest.CaptureFixture[str], gbs: Path) -> None:
    code, out, err = run(capsys, "info", gbs)
    assert (code, err) == (0, "")
    assert f"interface id  {INTERFACE}\nfunction id   {AFU}\n" in out
    assert f"stored as     {INTERFACE}/{AFU}.gbs\n" in out


def test_info_as_json_has_all_that_a_script_wants(
    capsys: pytest.CaptureFixture[str], gbs: Path, tmp_path: Path
) -> None:
    aocx = tmp_path / "x.aocx"
    aocx.write_bytes(make_aocx(INTERFACE, PROGRAM))
    code, out, _ = run(capsys, "info", gbs, aocx, "-o", "json")
    first, second = json.loads(out)
    assert code == 0
    assert first["kind"] == "gbs"
    assert first["functionId"] == first["afuId"] == AFU
    assert second["functionId"] == second["opencl"]["programId"] == PROGRAM
    assert second["rawBytes"] == len(b"raw bitstream")
    assert first["storedAs"] == f"{INTERFACE}/{AFU}.gbs"
    assert second["storedAs"] == f"{INTERFACE}/{PROGRAM}.aocx"


def test_a_name_built_to_mislead_a_terminal_is_shown_harmless(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, storage: Path
) -> None:
    path = tmp_path / "x"
    path.write_bytes(gbs_of(gbs_metadata(INTERFACE, AFU, name="a\x1b[31m\nb"), b"raw"))
    for arguments in (("info", path), ("install", path, "--bitstreams", storage)):
        assert "\x1b" not in run(capsys, *arguments)[1]
    assert r"a\x1b[31m\nb" in run(capsys, "list", "--bitstreams", storage)[1]


def test_what_is_installed_is_listed_verified_and_removed(
    capsys: pytest.CaptureFixture[str], gbs: Path, storage: Path
) -> None:
    code, out, _ = run(capsys, "install", gbs, "--bitstreams", storage)
    assert code == 0
    assert out == f"{gbs} → {storage}/{INTERFACE}/{AFU}.gbs (installed)\n"
    code, out, _ = run(capsys, "list", "--bitstreams", storage)
    row = out.splitlines()[1].split()
    assert row == [INTERFACE, AFU, "gbs", "synthetic", "13", "bytes", "ok"]
    assert run(capsys, "verify", "--bitstreams", storage)[0] == 0
    assert run(capsys, "remove", INTERFACE, AFU.upper(), "--bitstreams", storage)[0] == 0
    assert json.loads(run(capsys, "list", "--bitstreams", storage, "-o", "json")[1]) == []


def test_verify_names_what_cannot_be_used_and_says_no(
    capsys: pytest.CaptureFixture[str], gbs: Path, storage: Path
) -> None:
    run(capsys, "install", gbs, "--bitstreams", storage)
    (storage / INTERFACE / f"{'0' * 32}.gbs").write_bytes(gbs.read_bytes())
    code, out, _ = run(capsys, "verify", "--bitstreams", storage)
    assert code == 1
    assert "is not what its name says" in out
    assert "2 bitstreams" in out
    entries = json.loads(run(capsys, "verify", "--bitstreams", storage, "-o", "json")[1])
    assert [each["ok"] for each in entries] == [False, True]
    assert "not what its name says" in run(capsys, "list", "--bitstreams", storage)[1]


def test_install_as_json_tells_each_outcome(
    capsys: pytest.CaptureFixture[str], gbs: Path, storage: Path
) -> None:
    for outcome in ("installed", "unchanged"):
        code, out, _ = run(capsys, "install", gbs, "--bitstreams", storage, "-o", "json")
        assert code == 0
        assert [each["outcome"] for each in json.loads(out)] == [outcome]


def test_a_dry_run_tells_what_would_come_of_it_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], gbs: Path, tmp_path: Path
) -> None:
    storage = tmp_path / "storage"
    arguments = ["bitstream", "install", str(gbs), "--bitstreams", str(storage)]
    assert main([*arguments, "--dry-run"]) == 0
    assert "(would-be-installed)" in capsys.readouterr().out
    assert not storage.exists()
    assert main(arguments) == 0
    capsys.readouterr()
    assert main([*arguments, "--dry-run"]) == 0
    assert "(unchanged)" in capsys.readouterr().out


def test_of_several_files_none_is_installed_if_one_cannot_be(
    capsys: pytest.CaptureFixture[str], gbs: Path, storage: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad").write_bytes(b"bad")
    code, _, err = run(capsys, "install", gbs, tmp_path / "bad", "--bitstreams", storage)
    assert code == 2
    assert "neither a GBS nor an AOCX" in err
    assert not storage.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("info", "/nowhere/x.gbs"), (1, "can't be read: No such file")),
        (("remove", "xyz", AFU), (2, "interface id")),
        (("remove", INTERFACE, AFU), (1, "no bitstream for AFU")),
    ],
)
def test_errors_are_one_line_and_an_exit_code(
    capsys: pytest.CaptureFixture[str],
    storage: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    said: tuple[int, str],
) -> None:
    monkeypatch.setenv("ACCELBIND_BITSTREAMS", str(storage))
    found, out, err = run(capsys, *arguments)
    assert (found, out) == (said[0], "")
    assert said[1] in err
    assert err.count("\n") == 1
