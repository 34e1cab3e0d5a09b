"""What a run has in the cluster: namespaces of its own, the node under test, the definitions.

All that is made carries the run's suffix in its name or namespace, and the label `LABEL`; `close`
takes it away again, whatever has happened.
"""

import secrets
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from services.mappings.kinds import TABLE
from services.names import DEVICE_DOMAIN, DOMAIN, UNIT_RESOURCE
from tests.e2e.api import Api, Json, Place, place_of, until
from tests.e2e.settings import Settings

LABEL = "accelbind.dev/e2e"
MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
CONFIGURATION = "accelbind"
REGISTRATION = "admissionregistration.k8s.io/v1"
CONFIGURATIONS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
MAPPINGS = tuple(TABLE.values())
GUARD_LABEL = "accelbind.dev/guard"
DEFINITION = "apiextensions.k8s.io/v1"
MODE_ANNOTATION = "fpga.intel.com/device-plugin-mode"
NODES = Place("v1", "Node")
LEAVE_SECONDS = 120.0
ACCOUNT_SECONDS = 20.0


class CantRun(Exception):
    """The suite can't run here as it was told; says what to do."""


def documents(*names: str) -> list[Any]:
    return [
        each
        for name in names
        for each in yaml.safe_load_all((MANIFESTS / name).read_text())
        if each
    ]


class Cluster:
    """A cluster and what this run has made in it."""

    def __init__(self, api: Api, settings: Settings) -> None:
        self.api = api
        self.settings = settings
        self.suffix = secrets.token_hex(3)
        self.notes: list[str] = []
        """What a reader of the summary should know."""
        self._undo: list[tuple[str, Callable[[], None]]] = []
        self.of_others: frozenset[str] = frozenset()
        """What the node offered before the run, and others serve."""
        self.node = find_node(api, settings)

    # Objects of the run

    @property
    def labels(self) -> dict[str, str]:
        """What namespaces and cluster-wide objects of the run are labelled with."""
        return {LABEL: self.suffix}

    @property
    def is_real(self) -> bool:
        """Whether the cluster is not the simulator."""
        return self.api.serves("v1", "serviceaccounts")

    def name(self, part: str = "") -> str:
        return f"accelbind-e2e-{self.suffix}" + (f"-{part}" if part else "")

    def on_close(self, what: str, undo: Callable[[], None]) -> None:
        """Have something done when the run ends, the last first."""
        self._undo.append((what, undo))

    def close(self) -> list[str]:
        """Take away what was made; give a sentence for each thing that couldn't be."""
        problems = []
        while self._undo:
            what, undo = self._undo.pop()
            try:
                undo()
            except Exception as error:  # noqa: BLE001 - the others must go too
                problems.append(f"{what}: {error}")
        return problems

    def namespace(self, part: str = "", **labels: str) -> str:
        name = self.name(part)
        labels = self.labels | {"pod-security.kubernetes.io/enforce": "baseline"} | labels
        place = Place("v1", "Namespace")
        self.on_close(f"namespace {name}", partial(self.remove, place, name))
        self.api.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        )
        if self.api.serves("v1", "serviceaccounts"):  # pods are refused until there is one
            place = Place("v1", "ServiceAccount", name)
            account = partial(self.api.get, place, "default")
            until(account, seconds=ACCOUNT_SECONDS, what=f"the service account of {name}")
            # A token's volume is no part of a pod that is admitted once more.
            self.api.patch(place, "default", {"automountServiceAccountToken": False})
        return name

    def put(self, item: Json) -> Json:
        """Create a cluster-wide object of the run, which goes with it."""
        place, name = place_of(item), item["metadata"]["name"]
        self.on_close(f"{item['kind']} {name}", lambda: self.remove(place, name))
        return self.api.create(item)

    def remove(self, place: Place, name: str, *, grace: int | None = None) -> None:
        until(
            lambda: self.api.delete(place, name, grace=grace),
            seconds=30,
            what=f"an answer to the deletion of {place.kind} {name}",
        )

        def gone() -> None:
            found = self.api.find(place, name)
            if found is not None:
                status = found.get("status", {})
                conditions = [each.get("message") for each in status.get("conditions") or []]
                raise AssertionError(f"it is there, phase {status.get('phase')}, {conditions}")

        until(gone, seconds=LEAVE_SECONDS, what=f"the end of {place.kind} {name}")

    # Definitions

    def define(self) -> None:
        """See that all kinds are defined.

        A definition that is there stays as it is. One that is made here goes with the run, unless
        somebody has made objects of it meanwhile.
        """
        for wanted in documents(*(f"crd/{each.plural}.yaml" for each in MAPPINGS)):
            name = wanted["metadata"]["name"]
            place = Place(DEFINITION, "CustomResourceDefinition")
            if self.api.find(place, name) is None:
                self.on_close(f"definition {name}", partial(self._undefine, wanted))
                wanted["metadata"]["labels"] = wanted["metadata"].get("labels", {}) | self.labels
                self.api.create(wanted)
            until(
                partial(self._until_established, place, name),
                seconds=60,
                what=f"definition {name} to be served",
            )

    def _until_established(self, place: Place, name: str) -> None:
        conditions = self.api.get(place, name).get("status", {}).get("conditions") or []
        states = {each["type"]: each["status"] for each in conditions}
        assert states.get("Established") == "True", str(states)

    def _undefine(self, definition: Json) -> None:
        kind, name = definition["spec"]["names"]["kind"], definition["metadata"]["name"]
        if self.api.list(Place(TABLE[kind].api_version, kind)):
            self.notes.append(
                f"definition {name} stays: it has objects that the suite did not create"
            )
            return
        self.remove(Place(DEFINITION, "CustomResourceDefinition"), name)

    # The node under test

    def allocatable(self) -> dict[str, int]:
        """What the node offers of ours, without what it offers none of."""
        node = self.api.get(NODES, self.node) if self.node else {}
        return offered(node)

    def until_offered(
        self, wanted: dict[str, int], what: str, seconds: float | None = None
    ) -> None:
        """Wait until the node offers so many of each, and nothing else of the run."""

        def look() -> None:
            every = self.allocatable()
            found = {name: count for name, count in every.items() if name not in self.of_others}
            assert found == wanted, f"{found or 'nothing'} on {self.node}"

        patience = self.settings.patience if seconds is None else seconds
        until(look, seconds=patience, what=f"{what}: {wanted or 'nothing'} on {self.node}")


