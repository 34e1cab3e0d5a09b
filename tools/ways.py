"""Count the modules that a way through the product enters, as orientation: `python -m tools.ways`.

Each process runs in a child that notes the module of every function that is called, except while
modules are imported. The stand-ins for API server, kubelet and drivers run in this process and
don't count. Nor do `services.process`, which every module uses, generated stubs, and what loops
beside the way do meanwhile, such as checking the kubelet's folder (`BESIDE`).
"""

import asyncio
import contextlib
import inspect
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

from services.bitstreams.storage import BitstreamStorage
from simulator.apiserver.standin import ApiServerStandIn
from simulator.bitstreams import make_gbs
from simulator.card_faults import Fault
from simulator.cards import A10_INTERFACE, NLB3, CardSpec, Rack
from simulator.driver import DriverStandIn, raw_bitstream
from simulator.kubelet.standin import KubeletStandIn
from simulator.polling import poll_until

PRODUCT: Final = ("accelbind.", "certs.", "plugin.", "services.", "webhook.")
HELPERS: Final = ("services.process.",)
GENERATED: Final = ("_pb2", "_pb2_grpc")
BESIDE: Final = (
    *("kubelet", "node", "holders", "repairs", "cdi", "mode", "state", "folders", "mappings"),
    *("readiness", "sensors"),
)
"""The first words of the names of tasks and threads that are on no way here: a scrape has samples
of sensors beside the reasons."""
SCANS: Final = "discovery"
"""The task that reads the node, also after each start."""
REGION: Final = f"fpga.intel.com/region-{A10_INTERFACE}"
FILES: Final = "kubelet files"
"""A thread that starts use too."""
WAIT_SECONDS: Final = 60.0
SETTLE_SECONDS: Final = 1.0
"""For what follows a change, such as an Event, or a start, to be done."""


def child(main: str, out: str, *arguments: str) -> int:
    """Run a command and note the modules that it enters; SIGUSR1 forgets them, SIGUSR2 writes."""
    entered: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if event != "call" or not name.startswith(PRODUCT):
            return
        is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED
        if is_function and not runner().startswith(BESIDE) and not is_importing(frame):
            entered.add((name, runner()))

    def write(*_: object) -> None:
        own = [each for each in entered if not each[0].startswith(HELPERS)]
        lines = [f"{name}\t{task}" for name, task in own if not name.endswith(GENERATED)]
        Path(f"{out}.new").write_text("\n".join(lines))
        Path(f"{out}.new").rename(out)

    signal.signal(signal.SIGUSR1, lambda *_: entered.clear())
    signal.signal(signal.SIGUSR2, write)
    if main == "plugin":
        from simulator.command import main as run  # noqa: PLC0415 - not in every child

        arguments = ("plugin", *arguments)
    else:
        from accelbind.cli import main as run  # noqa: PLC0415 - the same
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        return run(list(arguments))
    finally:
        write()


def runner() -> str:
    """The name of the task that runs, or of the thread where that is another one."""
    with contextlib.suppress(RuntimeError):
        if task := asyncio.current_task():
            return task.get_name()
    thread = threading.current_thread().name
    return "" if thread == FILES else thread


def is_importing(frame: FrameType) -> bool:
    """Whether a function is called by the body of a module that is being imported."""
    each: FrameType | None = frame
    while each is not None:
        if each.f_code.co_name == "<module>" and each.f_globals["__name__"] != "__main__":
            return True
        each = each.f_back
    return False


class Traced:
    """A child process whose modules are counted."""

    def __init__(self, folder: Path, main: str, *arguments: object) -> None:
        self._out = folder / f"modules-{main}"
        code = "import sys; from tools.ways import child; sys.exit(child(*sys.argv[1:]))"
        words = [sys.executable, "-c", code, main, self._out, *arguments]
        self._log = (folder / f"log-{main}").open("w")
        self.process = subprocess.Popen(
            [str(each) for each in words], stdout=self._log, stderr=self._log
        )

    def begin(self) -> None:
        """Forget what was entered."""
        self.process.send_signal(signal.SIGUSR1)
        time.sleep(0.1)

    def modules(self, beside: str = "") -> list[str]:
        """The modules that were entered since, but for those that only one task entered."""
        self._out.unlink(missing_ok=True)
        self.process.send_signal(signal.SIGUSR2)
        poll_until(self._out.exists, "what was entered")
        return self._modules(beside)

    def _modules(self, beside: str = "") -> list[str]:
        lines = [each.partition("\t") for each in self._out.read_text().splitlines()]
        return sorted({name for name, _, task in lines if task != beside})

    def end(self) -> list[str]:
        """End it; what was entered until then."""
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        self.process.wait(WAIT_SECONDS)
        self._log.close()
        return self._modules() if self._out.exists() else []


def mapping(name: str, afu: str = "") -> dict[str, Any]:
    """A mapping of mode region, of a function or its region."""
    spec = {"interfaceId": A10_INTERFACE}
    return {
        "apiVersion": "fpga.intel.com/v2",
        "kind": "AcceleratorFunction" if afu else "FpgaRegion",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": spec | {"afuId": afu, "mode": "region"} if afu else spec,
    }


def pod(resource: str, **env: str) -> dict[str, Any]:
    """A pod that asks for a resource; `env` are variables that the webhook writes."""
    amount = {resource: "1"}
    container = {
        "name": "c",
        "image": "i",
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "resources": {"limits": amount, "requests": amount},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ns", "uid": "uid-of-p"},
        "spec": {"nodeName": "n1", "containers": [container]},
    }


