"""The settings of a process that looks after a node's cards.

A setting is one field: its flag, variable, help and documentation follow from it.
"""

import os
import re
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from services.containers.permission import Enforce
from services.devices.health import Ignored, parse_ignored
from services.devices.model import PluginMode
from services.devices.nodes import check_allowed
from services.devices.reasons import FLAGS, REGISTERS
from services.names import ACCELERATOR_DOMAIN, DEVICE_DOMAIN, DOMAIN, UNIT_RESOURCE
from services.node.table import Row, Table
from services.process.errors import InvalidSettings
from services.process.settings import (
    PROCESS,
    SERVICE_ACCOUNT,
    TIME,
    ApiServer,
    CommaSeparated,
    Flag,
    Port,
    ProcessSettings,
    Seconds,
)
from services.process.text import listing
from services.programming.clock import ClockCheck

CARDS: Final = "Cards"

TYPES: Final = "Device types"

KUBELET: Final = "Kubelet and cluster"
PROGRAMMING: Final = "Programming"

_TAKEN: Final = (DOMAIN, UNIT_RESOURCE.partition("/")[0], ACCELERATOR_DOMAIN)
"""Domains of FPGAs and of logical names."""
_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DOMAIN: Final = re.compile(rf"(?!requests\.)(?=.{{1,244}}$){_LABEL}(?:\.{_LABEL})+")
"""Kubernetes has a quota `requests.DOMAIN/NAME` for each, whose domain may have 253 characters."""

AbsolutePath = Annotated[Path, AfterValidator(Path.absolute)]


def _checked(words: tuple[str, ...]) -> tuple[str, ...]:
    try:
        parse_ignored(words)
    except InvalidSettings as error:
        raise ValueError(str(error)) from error
    return words


def check_resource_domains(words: tuple[str, ...]) -> tuple[str, ...]:
    """The same words, which are domains of device types.

    Raises:
        ValueError: one can't be.
    """
    for word in words:
        # Whatever ends in kubernetes.io is Kubernetes' own; of the other one, its subdomains are.
        reserved = word.endswith("kubernetes.io") or f".{word}".endswith(".k8s.io")
        if reserved or word in _TAKEN or not _DOMAIN.fullmatch(word):
            raise ValueError(
                f"{word!r:.60} can't be a domain of device types: it must be a DNS name, and none"
                f" of {listing([*_TAKEN, 'kubernetes.io', 'k8s.io'], last='or')}"
            )
    return words


