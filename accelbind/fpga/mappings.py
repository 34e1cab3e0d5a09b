"""`accelbind fpga list -o mapping`: custom resources for the functions and regions of a node."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from accelbind.fpga import show
from accelbind.manifests import yaml_text
from services.devices.model import NO_AFU, Inventory, PluginMode
from services.mappings.kinds import ACCELERATOR_FUNCTION, FPGA_REGION, FPGA_VERSION
from services.process.errors import InvalidSettings

_DIGITS = 8
"""Of each id in a name. Names that would be the same get as many of a hash of the whole ids, which
keeps a name within the 63 characters that Kubernetes allows a label."""

_HEAD = """\
# Pods request fpga.intel.com/NAME; change each name as you like. Check the result with
# accelbind check mappings DIR.
"""

Ids = tuple[str, ...]
"""An interface id, and of a function its AFU id."""


def mappings_yaml(inventory: Inventory, mode: PluginMode, namespace: str | None) -> str:
    """The mappings as YAML documents; empty if there is nothing to map."""
    if not (mode.names_functions or mode.has_regions):
        raise InvalidSettings(f"devices of mode {mode} need no mapping")
    devices: dict[Ids, list[str]] = defaultdict(list)
    for port in show.list_devices(inventory):
        if ids := _ids(port, mode):
            devices[ids].append(port["device"])
    uses = Counter(map(_short, devices))
    documents = [
        f"---\n# {', '.join(names)}\n"
        + _mapping(_name(ids, mode, is_unique=uses[_short(ids)] == 1), ids, mode, namespace)
        for ids, names in devices.items()
    ]
    return _HEAD + "".join(documents) if documents else ""


def unmapped(inventory: Inventory, mode: PluginMode) -> Iterator[str]:
    """Yield the ports that have no mapping, since they show no AFU id, and why."""
    for port in show.list_devices(inventory):
        if port["kind"] == "port" and not _ids(port, mode):
            reasons = [each["message"] for each in port["problems"]]
            yield f"{port['device']}: {'; '.join(reasons) or 'it shows no AFU id'}"


def _ids(port: dict[str, Any], mode: PluginMode) -> Ids | None:
    if port["kind"] == "port":
        is_served = all(each["reason"] != NO_AFU for each in port["problems"])
    else:  # one that VFIO has not, is not offered
        is_served = port["kind"] == "function" and not mode.programs
        is_served = is_served and not port["problems"]
    if not is_served:
        return None
    wanted = ("interfaceId",) if mode.hands_out_engines else ("interfaceId", "afuId")
    ids = tuple(port[name] for name in wanted)
    return ids if all(ids) else None


def _short(ids: Ids) -> Ids:
    return tuple(each[:_DIGITS] for each in ids)


def _name(ids: Ids, mode: PluginMode, *, is_unique: bool) -> str:
    parts = ["fpga" if mode.hands_out_engines else "afu", *_short(ids)]
    if not is_unique:
        parts.append(hashlib.sha256("".join(ids).encode()).hexdigest()[:_DIGITS])
    if mode.programs:
        parts.append(mode)
    return "-".join(parts)


def _mapping(name: str, ids: Ids, mode: PluginMode, namespace: str | None) -> str:
    if mode.hands_out_engines:
        kind, spec = FPGA_REGION, {"interfaceId": ids[0]}
    else:
        kind = ACCELERATOR_FUNCTION
        spec = {"interfaceId": ids[0], "afuId": ids[1], "mode": str(mode)}
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    mapping = {"apiVersion": FPGA_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
    return yaml_text(mapping)
