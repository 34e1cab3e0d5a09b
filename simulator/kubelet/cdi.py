"""Additions of a container runtime for CDI devices: variables and device nodes."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from services.kubelet.deviceplugin_pb2 import DeviceSpec
from services.process.errors import KubeletError
from simulator.kubelet.devices import Granted


class Unresolvable(KubeletError):
    """No file describes a CDI device; the text is the runtime's."""


def injected(granted: Granted, ids: Iterable[str], folder: Path) -> Granted:
    """The start of a container with CDI devices that the files of a folder describe.

    Where two devices set the same variable, the last one counts (measured with containerd 2.4).
    """
    known = _read(folder)
    wanted = list(dict.fromkeys(ids))
    if missing := [each for each in wanted if each not in known]:
        raise Unresolvable(
            f"CDI device injection failed: unresolvable CDI devices {', '.join(missing)}"
        )
    env, nodes = dict(granted.env), {node.container_path: node for node in granted.devices}
    for each in wanted:
        for edits in known[each]:
            env |= dict(entry.split("=", 1) for entry in edits.get("env") or ())
            for node in edits.get("deviceNodes") or ():
                nodes[node["path"]] = DeviceSpec(
                    container_path=node["path"],
                    host_path=node.get("hostPath", node["path"]),
                    permissions=node.get("permissions", "rw"),
                )
    names = tuple(dict.fromkeys((*granted.cdi_devices, *wanted)))
    return replace(
        granted, env=tuple(env.items()), devices=tuple(nodes.values()), cdi_devices=names
    )


def _read(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The edits for each device: those of its file, then its own."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_bytes())
        common = content.get("containerEdits") or {}
        for device in content["devices"]:
            found[f"{content['kind']}={device['name']}"] = [common, device["containerEdits"]]
    return found