def check_allowed_nodes(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the same words as names below /dev.

    Raises:
        ValueError: No setting allows the nodes of one.
    """
    names = tuple(word.removeprefix("/dev/") for word in words)
    for why in filter(None, map(check_allowed, names)):
        raise ValueError(why)
    return names


def default_node_name() -> str:
    """This node's name: `NODE_NAME`, which a DaemonSet sets from the field, or the host's name."""
    return os.environ.get("NODE_NAME") or socket.gethostname()


class NodeSettings(ProcessSettings):
    """Where a node's cards and its kubelet are, and when devices are healthy."""

    root: Annotated[AbsolutePath, Flag("DIR", CARDS)] = Path("/")
    """Folder that contains sys/ and dev/."""
    host_root: Annotated[AbsolutePath, Flag("DIR", CARDS, "as --root")] = Field(
        default_factory=lambda data: data["root"]
    )
    """Prefix of the device paths reported to the kubelet."""
    device_types: Annotated[AbsolutePath | None, Flag("DIR", TYPES, "none")] = None
    """Folder of device types, one YAML file each: what else to serve besides FPGAs."""
    resource_domain: Annotated[
        CommaSeparated, AfterValidator(check_resource_domains), Flag("DOMAIN", TYPES)
    ] = (DEVICE_DOMAIN,)
    """Domains in which the resources of device types may be."""
    allow_nodes: Annotated[
        CommaSeparated, AfterValidator(check_allowed_nodes), Flag("NAME", TYPES, "none")
    ] = ()
    """Device nodes that device types may hand out besides the usual ones: the classes hidraw, input
    and tpm, and names of nodes of class misc, such as rfkill."""
    scan_interval: Annotated[Seconds, Field(ge=0.05, le=3600), Flag(TIME, CARDS)] = 5.0
    """Time between two scans of the cards."""
    healthy_after: Annotated[int, Field(ge=1, le=1000), Flag("N", CARDS)] = 3
    """Number of good scans in a row after which an unhealthy device is healthy again."""
    ignore_errors: Annotated[
        CommaSeparated,
        AfterValidator(_checked),
        Flag("ERROR", CARDS, "none"),
        Field(
            description=f"Errors that leave a device healthy, by reason: {', '.join(REGISTERS)}"
            f" (or some bits: port-errors=0x8), {', '.join(FLAGS)}."
        ),
    ] = ()
    clear_errors: Annotated[bool, Flag(group=CARDS)] = True
    """Clear the errors that a container left in a port, once nobody uses it."""
    kubelet_dir: Annotated[AbsolutePath, Flag("DIR", KUBELET)] = Path("/var/lib/kubelet")
    """The kubelet's folder, with device-plugins/ and pod-resources/, and with --api dra plugins/
    and plugins_registry/."""
    node_name: Annotated[
        str,
        Field(min_length=1, max_length=253),
        Flag("NAME", KUBELET, "$NODE_NAME, or the host's name"),
    ] = Field(default_factory=default_node_name)
    """This node's name in the cluster."""
    api_server: Annotated[ApiServer, Flag("ADDRESS", KUBELET, SERVICE_ACCOUNT)] = ""
    """unix:PATH or http://HOST:PORT of the API server, through kubectl proxy: for mode region, the
    node's annotation and Events; with --api dra for slices and claims."""
    pod_logs_dir: Annotated[AbsolutePath, Flag("DIR", KUBELET)] = Path("/var/log/pods")
    """The host's /var/log/pods, which says which pod has which UID. Needed in mode region and where
    mappings are checked: without it, no container with a device starts there."""
    user_clock: Annotated[ClockCheck, Flag("HOW", PROGRAMMING)] = ClockCheck.CHECK
    """What to do about user clocks: check (refuse one above what the bitstream asks for, warn below
    it), leave (don't measure them). They are never set."""
    enforce_mappings: Annotated[Enforce, Flag("WHEN", PROGRAMMING)] = Enforce.AUTO
    """When to check before a container starts that its namespace maps what it was given: auto (in
    modes region and regiondevel; with --api dra unless a pod requests a function that must be there
    by fpga.intel.com/af-…, which the webhook sees), always (in mode af too), never."""
    bitstreams: Annotated[AbsolutePath, Flag("DIR", PROGRAMMING)] = Path("/srv/intel.com/fpga")
    """Folder of this node's bitstreams."""
    state_dir: Annotated[AbsolutePath, Flag("DIR", PROGRAMMING)] = Path("/run/accelbind")
    """Folder of locks and records, shared by all who program on this host."""
    metrics_port: Annotated[Port, Flag("PORT", PROCESS)] = 9102
    """Port for metrics and probes; 0 takes any free one."""

    @property
    def ignored_errors(self) -> Ignored:
        """The errors that leave a device healthy."""
        return parse_ignored(self.ignore_errors)

    def table(
        self,
        mode: PluginMode,
        source: str,
        devices: tuple[Row, ...],
        problems: Iterable[str],
        version: str = "",
    ) -> Table:
        """A table of this node's devices; `version` is that of the process that has made it."""
        return Table(
            node=self.node_name,
            mode=mode.value,
            root=str(self.root),
            kubelet_dir=str(self.kubelet_dir),
            source=source,
            process_version=version,
            devices=devices,
            problems=tuple(problems),
        )