def offered(node: Json) -> dict[str, int]:
    """What a node offers of ours, without what it offers none of."""
    found: dict[str, Any] = node.get("status", {}).get("allocatable") or {}
    return {
        name: int(count)
        for name, count in found.items()
        if name.startswith((f"{DOMAIN}/", f"{DEVICE_DOMAIN}/", UNIT_RESOURCE)) and int(count)
    }


def find_node(api: Api, settings: Settings) -> str:
    """The node under test; empty where what is deployed offers nothing anywhere."""
    nodes: dict[str, Json] = {each["metadata"]["name"]: each for each in api.list(NODES)}
    if settings.node_name:
        if settings.node_name not in nodes:
            raise CantRun(f"NODE_NAME={settings.node_name}: there are only {', '.join(nodes)}")
        return settings.node_name
    if not settings.host_processes:
        return next((name for name, node in nodes.items() if ready(node) and offered(node)), "")
    here = socket.gethostname().lower()
    for name, node in nodes.items():
        label = node["metadata"].get("labels", {}).get("kubernetes.io/hostname", "")
        if {here, here.partition(".")[0]} & {name, label, name.partition(".")[0]}:
            return name
    if len(nodes) == 1:
        return next(iter(nodes))
    raise CantRun(
        f"which of {', '.join(nodes) or 'no nodes'} is this machine ({here})? Set NODE_NAME=…"
    )


def ready(node: Json) -> bool:
    conditions = node.get("status", {}).get("conditions") or []
    is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return is_ready and not node.get("spec", {}).get("unschedulable")
