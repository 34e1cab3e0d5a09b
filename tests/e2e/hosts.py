"""The suite as processes of this machine, which is a node: certificates, webhook, plugin, cards.

They are started as `accelbind …`, with the manifests' webhook configurations, which here name a URL
and select nothing but the run's namespaces. The serving Secret is followed into a folder, as the
kubelet does for a pod that mounts it.
"""

import base64
import contextlib
import ipaddress
import os
import shutil
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from services.kubelet.sockets import registration_socket
from services.names import DOMAIN, UNIT_RESOURCE, function_name, region_name
from services.process.errors import ClusterError
from simulator.bitstreams import make_gbs
from simulator.cards import A10_INTERFACE, NLB0, CardSpec, Rack
from simulator.driver import raw_bitstream
from tests.e2e.api import Json, Place, Refused, accelbind, until
from tests.e2e.cluster import (
    CONFIGURATIONS,
    MODE_ANNOTATION,
    NODES,
    CantRun,
    Cluster,
    documents,
    ready,
)
from tests.e2e.pods import simple
from tests.support import Process, Processes, python_module

CARDS = 4
UNITS = 3
SECRETS = ("accelbind-ca", "accelbind-webhook-tls")
PAIR = ("tls.crt", "tls.key")
START_SECONDS = 60.0
CALL_SECONDS = 40.0
GONE_SECONDS = 30.0
"""Until a node's status has followed a plugin that ended."""
EVERYWHERE = "::"
NEAR = ("/var/lib", "/opt", "/srv", "/root", "/run")
"""Where cards are laid out unless ROOT says so: the container runtime has to see it, which may have
a /tmp of its own, and device nodes must be usable there, which they aren't in most nodes' /run."""
GUARDED = "nvidia.com/*"
"""As in the component `guard`."""
CLAIMS_GUARDED = "deviceclass.resource.kubernetes.io/*,ResourceClaimTemplate/*,ResourceClaim/*"
"""As in the component `guard-claims`."""
SETTLE = "2s"
"""API servers hear of a bundle within milliseconds."""

FUNCTION = f"{DOMAIN}/{function_name(A10_INTERFACE, NLB0)}"
REGION = f"{DOMAIN}/{region_name(A10_INTERFACE)}"
OFFERS = {
    "af": {FUNCTION: CARDS},
    "region": {REGION: CARDS},
    "regiondevel": {REGION: CARDS},
    "units": {UNIT_RESOURCE: UNITS},
    "bdf": {UNIT_RESOURCE: CARDS},
}
"""What a node offers in each mode, with the cards that are laid out."""


def check_host(cluster: Cluster) -> None:
    """See that processes of this machine can be the suite of its node."""
    settings = cluster.settings
    endpoint = registration_socket(settings.kubelet_dir)
    if not os.access(endpoint, os.W_OK) or not os.access(endpoint.parent, os.W_OK):
        raise CantRun(
            f"no kubelet runs here, or user {os.geteuid()} may not register at {endpoint}."
            " HOST_PROCESSES=1 runs as root on a node of the cluster; KUBELET_DIR is the folder of"
            " its kubelet"
        )
    node = cluster.api.get(NODES, cluster.node)
    if not ready(node):
        raise CantRun(f"node {cluster.node} takes no pods: it is not ready, or it is cordoned")
    mode = node["metadata"].get("annotations", {}).get(MODE_ANNOTATION)
    if mode:
        raise CantRun(
            f"node {cluster.node} has the annotation {MODE_ANNOTATION}={mode}, which overrides"
            " the modes under test: remove it, or name another node"
        )
    names = {name for offer in OFFERS.values() for name in offer}

    def free() -> None:
        """A plugin that ended a moment ago is still told of."""
        taken = sorted(cluster.allocatable().keys() & names)
        assert not taken, ", ".join(taken)

    try:
        until(free, seconds=GONE_SECONDS, what=f"nobody to offer what is tried on {cluster.node}")
    except AssertionError as error:
        raise CantRun(
            f"{error}. Their plugin would be replaced: stop it, or test what is deployed"
            " without HOST_PROCESSES=1"
        ) from error
    cluster.of_others = frozenset(cluster.allocatable())


def takes_devices(folder: str | Path) -> bool:
    """Whether a folder is ours to write to, with a file system whose device nodes can be opened."""
    writable = Path(folder).is_dir() and os.access(folder, os.W_OK)
    return writable and not os.statvfs(folder).f_flag & os.ST_NODEV


