"""A cluster of one node in a kernel of the bed: API server and kubelet are stand-ins."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from plugin.mode import ANNOTATION
from services.node.table import Row, Table
from simulator.bitstreams import make_gbs
from simulator.cards import A10_INTERFACE, NLB0, NLB3
from simulator.client import Json
from simulator.driver import raw_bitstream
from simulator.kubelet.reports import GIVEN_ANNOTATION
from tests.kernel.bed import Bed, Done
from tests.plugin.dra.support import claim, config, result
from tests.plugin.support import REGION, container, functions, pod
from tests.services.building import function, region
from tests.support import eventually

NODE: Final = (
    *("--kubelet-dir", "/run/k", "--pod-logs-dir", "/run/k/pod-logs", "--state-dir", "/run/state"),
)
SECONDS: Final = 60.0
_SOCKET: Final = "/run/bed/api/api.sock"
_API: Final = f"unix:{_SOCKET}"
_PROCESS: Final = (
    *("--api-server", _API, "--node-name", "n1", "--bitstreams", "/run/bitstreams"),
    *("--metrics-host", "127.0.0.1", "--healthy-after", "1"),
)
_CLAIMS: Final = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims"
_SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
_PODS: Final = "/api/v1/namespaces/ns/pods"
_MAPPINGS: Final = "/apis/fpga.intel.com/v2/namespaces/ns"


class Cluster:
    """The cluster, with mappings and bitstreams of both functions; `process` serves its node."""

    process = 0

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self._claims: dict[str, Json] = {}
        self._calls: dict[str, int] = {}
        """The processes that have a claim prepared."""
        bed.call("shell", "mkdir -p /run/k/plugins_registry")
        bed.call("start", "apiserver", "--dir", "/run/bed/api")
        bed.call("wait_for_path", _SOCKET)
        ready = ("--api-server", _API, "--ready-file", "/run/bed/kubelet.ready")
        quick = ("--dir", "/run/k", "--node-name", "n1", "--retry-seconds", "1")
        self.kubelet: int = bed.call("start", "kubelet", *quick, *ready)
        bed.call("wait_for_path", "/run/bed/kubelet.ready")
        self.ask("POST", "/api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": "ns"}})
        self.ask("POST", f"{_MAPPINGS}/fpgaregions", region("any"))
        for name, afu in (("nlb0", NLB0), ("nlb3", NLB3)):
            mapping = function(name, "region", afu=afu)
            self.ask("POST", f"{_MAPPINGS}/acceleratorfunctions", mapping)
            file = f"/run/{name}.gbs"
            bed.call("create", file, make_gbs(A10_INTERFACE, afu, raw_bitstream(afu)))
            bed.accelbind("bitstream", "install", file, "--bitstreams", "/run/bitstreams")

    def ask(self, method: str, path: str, body: Json | None = None) -> Json:
        """The answer of the API server."""
        answer: Json = self.bed.call("ask", _API, method, path, body)
        return answer

    def annotate(self, mode: str | None) -> None:
        """Set the node's annotation for the mode, or remove it."""
        self.ask("PATCH", "/api/v1/nodes/n1", {"metadata": {"annotations": {ANNOTATION: mode}}})

    @contextlib.contextmanager
    def serving(self, *flags: str) -> Iterator[None]:
        """Have the plugin or the DRA driver serve the node; pods and claims go before it ends."""
        self.start(*flags)
        try:
            yield
        finally:
            for each in self.pods():
                self.delete(each)
            for each in [*self._claims]:
                self.release(each)
            code = self.bed.call("end", self.process)
        assert code == 0, self.log()

    def start(self, *flags: str) -> None:
        """Start the process that serves the node; a DRA driver is registered."""
        self.process = self.bed.call("start", "plugin", *NODE, *_PROCESS, *flags)
        if "dra" in flags:
            done = self.bed.accelbind("driver", "register")
            assert done.code == 0, done.stdout

    def log(self, command: str = "plugin") -> str:
        """What a process has written."""
        text: str = self.bed.call("read", f"/run/bed/{command}.log")
        return text

    def command(self, *arguments: str) -> Done:
        """A command that has the node's folders."""
        return self.bed.accelbind(*arguments[:2], *NODE, *arguments[2:])

    def offered(self) -> list[Row]:
        """The devices that the plugin or driver offers."""
        table: Table = self.bed.call("table")
        return [each for each in table.devices if each.resource]

    def device(self, node: str) -> tuple[str, str]:
        """The device with a node, and its PCI address: either may have another number."""
        (found,) = (each for each in self.offered() if node in each.nodes)
        return found.device, found.pci_addresses[0]

    def resources(self) -> dict[str, str]:
        """The resource of each device."""
        return {each.device: each.resource for each in self.offered()}

    def devices(self) -> dict[str, list[str]]:
        """The reasons of each device to be unhealthy."""
        return {each.device: [one.code for one in each.reasons] for each in self.offered()}

    def offers(self, *devices: str, **unhealthy: str) -> None:
        """Wait until these devices are offered as healthy, and others for a reason as not."""
        wanted = {key: list[str]() for key in devices}
        wanted |= {key: [reason] for key, reason in unhealthy.items()}

        def found() -> bool:
            assert (now := self.devices()) == wanted, now
            return True

        eventually(found, SECONDS)

    def allocatable(self, resource: str, count: int) -> None:
        """Wait until the node has so many devices of a resource to give."""

        def found() -> bool:
            status = self.ask("GET", "/api/v1/nodes/n1")["status"]
            return int(status["allocatable"].get(resource, 0)) == count

        eventually(found, SECONDS, what=f"{count} of {resource}")

    def create(self, name: str, *containers: Json, **spec: Any) -> None:
        """Create a pod, which is scheduled."""
        made = pod(name, *containers)
        made["spec"] = {key: made["spec"][key] for key in ("containers",)} | spec
        self.ask("POST", _PODS, made)

    def wants(self, name: str, *afus: str) -> None:
        """Create a pod with a container for each function, `c0` and so on."""
        self.create(
            name, *(container(f"c{n}", REGION, 1, functions(afu)) for n, afu in enumerate(afus))
        )

    def claim(self, name: str, mapping: str) -> None:
        """Have a claim of a free device prepared, in which a mapping's function is to be."""
        results = [
            one["device"]
            for each in self._claims.values()
            for one in each["status"]["allocation"]["devices"]["results"]
        ]
        device = min(self.published().difference(results))
        wanted = config({"mapping": mapping}, "FromClaim", "fpga")
        made = self.ask("POST", _CLAIMS, claim(name, result(device), configs=(wanted,)))
        self._claims[name] = made
        self._calls[name] = self.bed.call("start", "driver", "prepare", json.dumps(made))

    def prepared(self, name: str) -> str:
        """Wait until a claim is prepared; the node of its device."""
        uid = self._claims[name]["metadata"]["uid"]
        said = f"{uid} is prepared"
        eventually(lambda: said in self.log("driver"), SECONDS, what=said)
        file = self.bed.call("read", f"/run/cdi/accelbind-claim-{uid}.json")
        (device,) = json.loads(file)["devices"]
        (node,) = device["containerEdits"]["deviceNodes"]
        return str(node.get("hostPath", node["path"]))

    def release(self, name: str) -> None:
        """Have a claim unprepared, and delete it."""
        self.bed.call("end", self._calls.pop(name))
        text = json.dumps(self._claims.pop(name))
        assert self.bed.accelbind("driver", "unprepare", text).code == 0
        self.ask("DELETE", f"{_CLAIMS}/{name}")

    def runs(self, name: str) -> dict[str, set[str]]:
        """Wait until a pod runs; the nodes of each of its containers."""

        def nodes() -> Mapping[str, set[str]] | None:
            found = self.ask("GET", f"{_PODS}/{name}")
            states = found["status"].get("containerStatuses") or []
            if not states or not all("running" in each["state"] for each in states):
                return None
            given = json.loads(found["metadata"]["annotations"][GIVEN_ANNOTATION])
            return {key: {each["hostPath"] for each in given[key]["devices"]} for key in given}

        try:
            return dict(eventually(nodes, SECONDS))
        except AssertionError as error:
            raise AssertionError(self.why(name)) from error

    def why(self, name: str) -> str:
        """Why a pod does not run."""
        events = self.ask("GET", "/api/v1/namespaces/ns/events")["items"]
        about = [each["message"] for each in events if each["involvedObject"]["name"] == name]
        return json.dumps([self.ask("GET", f"{_PODS}/{name}")["status"], about])

    def waits(self, name: str, words: str) -> None:
        """Wait until a pod waits, and says so."""
        eventually(lambda: words in self.why(name), SECONDS, what=f"{words}: {self.why(name)}")

    def pods(self) -> list[str]:
        """The names of all pods."""
        return [each["metadata"]["name"] for each in self.ask("GET", _PODS)["items"]]

    def delete(self, name: str) -> None:
        """Delete a pod, and wait until it has ended."""
        self.ask("DELETE", f"{_PODS}/{name}")
        eventually(lambda: name not in self.pods(), SECONDS, what=f"the end of {name}")

    def published(self) -> set[str]:
        """The devices in slices that have no taint."""
        items = self.ask("GET", _SLICES)["items"]
        devices = [each for item in items for each in item["spec"].get("devices") or []]
        return {each["name"] for each in devices if not each.get("taints")}
