"""What a plugin without root's powers says of what it may not, and what it does all the same."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from plugin.permissions import Missing, PermissionCheck
from plugin.permissions import missing as missing_of
from services.devices.hardware.scan import scan
from services.devices.model import Inventory, PluginMode
from services.process.blocking import BlockingCalls
from simulator.cards import CardSpec, Rack
from simulator.kubelet.standin import KubeletStandIn
from tests.plugin.support import AF, container, pod, settings
from tests.plugin.test_process import proc
from tests.plugin.unprivileged import as_nobody, open_to_all
from tests.services.node.support import scanned
from tests.services.ofs_cards import HE_MEM, OfsNode
from tests.support import Process, Processes, accelbind_command, eventually_async

pytestmark = pytest.mark.anyio


def flags(folder: Path) -> list[str | Path]:
    return [
        *("--root", folder / "root", "--kubelet-dir", folder / "k", "--node-name", "n1"),
        *("--pod-logs-dir", folder / "k/pod-logs", "--cdi-dir", folder / "cdi"),
        *("--metrics-host", "127.0.0.1", "--metrics-port", "0", "--log-format", "json"),
        *("--scan-interval", "0.1"),
    ]


def start(processes: Processes, folder: Path, *, read_only: bool = False) -> Process:
    """Start the plugin as nobody; its ports file is in a folder that it may write."""
    (folder / "ports").mkdir()
    (folder / "ports").chmod(0o777)
    command = accelbind_command("plugin", *flags(folder), "--ports-file", folder / "ports/ports")
    writable = [folder / "k", folder / "cdi", folder / "ports", folder / "root"]
    return processes.start(
        as_nobody(command, scratch=folder / "scratch", writable=writable if read_only else ()),
        env={"PYTHONDONTWRITEBYTECODE": "1"},
    )


def events(process: Process, event: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in process.stderr.splitlines() if line.startswith("{")]
    return [each for each in found if each["event"] == event]


def said(process: Process) -> dict[str, dict[str, Any]]:
    """What is said to be missing, by path; each path once."""
    found = events(process, "permission missing")
    by_path = {each["path"]: each for each in found}
    assert len(by_path) == len(found)
    return by_path


@pytest.fixture
def node(short_dir: Path, rack: Rack) -> Path:
    """A node of one card on which everybody may look at everything and write nothing."""
    rack.add_card(CardSpec())
    for name in ("cdi", "k/pod-logs"):
        (short_dir / name).mkdir(parents=True)
    short_dir.chmod(0o755)
    return short_dir


async def ready(folder: Path) -> None:
    open_to_all(folder)
    for path in ("k/device-plugins/kubelet.sock", "k/pod-resources/kubelet.sock"):
        (folder / path).chmod(0o777)


async def test_with_the_folders_it_needs_it_serves_as_nobody_on_a_read_only_root(
    node: Path, kubelet: KubeletStandIn, processes: Processes
) -> None:
    await ready(node)
    for name in ("k/device-plugins", "cdi"):
        (node / name).chmod(0o777)
    for path in (node / "root/sys").rglob("errors/errors"):
        path.chmod(0o666)
    plugin = start(processes, node, read_only=True)
    await kubelet.until(lambda: kubelet.allocatable == {AF: 1}, 60)
    admitted = await kubelet.settled(await kubelet.admit(pod("p", container("c", AF))))
    assert admitted["c"].running
    await eventually_async(lambda: list((node / "cdi").glob("*.json")))
    # What the kubelet keeps is for its own user.
    checkpoint = str(node / "k/device-plugins/kubelet_internal_checkpoint")
    (node / checkpoint).chmod(0o600)
    await kubelet.restart()
    for path in (node / "k").rglob("*.sock"):
        path.chmod(0o777)
    await kubelet.until(lambda: kubelet.allocatable == {AF: 1})
    status = proc(plugin, "status")
    if os.geteuid() == 0:
        assert "Uid:\t65534\t65534\t65534\t65534" in status
        assert "CapEff:\t0000000000000000" in status
        assert "CapBnd:\t0000000000000000" in status
        root = next(each for each in proc(plugin, "mountinfo").splitlines() if " / / " in each)
        assert root.split()[5].startswith("ro")
    assert not [each for each in said(plugin) if each not in {checkpoint, *sockets(node)}]
    assert plugin.terminate() == 0


def sockets(node: Path) -> set[str]:
    """The kubelet's, which for a moment are its user's alone."""
    return {str(node / f"k/{each}/kubelet.sock") for each in ("device-plugins", "pod-resources")}


# In this process, where permissions are what os.access says --------------------------------------


def missing(
    folder: Path, inventory: Inventory, mode: PluginMode = PluginMode.AF, **values: Any
) -> tuple[Missing, ...]:
    serves = values.pop("serves", True)
    given = settings(folder, mode, **({"cdi_dir": folder / "cdi/deep"} | values))
    return missing_of(given, mode, inventory, serves=serves)


@pytest.fixture
def forbid(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, int], None]:
    """Take permissions from this process, as a system would for a user without rights."""
    taken: dict[str, int] = {}

    real = os.access

    def access(path: Path, mode: int, **how: Any) -> bool:
        if mode == os.F_OK:  # what exists is no question of permissions
            return real(path, mode, **how)
        assert how == {"effective_ids": True}
        return not taken.get(str(path), 0) & mode

    monkeypatch.setattr(os, "access", access)
    return lambda path, mode: taken.update({str(path): mode})


NO_PROGRAMMING = "no region is programmed, "
W, R, X = os.W_OK, os.R_OK, os.X_OK
PORTS, REGION, UNITS = PluginMode.AF, PluginMode.REGION, PluginMode.UNITS


@pytest.mark.parametrize(
    ("mode", "values", "taken", "lacking"),
    [
        (PORTS, {}, {}, []),
        (PORTS, {}, {"": W}, [("", "write", "no CDI file is written to {folder}/cdi/deep")]),
        (PORTS, {"cdi_dir": None}, {"": W}, []),
        (PORTS, {}, {"root/sys": R | X}, [("root/sys", "read and search", "no card is found")]),
        (UNITS, {}, {"root/sys": R | X}, []),
        (PORTS, {}, {"root/dev": X}, [("root/dev", "search", "no device node can be looked at")]),
        (
            PORTS,
            {},
            {"checkpoint": R},
            [("checkpoint", "read", "errors of ports aren't cleared")],
        ),
        (REGION, {}, {"checkpoint": R}, [("checkpoint", "read", "no container starts in mode ")]),
        (
            PORTS,
            {"serves": False},
            {"pods.sock": W},
            [("pods.sock", "connect (which takes write)", "which containers have devices")],
        ),
        (
            PORTS,
            {},
            {"k/device-plugins": R | W | X},
            [("k/device-plugins", "read and write and search", "no resource is offered")],
        ),
        (
            REGION,
            {"cdi_dir": None},
            {"bitstreams": R, "root/dev/dfl-fme.0": W, "": W},
            [
                ("", "write", NO_PROGRAMMING),
                ("bitstreams", "read", NO_PROGRAMMING),
                ("root/dev/dfl-fme.0", "write", NO_PROGRAMMING),
            ],
        ),
        (
            REGION,
            {"cdi_dir": None, "programming": "none"},
            {"bitstreams": R, "root/dev/dfl-fme.0": W},
            [],
        ),
        (PORTS, {"cdi_dir": None}, {"bitstreams": R, "root/dev/dfl-fme.0": W}, []),
    ],
)
def test_a_missing_permission_is_named_with_what_does_not_work(
    short_dir: Path,
    rack: Rack,
    forbid: Callable[[Path, int], None],
    *,
    mode: PluginMode,
    values: dict[str, Any],
    taken: dict[str, int],
    lacking: list[tuple[str, str, str]],
) -> None:
    rack.add_card(CardSpec())
    short = {
        "checkpoint": "k/device-plugins/kubelet_internal_checkpoint",
        "pods.sock": "k/pod-resources/kubelet.sock",
    }
    for name in ("k/device-plugins", "k/pod-resources", "bitstreams"):
        (short_dir / name).mkdir(parents=True)
    (short_dir / short["checkpoint"]).touch()
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(short_dir / short["pods.sock"]))
        for name, bits in taken.items():
            forbid(short_dir / short.get(name, name), bits)
        found = missing(short_dir, scan(rack.root), mode, **values)
    assert [(each.path, each.permission) for each in found] == [
        (str(short_dir / short.get(name, name)), permission) for name, permission, _ in lacking
    ]
    for each, (_, _, loss) in zip(found, lacking, strict=True):
        assert loss.format(folder=short_dir) in each.loss
        assert str(each).startswith(
            f"{each.path}: no permission to {each.permission} (user {os.geteuid()}, group"
        )


def test_a_folder_that_is_closed_is_named_itself(
    short_dir: Path, forbid: Callable[[Path, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    (short_dir / "k").mkdir()
    stat = os.stat

    def closed(path: Path | str, **how: Any) -> os.stat_result:
        if str(path).startswith(f"{short_dir}/k/"):
            raise PermissionError
        return stat(path, **how)

    forbid(short_dir / "k", os.X_OK)
    monkeypatch.setattr(os, "stat", closed)
    (found,) = missing(short_dir, Inventory(), cdi_dir=None)
    assert (found.path, found.permission) == (str(short_dir / "k"), "search")
    assert "device-plugins can't be reached: no resource is offered to the kubelet" in found.loss


def test_of_many_ports_the_first_is_named(
    short_dir: Path, rack: Rack, forbid: Callable[[Path, int], None]
) -> None:
    for _ in range(6):
        rack.add_card(CardSpec())
    for path in (short_dir / "root/sys/devices").rglob("errors/errors"):
        forbid(path, os.W_OK)
    (found,) = missing(short_dir, scan(rack.root), cdi_dir=None)
    assert found.loss.endswith("; the same for 5 more")
    assert missing(short_dir, scan(rack.root), cdi_dir=None, clear_errors=False) == ()


def test_virtual_functions_whose_bar_may_not_be_read_are_named(
    short_dir: Path, forbid: Callable[[Path, int], None]
) -> None:
    node = OfsNode(short_dir / "root")
    node.add_card()
    for number in (5, 6):
        node.bind(f"0000:b1:00.{number}", HE_MEM)
        forbid(node.folder(f"0000:b1:00.{number}") / "resource0", os.R_OK)
    inventory = scan(node.root)
    (found,) = missing(short_dir, inventory, cdi_dir=None, clear_errors=False)
    assert found.path.endswith("0000:b1:00.5/resource0")
    assert found.loss == "the function behind it is unknown, and not offered; the same for 1 more"
    mode = PluginMode.REGIONDEVEL
    assert missing(short_dir, inventory, mode, cdi_dir=None, clear_errors=False) == ()


async def test_what_is_missing_is_logged_once(
    short_dir: Path, forbid: Callable[[Path, int], None]
) -> None:
    state = scanned()
    state.scanned.set()
    check = PermissionCheck(
        settings(short_dir, cdi_dir=short_dir / "cdi/deep"), state, BlockingCalls()
    )
    forbid(short_dir, os.W_OK)
    with capture_logs() as logs:
        await check.check_once()
    assert [each["path"] for each in logs] == [each.path for each in check.missing] != []
