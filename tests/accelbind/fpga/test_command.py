"""`accelbind fpga` where no driver is needed; see tests/kernel for what asks one."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.programming.host_state import HostState
from simulator.bitstreams import make_gbs
from simulator.card_faults import Fault
from simulator.cards import A10_INTERFACE, D5005_INTERFACE, NLB0, NLB3, CardSpec, Rack
from simulator.driver import DriverStandIn, SimulatedCalls, raw_bitstream
from tests.accelbind.running import Done, run
from tests.recorded import CLAIM, with_claim, write_checkpoint

DRIVERS = ("opae", "dfl")


@pytest.fixture
def rack(tmp_path: Path) -> Rack:
    made = Rack(tmp_path / "root")
    write_checkpoint(made.root / "kubelet")
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A bitstream that fits a card, which has another function."""
    path = tmp_path / "file"
    path.write_bytes(make_gbs(A10_INTERFACE, NLB3))
    return path


def fpga(rack: Rack, *arguments: object) -> Done:
    command = ("fpga", *arguments, "--root", rack.root)
    folders = {"STATE": rack.root / "state", "KUBELET": rack.root / "kubelet"}
    own = {f"ACCELBIND_{name}_DIR": str(folder) for name, folder in folders.items()}
    return run(*command, env=own, driver_calls=SimulatedCalls())


def listed(rack: Rack, *flags: str) -> Any:
    return json.loads(fpga(rack, "list", "-o", "json", *flags).stdout)["items"]


def test_a_node_without_cards_has_an_empty_list_and_a_reason(rack: Rack) -> None:
    code, out, err = fpga(rack, "list")
    assert (code, out) == (0, "")
    assert err.startswith("warning: neither /sys/class/fpga nor")
    assert fpga(rack, "list", "-o", "json")[1] == '{\n  "version": 1,\n  "items": []\n}\n'


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_list_has_the_ports_of_virtual_functions_with_their_engine(
    rack: Rack, driver: str
) -> None:
    address = rack.add_card(CardSpec(driver, ports=2))
    virtual = rack.move_to_vf(address, 1)
    engine, first, second = listed(rack)
    assert (first["pciAddress"], second["pciAddress"]) == (address, virtual)
    assert first["fme"] == second["fme"] == engine["device"]
    assert first["interfaceId"] == second["interfaceId"] == A10_INTERFACE
    assert (second["number"], second["afuId"], second["healthy"]) == (1, NLB0, True)


@pytest.mark.parametrize("kind", ["fme", "port"])
def test_the_list_may_be_of_one_kind(rack: Rack, kind: str) -> None:
    rack.add_card(CardSpec(ports=2))
    for mode in ("af", "none"):
        assert {each["kind"] for each in listed(rack, f"--kind={kind}", f"--mode={mode}")} == {kind}


def test_an_engine_stands_for_the_only_port_that_it_has(rack: Rack, file: Path) -> None:
    rack.add_card(CardSpec(ports=1))
    rack.add_card(CardSpec(ports=2))
    code, out, _ = fpga(rack, "program", "/dev/dfl-fme.0", file, "--dry-run", "-o", "json")
    assert (code, json.loads(out)["device"]) == (0, "dfl-port.0")
    for command in (("program", "dfl-fme.1", file, "--dry-run"), ("reset", "dfl-fme.1")):
        code, _, err = fpga(rack, *command)
        assert code == 2
        assert "dfl-fme.1 has dfl-port.1 and dfl-port.2, and one is needed: name the port" in err
    assert fpga(rack, "reset", "dfl-fme.7")[0] == 4


def test_a_card_that_can_not_be_read_is_listed_with_the_reason(rack: Rack) -> None:
    rack.add_card(CardSpec(faults=(Fault.ENTRY_DANGLING,)))
    code, out, _ = fpga(rack, "list")
    assert (code, out.splitlines()[1].split()[:3]) == (0, ["-", "card", "region0"])
    assert "leads nowhere" in out


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_result_of_a_dry_run_is_a_sentence(rack: Rack, tmp_path: Path, driver: str) -> None:
    rack.add_card(CardSpec(driver))
    port, file = listed(rack)[1]["device"], tmp_path / "file"
    for afu in (NLB3, NLB0):  # without a record, also what the port shows
        file.write_bytes(make_gbs(A10_INTERFACE, afu))
        told = f"AFU {afu} fits {port} and would be programmed; it shows {NLB0} now\n"
        assert fpga(rack, "program", port, file, "--dry-run") == (0, told, "")
    file.write_bytes(make_gbs(D5005_INTERFACE, NLB3))
    assert fpga(rack, "program", port, file, "--dry-run")[0] == 2


@pytest.mark.parametrize("flags", [(), ("--dry-run",)], ids=str)
@pytest.mark.parametrize(
    ("resource", "device"), [("af-x", "dfl-port.0"), ("region-x", "dfl-fme.0")]
)
def test_a_port_that_a_container_has_is_programmed_by_force_only(
    rack: Rack, file: Path, resource: str, device: str, flags: tuple[str, ...]
) -> None:
    rack.add_card(CardSpec(driver="dfl"))
    rack.add_card(CardSpec(driver="dfl"))
    write_checkpoint(rack.root / "kubelet", (resource, device))
    (rack.root / "logs/ns_p_u").mkdir(parents=True)
    logs = ("--pod-logs-dir", rack.root / "logs")
    code, _, err = fpga(rack, "program", "dfl-port.0", file, *flags, *logs)
    assert code == 3
    assert "dfl-port.0 is held by container c of pod ns/p: end that pod, or use --force" in err
    for port, force in (("dfl-port.1", ()), ("dfl-port.0", ("--force",))):
        assert fpga(rack, "program", port, file, *force, "--dry-run")[0] == 0


