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
        (errno.EBUSY, Failure.BUSY),
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


@pytest.mark.parametrize(
    ("links", "path", "there"),
    [
        ({"dev/a": "tty0"}, "/dev/a", "/dev/tty0"),
        ({"dev/a": "/dev/tty0"}, "/dev/a", "/dev/tty0"),
        ({"dev/a": "../../../dev/tty0"}, "/dev/a", "/dev/tty0"),  # `/..` is `/`
        ({"dev/a": "/../../dev//tty0"}, "/dev/a", "/dev/tty0"),
        ({"dev/by-id": "/dev/serial", "dev/serial/x": "../tty0"}, "/dev/by-id/x", "/dev/tty0"),
        ({"dev/a": "/dev/b", "dev/b": "c", "dev/c": "/dev/tty0"}, "/dev/a", "/dev/tty0"),
        ({"dev/a": "/sys/devices/card"}, "/dev/a/inner", "/sys/devices/card/inner"),
        ({"sys/class/a": "../devices/card"}, "/sys/class/a/..", "/sys/devices"),
        ({"dev/a": "/"}, "/dev/a/dev/tty0", "/dev/tty0"),
        ({"dev/a": "/proc/self/fd"}, "/dev/a", None),  # only on this system
        ({"dev/a": "../../outside"}, "/dev/a", None),
        ({"dev/a": "nothing"}, "/dev/a", None),
        ({"dev/a": "/dev/tty0/x"}, "/dev/a", None),
        ({"dev/a": "a"}, "/dev/a", None),
        ({"dev/a": "/dev/b", "dev/b": "/dev/a"}, "/dev/a", None),
        ({"dev/a": "/dev/" + "./" * 2000 + "tty0"}, "/dev/a", "/dev/tty0"),
        (
            {"dev/a39": "tty0"} | {f"dev/a{n}": f"a{n + 1}" for n in range(39)},
            "/dev/a0",
            "/dev/tty0",
        ),
        ({"dev/a40": "tty0"} | {f"dev/a{n}": f"a{n + 1}" for n in range(40)}, "/dev/a0", None),
    ],
)
def test_a_link_means_what_it_means_to_the_host_and_never_leaves_its_root(
    tmp_path: Path, links: dict[str, str], path: str, there: str | None
) -> None:
    (tmp_path / "outside").mkdir()
    root = tmp_path / "root"
    (root / "sys/devices/card/inner").mkdir(parents=True)
    write(root / "dev/tty0")
    for name, target in links.items():
        link(root / name, target)
    link(tmp_path / "given", "root")
    for each in (root, tmp_path / "given"):
        files = Sysfs(each)
        assert files.resolve(path) == there
        assert files.resolve(path) == there


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
    return [each.code if each else "" for each in problems]


def test_under_another_root_a_regular_file_is_a_device_node(tmp_path: Path) -> None:
    write(tmp_path / "dev/file")
    (tmp_path / "dev/folder").mkdir()
    for name, target in (("good", "file"), ("bad", "folder"), ("dangling", "nothing")):
        link(tmp_path / "dev" / name, target)
        link(tmp_path / "dev/full" / name, f"/dev/{target}")
    found = reasons(Sysfs(tmp_path), "file", "good", "folder", "bad", "dangling", "absent")
    assert found == ["", "", *["node-not-a-device"] * 2, *["node-missing"] * 2]
    found = reasons(Sysfs(tmp_path), "full/good", "full/bad", "full/dangling")
    assert found == ["", "node-not-a-device", "node-missing"]


@pytest.mark.parametrize(
    ("links", "name", "reason", "target"),
    [
        ({}, "tty0", "", ""),
        ({"dev/zigbee": "tty0"}, "zigbee", "", "tty0"),
        ({"dev/zigbee": "/dev/tty0"}, "zigbee", "", "tty0"),
        ({"dev/hub": "/dev/serial/by-id", "dev/serial/by-id/x": "../../tty0"}, "hub/x", "", "tty0"),
        ({"dev/hub": "/dev/serial/by-id"}, "hub/own", "", "serial/by-id/own"),
        ({"dev/hub": "/dev/serial/by-id"}, "hub/none", "node-missing", ""),
        ({"dev/hub": "/outside"}, "hub/own", "node-missing", ""),
        ({"dev/zigbee": "/run/tty"}, "zigbee", "", "/run/tty"),
    ],
)
def test_nodes_are_found_through_links_of_the_host(
    tmp_path: Path, links: dict[str, str], name: str, reason: str, target: str
) -> None:
    for path in ("dev/tty0", "dev/serial/by-id/own", "run/tty"):
        write(tmp_path / path)
    for path, to in links.items():
        link(tmp_path / path, to)
    files = Sysfs(tmp_path)
    assert reasons(files, name) == [reason]
    assert files.node_target(name) == target


def test_on_the_host_only_a_character_device_is_a_device_node() -> None:
    regular = os.path.relpath(__file__, "/dev")
    found = reasons(Sysfs(Path("/")), "null", "fd", regular, "no-such-device")
    assert found == ["", *["node-not-a-device"] * 2, "node-missing"]


def test_a_node_that_can_not_be_looked_at_is_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied")

    write(tmp_path / "dev/dfl-port.0")
    for call in ("lstat", "readlink"):
        monkeypatch.setattr(f"services.devices.hardware.sysfs.os.{call}", fail)
        assert reasons(Sysfs(tmp_path), "dfl-port.0") == ["node-unreadable"]
