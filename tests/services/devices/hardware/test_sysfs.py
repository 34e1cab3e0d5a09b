import errno
import os
from pathlib import Path

import pytest

from services.devices.hardware.sysfs import MAX_ATTRIBUTE, Sysfs
from services.devices.health import Failure, Reading


def write(path: Path, content: bytes | str = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def link(path: Path, target: str | Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


# Attributes


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"0x0\n", "0x0"),
        (b"abc\n" + b"\0" * 4092, "abc"),
        (b"  abc \t\r\n", "abc"),
        (b"\0\0abc", "abc"),
        (b" " * 4096, ""),
        (b"\0" * 4096, ""),
        (b"", ""),
        (b"a\xffb", "a\ufffdb"),
    ],
)
def test_an_attribute_is_read_without_its_padding(
    tmp_path: Path, content: bytes, text: str
) -> None:
    write(tmp_path / "sys/attribute", content)
    assert Sysfs(tmp_path).read("/sys/attribute") == Reading(text)


def test_no_more_is_read_than_a_driver_gives(tmp_path: Path) -> None:
    write(tmp_path / "sys/attribute", b"x" * (MAX_ATTRIBUTE * 64))
    assert len(Sysfs(tmp_path).text("/sys/attribute")) == MAX_ATTRIBUTE


def test_what_is_no_file_cant_be_read_and_blocks_nobody(tmp_path: Path) -> None:
    (tmp_path / "sys/folder").mkdir(parents=True)
    os.mkfifo(tmp_path / "sys/fifo")
    link(tmp_path / "sys/link", write(tmp_path / "secret", "secret"))
    files = Sysfs(tmp_path)
    assert files.read("/sys/fifo") == Reading(failure=Failure.DEAD, detail="not a regular file")
    is_folder = Reading(failure=Failure.UNREADABLE, detail="Is a directory")
    assert files.read("/sys/folder") == is_folder
    assert files.read("/sys/link").failure is Failure.UNREADABLE
    for path in ("/sys/attribute", "/sys/no/attribute", "/sys/fifo/attribute"):
        assert files.read(path).failure is Failure.MISSING
        assert files.text(path) == ""


@pytest.mark.parametrize("call", ["open", "read"])
@pytest.mark.parametrize(
    ("code", "failure"),
    [
        (errno.EACCES, Failure.UNREADABLE),
        (errno.EIO, Failure.DEAD),
        (errno.ENOENT, Failure.MISSING),
    ],
)
def test_what_the_system_says_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, failure: Failure, call: str
) -> None:
    def fail(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    write(tmp_path / "sys/attribute", "x")
    monkeypatch.setattr(f"services.devices.hardware.sysfs.os.{call}", fail)
    assert Sysfs(tmp_path).read("/sys/attribute").failure is failure


# Links


def test_links_are_followed_within_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "sys/devices/card/inner").mkdir(parents=True)
    link(tmp_path / "given", "root")
    link(root / "sys/relative", "devices/card")
    link(root / "sys/spelled-out", root / "sys/devices/card")
    link(root / "sys/as-given", tmp_path / "given/sys/devices/card")
    link(root / "sys/twice", "relative/inner")
    link(root / "sys/outside", tmp_path)
    link(root / "sys/climbing", "../..")
    files = Sysfs(tmp_path / "given")
    for name in ("relative", "spelled-out", "as-given"):
        assert files.resolve(f"/sys/{name}") == "/sys/devices/card"
    assert files.resolve("/sys/twice") == "/sys/devices/card/inner"
    assert files.resolve("/sys/relative/inner") == "/sys/devices/card/inner"
    for name in ("outside", "climbing", "outside/root", "climbing/root"):
        assert files.resolve(f"/sys/{name}") is None


def test_a_link_to_nowhere_or_to_itself_leads_nowhere(tmp_path: Path) -> None:
    link(tmp_path / "sys/dangling", "nothing")
    link(tmp_path / "sys/ping", "pong")
    link(tmp_path / "sys/pong", "ping")
    files = Sysfs(tmp_path)
    for name in ("dangling", "ping", "absent"):
        assert files.resolve(f"/sys/{name}") is None


def test_a_root_is_the_host_however_it_is_spelled(tmp_path: Path) -> None:
    link(tmp_path / "host", "/")
    assert Sysfs(tmp_path / "host").is_host
    assert Sysfs(Path("/dev/..")).is_host
    assert not Sysfs(tmp_path).is_host
    assert not Sysfs(tmp_path / "nowhere").is_host
    assert Sysfs(Path("/")).resolve("/dev") == "/dev"


# Device nodes


def reasons(files: Sysfs, *names: str) -> list[str]:
    problems = [files.node_problem(each) for each in names]
    return [each.reason if each else "" for each in problems]


def test_under_another_root_a_regular_file_is_a_device_node(tmp_path: Path) -> None:
    write(tmp_path / "dev/file")
    (tmp_path / "dev/folder").mkdir()
    for name, target in (("good", "file"), ("bad", "folder"), ("dangling", "nothing")):
        link(tmp_path / "dev" / name, target)
    found = reasons(Sysfs(tmp_path), "file", "good", "folder", "bad", "dangling", "absent")
    assert found == ["", "", *["node-not-a-device"] * 2, *["node-missing"] * 2]


def test_on_the_host_only_a_character_device_is_a_device_node() -> None:
    regular = os.path.relpath(__file__, "/dev")
    found = reasons(Sysfs(Path("/")), "null", "fd", regular, "no-such-device")
    assert found == ["", *["node-not-a-device"] * 2, "node-missing"]


def test_a_node_that_can_not_be_looked_at_is_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("services.devices.hardware.sysfs.os.lstat", fail)
    assert reasons(Sysfs(tmp_path), "dfl-port.0") == ["node-unreadable"]