POD: Final = pod(REGION, FPGA_REGION_1=A10_INTERFACE, FPGA_AFU_1=NLB3)


def way_of_a_setting(folder: Path) -> list[str]:
    """From a flag to its value in the settings of the plugin."""
    process = Traced(folder, "accelbind", "plugin", "--scan-interval", "7s", "--print-config")
    process.process.wait(WAIT_SECONDS)
    return process.end()


def way_of_a_pod(folder: Path) -> list[str]:
    """From a review on the TLS port to its answer."""
    tls, maps, ports = folder / "tls", folder / "maps", folder / "webhook-ports"
    maps.mkdir()
    (maps / "m.yaml").write_text(json.dumps(mapping("nlb3", NLB3)))
    issue = [sys.executable, "-m", "accelbind", "certs", "issue", "--dir", tls, "--name"]
    subprocess.run([*map(str, issue), "localhost"], check=True, capture_output=True)
    pair = ("--tls-cert", tls / "tls.crt", "--tls-key", tls / "tls.key")
    here = ("--host", "127.0.0.1", "--port", "0", "--metrics-port", "0", "--ports-file", ports)
    process = Traced(folder, "accelbind", "webhook", *pair, "--mappings", maps, *here)
    try:
        poll_until(ports.exists, "the webhook")
        port = json.loads(ports.read_text())["admission"]
        request = {
            "uid": "u",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "operation": "CREATE",
            "namespace": "ns",
            "object": pod("fpga.intel.com/nlb3"),
        }
        review = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": request,
        }
        context = ssl.create_default_context(cafile=str(tls / "ca.crt"))
        time.sleep(SETTLE_SECONDS)  # the start ends after the ports are known
        process.begin()
        with urllib.request.urlopen(
            urllib.request.Request(
                f"https://localhost:{port}/mutate",
                json.dumps(review).encode(),
                {"Content-Type": "application/json"},
            ),
            context=context,
        ) as answer:
            if not json.load(answer)["response"]["allowed"]:
                raise RuntimeError("the pod was refused")
        return process.modules()
    finally:
        process.end()


@contextlib.asynccontextmanager
async def node(
    folder: Path, mode: str, scans: str
) -> AsyncIterator[tuple[Rack, KubeletStandIn, Traced]]:
    """A node with a card, and a plugin in a mode that offers it."""
    folder = folder / mode
    rack = Rack(folder / "root")
    rack.add_card(CardSpec())
    source = folder / "f.gbs"
    source.write_bytes(make_gbs(A10_INTERFACE, NLB3, raw_bitstream(NLB3)))
    BitstreamStorage(folder / "bitstreams").install(source, force=True)
    async with contextlib.AsyncExitStack() as stack:
        api = await stack.enter_async_context(ApiServerStandIn(folder))
        kubelet = await stack.enter_async_context(KubeletStandIn(folder / "k", node_name="n1"))
        stack.enter_context(DriverStandIn(rack.root))
        api.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {}})
        for each in (mapping("nlb3", NLB3), mapping("region"), POD):
            api.put(each)
        values = {
            "--mode": mode,
            "--root": rack.root,
            "--kubelet-dir": folder / "k",
            "--pod-logs-dir": folder / "k/pod-logs",
            "--node-name": "n1",
            "--api-server": api.address,
            "--bitstreams": folder / "bitstreams",
            "--state-dir": folder / "state",
            "--metrics-host": "127.0.0.1",
            "--metrics-port": 0,
            "--ports-file": folder / "ports",
            "--scan-interval": scans,
        }
        flags = [word for pair in values.items() for word in pair]
        process = Traced(folder, "plugin", *flags)
        try:
            await kubelet.until(lambda: sum(kubelet.allocatable.values()) == 1)
            await asyncio.sleep(SETTLE_SECONDS)
            process.begin()
            yield rack, kubelet, process
        finally:
            process.end()


async def ways_of_a_node(folder: Path) -> dict[str, list[str]]:
    """A card and a reason in mode af, a start in mode region."""
    entered = {}
    async with node(folder, "af", "0.2") as (rack, kubelet, process):
        rack.add_card(CardSpec())
        await kubelet.until(lambda: sum(kubelet.allocatable.values()) == 2)
        entered["a card to the stream"] = process.modules()
        process.begin()
        rack.break_(rack.addresses[0], Fault.AP1_EVENT)
        await kubelet.until(lambda: sum(kubelet.allocatable.values()) == 1)
        port = json.loads((folder / "af/ports").read_text())["metrics"]
        for path in ("metrics", "devices"):
            url = f"http://127.0.0.1:{port}/{path}"
            await asyncio.to_thread(urllib.request.urlopen, url)
        await asyncio.sleep(SETTLE_SECONDS)
        entered["a reason to metric, Event and people"] = process.modules()
    async with node(folder, "region", "1h") as (_, kubelet, process):
        state = await kubelet.settled(await kubelet.admit(POD))
        if not state["c"].running:
            raise RuntimeError("the container does not run")
        entered["a start in mode region"] = process.modules(beside=SCANS)
    return entered


def ways() -> Iterator[tuple[str, list[str]]]:
    with tempfile.TemporaryDirectory(prefix="ab-", dir=os.environ.get("TMPDIR")) as name:
        folder = Path(name)
        yield "a pod's answer", way_of_a_pod(folder)
        yield "a setting", way_of_a_setting(folder)
        yield from asyncio.run(ways_of_a_node(folder)).items()


def main() -> None:
    """Print the number of modules of each way, and which they are."""
    for way, modules in ways():
        print(f"{len(modules):3} {way}: {' '.join(modules)}")


if __name__ == "__main__":
    main()