def test_a_rebind_says_first_what_it_interrupts_and_is_refused_with_virtual_functions(
    rack: Rack,
) -> None:
    address = rack.add_card(CardSpec(driver="dfl", ports=2))
    rack.add_card(CardSpec(driver="dfl", ports=0, afu_ids=()))
    write_checkpoint(rack.root / "kubelet", *(("region-x", f"dfl-fme.{each}") for each in (0, 1)))
    (rack.root / "logs/ns_p_u").mkdir(parents=True)
    rebind = ("rebind", "region0", "--pod-logs-dir", rack.root / "logs")
    code, out, err = fpga(rack, *rebind)
    away, *who = out.splitlines()
    assert away.startswith(f"rebinding the driver of card region0 ({address}) takes ")
    assert away.endswith(" dfl-fme.0, dfl-port.0 and dfl-port.1 away for a moment")
    assert who == ["who has a part of the card: container c of pod ns/p"]
    assert (code, "a part of card region0 is held by container c of pod ns/p" in err) == (3, True)
    code, out, err = fpga(rack, "rebind", "dfl-fme.1", *rebind[2:])
    assert (code, "is held by container c" in err, out.splitlines()[1:]) == (3, True, who)
    virtual = rack.move_to_vf(address, 1)
    code, _, err = fpga(rack, *rebind, "--force")
    assert (code, f"remove the virtual functions of {address} ({virtual})" in err) == (3, True)
    assert f"echo 0 > /sys/bus/pci/devices/{address}/sriov_numvfs" in err


def test_so_is_a_port_of_a_region_that_a_claim_has(rack: Rack, file: Path) -> None:
    rack.add_card(CardSpec(driver="dfl"))
    book = with_claim(rack.root / "state")
    code, _, err = fpga(rack, "program", "dfl-port.0", file, "--dry-run")
    assert code == 3
    assert "dfl-port.0 is held by claim team-a/mine" in err
    book.path(CLAIM).write_text("{")
    code, _, err = fpga(rack, "program", "dfl-port.0", file, "--dry-run")
    assert (code, "whether a claim has dfl-port.0 is unknown" in err) == (3, True)
    assert f"{book.path(CLAIM)} can't be read" in err
    assert fpga(rack, "program", "dfl-port.0", file, "--force", "--dry-run")[0] == 0


def broken(checkpoint: Path) -> None:
    checkpoint.write_text("{")


def unreachable(checkpoint: Path) -> None:
    checkpoint.unlink()
    checkpoint.symlink_to(checkpoint.name)


def without_kubelet(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint.parent.parent)


@pytest.mark.parametrize("doubt", [broken, unreachable, Path.unlink, without_kubelet])
def test_in_doubt_a_port_is_held(rack: Rack, file: Path, doubt: Callable[[Path], None]) -> None:
    rack.add_card(CardSpec(driver="dfl"))
    doubt(write_checkpoint(rack.root / "kubelet", ("af-x", "dfl-port.7")))
    code, _, err = fpga(rack, "program", "dfl-port.0", file)
    assert (code, "whether a container has dfl-port.0 is unknown" in err) == (3, True)
    assert "if no kubelet runs on this machine, use --force" in err
    assert fpga(rack, "program", "dfl-port.0", file, "--force", "--dry-run")[0] == 0


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("kind", ["fme", "port"])
def test_info_tells_of_the_function_what_the_driver_need_not_be_asked(
    rack: Rack, driver: str, kind: str
) -> None:
    address = rack.add_card(CardSpec(driver, numa_node=1))
    rows = listed(rack)
    device = next(each["device"] for each in rows if each["kind"] == kind)
    code, out, _ = fpga(rack, "info", device, "-o", "json")
    told = json.loads(out)
    assert (code, told["kind"], told["driver"]) == (0, kind, driver)
    assert told["pci"]["address"] == address
    assert told["pci"]["numaNode"] == 1
    assert told["interfaceId"] == A10_INTERFACE
    assert "socketId" in told
    assert list(told["temperatures"].values()) == [38]
    assert fpga(rack, "info", f"/sys/class/x/{device}", "-o", "json") == (0, out, "")


@pytest.mark.parametrize("command", ["reset", "clear-errors"])
def test_a_card_that_somebody_works_on_is_left_alone(rack: Rack, command: str) -> None:
    address = rack.add_card(CardSpec(driver="dfl"))
    with HostState(rack.root / "state").lock_card(address, seconds=0):
        code, _, err = fpga(rack, command, "dfl-port.0", "--timeout", "0.5")
    assert (code, f"card {address} is busy" in err) == (3, True)


def test_a_card_that_hangs_is_given_up(rack: Rack, tmp_path: Path) -> None:
    rack.add_card(CardSpec(driver="dfl"))
    file = tmp_path / "file"
    file.write_bytes(make_gbs(A10_INTERFACE, NLB3, raw_bitstream(NLB3)))
    with DriverStandIn(rack.root) as driver:
        driver.go_on.clear()
        code, _, err = fpga(rack, "program", "dfl-port.0", file, "--timeout", "0.5")
        assert (code, "hangs: no answer within 0.5 s" in err) == (5, True)
        driver.go_on.set()