def lay_out(folder: Path, *, character_devices: bool) -> Rack:
    """Make two cards under each driver; regular files for nodes suffice for a stand-in."""
    if character_devices and not takes_devices(folder):
        raise CantRun(
            f"device nodes in {folder} can't be opened: its file system is mounted with nodev."
            " ROOT=… names a folder on another one, such as /var/lib/e2e"
        )
    try:
        rack = Rack(folder, devices=character_devices)
        for number in range(CARDS):
            rack.add_card(CardSpec(driver=("opae", "dfl")[number % 2], afu_ids=(NLB0,)))
    except OSError as error:
        raise CantRun(
            f"the cards' character devices can't be created in {folder}: {error.strerror}. That"
            " needs root (CAP_MKNOD) and a file system that has them; ROOT=… names another folder"
        ) from error
    return rack


def local_address(server: str) -> str:
    """The address from which this machine reaches the API server."""
    url = urlsplit(server)
    port = url.port or 443
    family, *_, address = socket.getaddrinfo(url.hostname, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)  # nothing is sent
        found: str = probe.getsockname()[0]
    return found


def listening_address(host: str) -> str:
    """The same if it is an address of this machine, otherwise all of them."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.bind((str(ipaddress.ip_address(host)), 0))
    except (ValueError, OSError):
        return EVERYWHERE
    return host


@dataclass(slots=True)
class Hosts:
    """What runs on this machine for a run."""

    cluster: Cluster
    namespace: str
    folder: Path
    root: Path
    rack: Rack
    processes: Processes
    host: str
    port: int = 0
    running: dict[str, Process] = field(default_factory=dict)
    mode: str = ""
    plugin_port: int = 0

    # Certificates and webhook

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{host}:{self.port}"

    @property
    def certificates(self) -> tuple[str, ...]:
        return (
            *("--api-server", self.cluster.settings.api_server),
            *("--namespace", self.namespace, "--webhook-config", self.cluster.name()),
            *("--name", self.host),
        )

    def start_webhook(self) -> None:
        """Start the webhook, at the same port as before if it ran already."""
        ports = self.folder / "webhook.json"
        ports.unlink(missing_ok=True)
        tls = self.folder / "tls"
        process = self.processes.accelbind(
            *("webhook", "--host", listening_address(self.host), "--port", str(self.port)),
            *("--tls-cert", tls / "tls.crt", "--tls-key", tls / "tls.key", "--ports-file", ports),
            *("--metrics-port", "0", "--api-server", self.cluster.settings.api_server),
            *("--guard", GUARDED, "--guard", CLAIMS_GUARDED),
        )
        self.running["webhook"] = process
        self.port = process.ports(ports, timeout=START_SECONDS)["admission"]

    def start_certificates(self) -> None:
        """Start the process that makes and keeps them, in the run's Secrets."""
        for name in SECRETS:
            metadata = {"name": name, "namespace": self.namespace}
            self.cluster.api.create(
                {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"}
            )
        self.running["certs"] = self.processes.accelbind(
            *("certs", "run", *self.certificates, "--settle", SETTLE),
            *("--interval", "1s", "--metrics-host", "127.0.0.1", "--metrics-port", "0"),
        )

    def configure(self) -> None:
        """Tell the API server of the webhook; the certificates' process adds the bundle."""
        guards = documents("components/guard/webhook.yaml", "components/guard-claims/webhook.yaml")
        for item in documents("base/webhook-mutating.yaml", "base/webhook-validating.yaml"):
            if item["kind"] == CONFIGURATIONS[1]:
                item["webhooks"] += [guard["value"] for (guard,) in guards]
            item["metadata"] |= {"name": self.cluster.name(), "labels": self.cluster.labels}
            for hook in item["webhooks"]:
                path = hook["clientConfig"]["service"]["path"]
                hook["clientConfig"] = {"url": self.url + path}
                labels = hook["namespaceSelector"].get("matchLabels", {})
                hook["namespaceSelector"] = {"matchLabels": labels | self.cluster.labels}
            self.cluster.put(item)

    def bundles(self) -> set[str]:
        """The CA bundles in the run's configurations; one if all are of one mind."""
        found = set()
        for kind in CONFIGURATIONS:
            place = Place("admissionregistration.k8s.io/v1", kind)
            for hook in self.cluster.api.get(place, self.cluster.name())["webhooks"]:
                found.add(hook["clientConfig"].get("caBundle") or "")
        return found

    def served(self) -> str:
        here = listening_address(self.host)
        place = ("localhost" if here == EVERYWHERE else here, self.port)
        return ssl.get_server_certificate(place, timeout=10)

    def until_bundled(self) -> str:
        def look() -> str:
            found = self.bundles()
            if len(found) != 1 or "" in found:
                raise AssertionError(f"{len(found)} different bundles\n{self.told('certs')}")
            return found.pop()

        return until(look, seconds=START_SECONDS, what="the CA bundle in the configurations")

    def until_called(self) -> None:
        """Wait until the API server calls the webhook: it refuses a name that nobody maps."""
        item = simple("called", {f"{DOMAIN}/mapped-nowhere": 1})
        item["metadata"]["namespace"] = self.namespace

        def look() -> None:
            answer = "admitted"
            try:
                self.cluster.api.create(item, dry_run=True)
            except Refused as error:
                answer = error.text
            if "mapped-nowhere does not exist" not in answer:
                raise AssertionError(f"the webhook is not asked about pods: {answer}")

        seconds = min(self.cluster.settings.patience, CALL_SECONDS)
        try:
            until(look, seconds=seconds, what="the API server to call the webhook")
        except AssertionError as error:
            raise CantRun(
                f"{error}. The webhook runs here and listens at {listening_address(self.host)},"
                f" port {self.port}, and the API server calls {self.url}: WEBHOOK_HOST=… names"
                " an address of this machine that it can reach; a firewall must allow it"
            ) from error

    # Plugin

    def serve(self, mode: str) -> None:
        """Have the plugin serve in a mode, and wait until the node offers all that it should."""
        if self.mode != mode:
            before = OFFERS.get(self.mode)
            self.stop_plugin()
            if before == OFFERS[mode]:
                # A kubelet tells of its devices every ten seconds: until then the node still shows
                # the offer of before, and a pod that comes meanwhile is refused for good.
                self.cluster.until_offered({}, "the end of what was offered before")
            self.start_plugin(mode)
        self.cluster.until_offered(OFFERS[mode], f"the plugin's offer in mode {mode}")

    def start_plugin(self, mode: str, *flags: str) -> None:
        self.put_functions_back()
        of_mode = ("--mode", mode, "--units", str(UNITS))
        self.plugin_port = self.start_on_node("plugin", *of_mode, *flags)
        self.mode = mode

    def start_on_node(self, name: str, *flags: str | Path) -> int:
        """Start what serves the node's devices; return the port of its metrics."""
        ports = self.folder / f"{name}.json"
        ports.unlink(missing_ok=True)
        process = self.running[name] = self.processes.simulated_plugin(
            *self.files,
            *("--state-dir", self.folder / "state", "--bitstreams", self.folder / "bitstreams"),
            *("--api-server", self.cluster.settings.api_server, "--node-name", self.cluster.node),
            *("--scan-interval", "1", "--ports-file", ports),
            *("--metrics-host", "0.0.0.0", "--metrics-port", "0"),  # noqa: S104 - as in a pod
            *flags,
            name=name,
        )
        return process.ports(ports, timeout=START_SECONDS)["metrics"]

    @property
    def files(self) -> tuple[str, ...]:
        """Flags that name the node's devices and pods."""
        settings = self.cluster.settings
        return (
            *("--root", str(self.root), "--kubelet-dir", str(settings.kubelet_dir)),
            *("--pod-logs-dir", str(settings.pod_logs_dir)),
        )

    def stop_plugin(self) -> None:
        plugin = self.running.pop("plugin", None)
        self.mode = ""
        if plugin is not None and plugin.running:
            plugin.terminate()

    def leave(self) -> None:
        """End the plugin, and wait until the node offers nothing of it any more."""
        self.stop_plugin()
        try:
            self.cluster.until_offered({}, "the end of what the plugin offered", GONE_SECONDS)
        except AssertionError as error:
            self.cluster.notes.append(str(error))

    def functions(self) -> list[str]:
        return sorted(path.read_text().strip() for path in self.root.glob("sys/**/*port.*/afu_id"))

    def put_functions_back(self) -> None:
        """Have all ports carry what they carried at first."""
        for address in self.rack.addresses:
            self.rack.set_afu(address, NLB0)

    def install(self, afu_id: str) -> None:
        """Put the bitstream of a function where the plugin looks for it."""
        file = self.folder / "new.gbs"
        file.write_bytes(make_gbs(A10_INTERFACE, afu_id, raw_bitstream(afu_id)))
        accelbind("bitstream", "install", str(file), "--bitstreams", f"{self.folder}/bitstreams")

    def uninstall(self, afu_id: str) -> None:
        (self.folder / "bitstreams" / A10_INTERFACE / f"{afu_id}.gbs").unlink()

    # Anything

    def told(self, name: str) -> str:
        """The end of a process's log."""
        process = self.running.get(name)
        if process is None:
            return f"{name} doesn't run"
        text = "\n".join(process.stderr.splitlines()[-12:])
        state = "runs" if process.running else f"has ended with {process.popen.returncode}"
        return f"--- {name} {state}\n{text}"


@contextlib.contextmanager
def mounted(cluster: Cluster, namespace: str, folder: Path) -> Iterator[Path]:
    """Follow the serving Secret into a folder, as the kubelet does for a pod that mounts it."""
    ended = threading.Event()
    place = Place("v1", "Secret", namespace)
    folder.mkdir()
    for name in PAIR:
        (folder / name).symlink_to(f"..data/{name}")

    def follow() -> None:
        written: Json = {}
        while not ended.wait(0.3):
            with contextlib.suppress(ClusterError, OSError):
                data = cluster.api.get(place, SECRETS[1]).get("data") or {}
                if data != written and all(data.get(name) for name in PAIR):
                    _swap(folder, data)
                    written = data

    thread = threading.Thread(target=follow, name="mount", daemon=True)
    thread.start()
    try:
        yield folder
    finally:
        ended.set()
        thread.join(30)


def _swap(folder: Path, data: Json) -> None:
    """Put a version of a Secret in the place of the one before, in one step."""
    version = Path(tempfile.mkdtemp(prefix="..", dir=folder))
    for name in PAIR:
        (version / name).write_bytes(base64.b64decode(data[name]))
    link = folder / f"..link-{time.monotonic_ns()}"
    link.symlink_to(version.name)
    link.replace(folder / "..data")


@contextlib.contextmanager
def folders(settings_root: Path | None) -> Iterator[tuple[Path, Path]]:
    """A folder for the processes' files, and one for the cards."""
    work = Path(tempfile.mkdtemp(prefix="accelbind-e2e-"))
    made: list[Path] = [work]
    try:
        if settings_root is not None and not settings_root.exists():
            settings_root.mkdir(parents=True)
            made.append(settings_root)
        near = settings_root or next(filter(takes_devices, NEAR), None)
        root = Path(tempfile.mkdtemp(prefix="accelbind-e2e-", dir=near))
        made.append(root)
        yield work, root
    finally:
        for each in reversed(made):
            shutil.rmtree(each, ignore_errors=True)


@contextlib.contextmanager
def as_it_was(kubelet_dir: Path) -> Iterator[None]:
    """Set aside what an earlier plugin recorded beside the kubelet's sockets, and put it back.

    After a record that mode regiondevel was served, every port would be reprogrammed.
    """
    folder = kubelet_dir / "device-plugins"
    with tempfile.TemporaryDirectory(prefix="accelbind-e2e-", dir=kubelet_dir) as kept:
        records, before = folder / "accelbind", Path(kept, "accelbind")
        if records.is_dir():
            records.rename(before)
        sockets = set(folder.glob("accelbind*"))
        try:
            yield
        finally:
            for path in set(folder.glob("accelbind*")) - sockets:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            if before.is_dir():
                before.rename(records)


@contextlib.contextmanager
def hosts_of(cluster: Cluster, namespace: str) -> Iterator[Hosts]:
    """Start the suite for a run, and end it."""
    with folders(cluster.settings.root) as (work, root), contextlib.ExitStack() as stack:
        stack.enter_context(as_it_was(cluster.settings.kubelet_dir))
        rack = lay_out(root, character_devices=cluster.is_real)
        host = cluster.settings.webhook_host or local_address(cluster.api.server)
        processes = Processes(work)
        hosts = Hosts(cluster, namespace, work, root, rack, processes, host)
        stack.callback(lambda: list(processes.close()))
        stack.callback(hosts.leave)
        # In the place of the cards' driver: the kernel has none for them.
        driver = processes.start(python_module("simulator.driver", "--root", root), name="driver")
        driver.wait_for_output("ready")
        hosts.running["driver"] = driver
        hosts.start_certificates()
        tls = stack.enter_context(mounted(cluster, namespace, work / "tls"))
        hosts.start_plugin("af")

        def issued() -> None:
            if not (tls / "tls.crt").exists():
                raise AssertionError(hosts.told("certs"))

        until(issued, seconds=START_SECONDS, what="the webhook's certificate")
        hosts.start_webhook()
        hosts.configure()
        hosts.until_bundled()
        hosts.until_called()
        yield hosts
