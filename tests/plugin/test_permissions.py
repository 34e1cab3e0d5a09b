"""What a plugin may not do on its node, and what doesn't work without it."""

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
from tests.plugin.support import settings
from tests.services.node.support import scanned
from tests.services.ofs_cards import HE_MEM, OfsNode

pytestmark = pytest.mark.anyio


def missing(
    folder: Path, inventory: Inventory, mode: PluginMode = PluginMode.AF, **values: Any
) -> tuple[Missing, ...]:
    given = settings(folder, mode, **({"cdi_dir": folder / "cdi/deep"} | values))
    return missing_of(given, mode, inventory)


@pytest.fixture
def forbid(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, int], None]:
    """Take permissions from this process, as a system would for a user without rights."""
    taken: dict[str, int] = {}

    def access(path: Path, mode: int, **how: Any) -> bool:
        assert how == {"effective_ids": True}
        return not taken.get(str(path), 0) & mode

    monkeypatch.setattr(os, "access", access)
    return lambda path, mode: taken.update({str(path): mode})


NO_PROGRAMMING = "no region is programmed, "
UNKNOWN = "some containers with devices are unknown"
W, R, X = os.W_OK, os.R_OK, os.X_OK
PORTS, REGION, UNITS = PluginMode.AF, PluginMode.REGION, PluginMode.UNITS


@pytest.mark.parametrize(
    ("mode", "values", "taken", "lacking"),
    [
        (PORTS, {}, {}, []),
        (PORTS, {}, {"": W}, [("", "write", "no CDI file is written to {folder}/cdi/deep")]),
        (PORTS, {}, {"root/sys": R | X}, [("root/sys", "read and search", "no card is found")]),
        (UNITS, {}, {"root/sys": R | X}, []),
        (PORTS, {}, {"checkpoint": R}, [("checkpoint", "read", UNKNOWN)]),
        (PORTS, {}, {"pods.sock": W}, [("pods.sock", "write", UNKNOWN)]),
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


def test_what_is_in_a_closed_folder_is_named(
    short_dir: Path, forbid: Callable[[Path, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, stat = short_dir / "k/device-plugins", os.stat

    def closed(asked: Path | str, **how: Any) -> os.stat_result:
        if str(asked) == str(path):
            raise PermissionError
        return stat(asked, **how)

    forbid(path, os.R_OK | os.W_OK | os.X_OK)
    monkeypatch.setattr(os, "stat", closed)
    (found,) = missing(short_dir, Inventory(), cdi_dir=None)
    assert (found.path, found.permission) == (str(path), "read and write and search")


def test_of_many_ports_the_first_is_named(
    short_dir: Path, rack: Rack, forbid: Callable[[Path, int], None]
) -> None:
    for _ in range(6):
        rack.add_card(CardSpec())
    for path in (short_dir / "root/sys/devices").rglob("errors/errors"):
        forbid(path, os.W_OK)
    (found,) = missing(short_dir, scan(rack.root), cdi_dir=None)
    assert "errors that a container leaves in a port stay" in found.loss
    assert missing(short_dir, scan(rack.root), cdi_dir=None, clear_errors=False) == ()


def test_virtual_functions_whose_bar_may_not_be_read_are_named(
    short_dir: Path, forbid: Callable[[Path, int], None]
) -> None:
    node = OfsNode(short_dir / "root")
    node.add_card()
    node.bind("0000:b1:00.5", HE_MEM)
    forbid(node.folder("0000:b1:00.5") / "resource0", os.R_OK)
    (found,) = missing(short_dir, scan(node.root), cdi_dir=None, clear_errors=False)
    assert found.path.endswith("0000:b1:00.5/resource0")
    mode = PluginMode.REGIONDEVEL
    assert missing(short_dir, scan(node.root), mode, cdi_dir=None, clear_errors=False) == ()


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
