"""The OCI hook, as runtimes start it, and the plugin at its other end."""

import asyncio
import json
import socket
import subprocess
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from plugin.process import Plugin
from services.devices.model import PluginMode
from services.kube.events import EventRecord
from services.mappings.index import EMPTY_INDEX
from simulator.cards import A10_INTERFACE, NLB0, NLB3
from simulator.driver import DriverStandIn
from tests.plugin.support import REGION, Bed, mapping_both_functions, serving
from tests.support import REPOSITORY, eventually_async


def hooked(bed: Bed, **values: Any) -> AbstractAsyncContextManager[Plugin]:
    bed.install(NLB0)
    options: dict[str, Any] = {"cdi_dir": bed.folder / "cdi", "hook_path": bed.folder / "hook"}
    return bed.running(PluginMode.REGION, programming="oci-hook", **options | values)


class Runtime:
    """Starts the hook as a runtime does, with what its CDI file says."""

    COMMAND = (sys.executable, "-I", str(REPOSITORY / "accelbind" / "hook.py"))

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bundle = folder / "bundle"
        self.bundle.mkdir()

    def arguments(self) -> list[str]:
        file = json.loads((self.folder / "cdi" / "accelbind-fpga.json").read_text())
        edits = {each["name"]: each["containerEdits"] for each in file["devices"]}
        (described,) = edits["dfl-fme.0"]["hooks"]
        assert described["hookName"] == "createRuntime"
        assert described["path"] == str(self.folder / "hook")
        arguments: list[str] = described["args"][1:]
        return arguments

    def state(self) -> str:
        return json.dumps({"ociVersion": "1.0.2", "id": "x", "pid": 1, "bundle": str(self.bundle)})

    def configure(self, uid: str, env: tuple[str, ...] = (), **annotations: str) -> None:
        annotations |= {
            "io.kubernetes.cri.sandbox-uid": uid,
            "io.kubernetes.cri.container-name": "c",
        }
        config = {"process": {"env": list(env)}, "annotations": annotations}
        (self.bundle / "config.json").write_text(json.dumps(config))

    async def start(self, uid: str, env: tuple[str, ...] = ()) -> tuple[int, str]:
        self.configure(uid, env, large='"' * 256 * 1024)
        return await asyncio.to_thread(self.run, self.state(), *self.arguments())

    def run(self, state: str, *arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [*self.COMMAND, *arguments],
            cwd=REPOSITORY,
            input=state,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.stdout == ""
        return done.returncode, done.stderr


@pytest.fixture
def runtime(short_dir: Path) -> Runtime:
    return Runtime(short_dir)


@pytest.fixture
def card(bed: Bed) -> str:
    """A card with a function that accelbind has programmed."""
    address = bed.add_card(NLB0)
    bed.record_ports()
    return address


def hook_calls(plugin: Plugin, outcome: str) -> float | None:
    name = "accelbind_hook_calls_total"
    return plugin.process.registry.get_sample_value(name, {"outcome": outcome})


@pytest.mark.usefixtures("card")
async def test_a_container_is_let_on_once_its_function_was_programmed(
    bed: Bed, driver: DriverStandIn, runtime: Runtime
) -> None:
    bed.install(NLB3)
    async with hooked(bed) as plugin:
        await bed.wants("p", NLB3)
        assert driver.done == []  # PreStartContainer leaves that to the hook
        assert await runtime.start("uid-of-p") == (0, "")
        assert [each.what for each in driver.done] == ["programmed", "reset"]
        # The pod's spec counts, and not what a container says of itself.
        own = (f"FPGA_REGION_1={A10_INTERFACE}", f"FPGA_AFU_1={NLB0}")
        assert await runtime.start("uid-of-p", env=own) == (0, "")
        assert [each.what for each in driver.done] == ["programmed", "reset", "reset"]
        assert hook_calls(plugin, "allowed") == 2
        path = bed.folder / "state" / "hook.sock"
        assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("card", "driver")
@pytest.mark.parametrize("written", [True, False])
async def test_the_allocation_names_the_device_by_cdi_alone(bed: Bed, written: bool) -> None:
    """A runtime that knows no CDI calls no hook, and so must make no device nodes either."""
    cdi = bed.folder / "cdi"
    if not written:
        cdi.touch()
    async with hooked(bed, scan_interval=600.0):
        state = await bed.wants("p", NLB0)
        assert state["c"].running is written
        if not written:  # neither the nodes nor the hook could be found
            assert "accelbind-fpga.json doesn't describe dfl-fme.0, so" in bed.said
            cdi.unlink()
            await bed.runs(state)
        granted = state["c"].granted
        assert list(granted.devices) == []
        assert list(granted.cdi_devices) == ["intel.cdi.k8s.io/fpga=dfl-fme.0"]
        file = cdi / "accelbind-fpga.json"
        (described,) = json.loads(file.read_text())["devices"]
        edits = described["containerEdits"]
        assert [each["path"] for each in edits["deviceNodes"]] == ["/dev/dfl-port.0"]
        assert [each["path"] for each in edits["hooks"]] == [str(bed.folder / "hook")]
        file.unlink()
        await bed.restart(state)
        assert file.exists(), "no scan has written it"


@pytest.mark.usefixtures("driver")
async def test_a_container_that_was_allocated_plain_nodes_before_is_refused_until_it_is_deleted(
    bed: Bed, card: str
) -> None:
    """The kubelet starts it with these nodes, and without the hook, whatever is in the port."""
    events: list[EventRecord] = []
    bed.install(NLB0)
    async with bed.running(PluginMode.REGION, events=events):
        before = await bed.wants("p", NLB0)
        assert before["c"].started == 1
    bed.rack.set_afu(card, NLB3)
    async with hooked(bed, events=events) as plugin:
        await bed.offers(1, REGION)
        await bed.kubelet.restart_container(before, "c")
        assert not before["c"].running
        assert f"the kubelet gives it {bed.folder}/root/dev/dfl-port.0 without CDI" in bed.said
        assert "delete the pod" in bed.said
        missing = [each for each in events if each.warning]
        assert {(each.reason, each.object.kind, each.object.name) for each in missing} == {
            ("HookMissing", "Pod", "p")
        }
        assert hook_calls(plugin, "missing")
        await bed.kubelet.delete_pod(before)
        assert (await bed.wants("after", NLB0))["c"].running


async def test_a_refusal_is_on_stderr(
    bed: Bed, driver: DriverStandIn, runtime: Runtime, card: str
) -> None:
    async with hooked(bed) as plugin:
        await bed.wants("p", NLB3)

        async def refusal(uid: str) -> str:
            code, reason = await runtime.start(uid)
            assert code == 1
            return reason

        assert f"accelbind-hook: no bitstream for AFU {NLB3}" in await refusal("uid-of-p")
        bed.pods.mapped = EMPTY_INDEX
        unmapped = "no AcceleratorFunction of mode region in namespace ns maps that"
        assert unmapped in await refusal("uid-of-p")
        foreign = "dfl-fme.0, which the kubelet has not allocated to it"
        assert foreign in await refusal("uid-of-another")
        bed.pods.mapped = mapping_both_functions()
        said = runtime.arguments()
        bed.rack.remove_card(card)  # or a plugin that can't tell yet what is in it
        await eventually_async(lambda: not serving(plugin).node.state.ledger.offer.resources)
        runtime.configure("uid-of-p")
        code, reason = await asyncio.to_thread(runtime.run, runtime.state(), *said)
        assert (code, "region dfl-fme.0 is gone" in reason) == (1, True)
        assert driver.done == []


def test_a_plugin_that_never_answers_is_waited_for_only_so_long(
    runtime: Runtime, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "from accelbind import hook; hook.SECONDS = 1; hook.main()"
    monkeypatch.setattr(Runtime, "COMMAND", (sys.executable, "-c", code))
    runtime.configure("uid")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(short_dir / "s"))
        silent.listen()
        ended, reason = runtime.run(runtime.state(), str(short_dir / "s"), "dfl-fme.0")
    assert (ended, "no decision within 1 s" in reason) == (1, True)


UNREADABLE = "or the config.json of its bundle, can't be read"


@pytest.mark.parametrize(
    ("state", "config", "arguments", "said"),
    [
        (None, None, ("none.sock", "dfl-fme.0"), "can't be asked (none.sock: No such file"),
        (None, None, ("socket",), "accelbind-hook: usage: "),
        ("", "{}", ("socket", "dfl-fme.0"), UNREADABLE),
        ('{"bundle": "/nowhere"}', "{}", ("socket", "dfl-fme.0"), UNREADABLE),
        (None, "[]", ("socket", "dfl-fme.0"), UNREADABLE),
        (None, '{"annotations": 3}', ("socket", "dfl-fme.0"), UNREADABLE),
    ],
)
def test_a_hook_that_cannot_ask_refuses_in_one_line(
    runtime: Runtime, state: str | None, config: str | None, arguments: tuple[str, ...], said: str
) -> None:
    runtime.configure("uid")
    if config is not None:
        (runtime.bundle / "config.json").write_text(config)
    code, reason = runtime.run(runtime.state() if state is None else state, *arguments)
    assert (code, reason.count("\n")) == (1, 1)
    assert said in reason
