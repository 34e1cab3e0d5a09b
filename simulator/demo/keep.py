"""What `accelbind demo --keep` adds for commands on the cluster: files, and objects for processes.

`bin/accelbind` is the command line for simulated cards, `samples` has bitstreams for the cards, and
`NODE/env` is for a shell: it has the settings with which commands find a node.
"""

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simulator.cards import NLB0, NLB3
from simulator.client import Client, Json
from simulator.demo.cluster import NodePlan
from simulator.demo.suite import make_bitstream, settings_of

_NAMESPACE = "accelbind-system"
_COUNTS = (
    *("desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled"),
    *("numberReady", "numberAvailable"),
)
_LABELS = {"app.kubernetes.io/component": "accelbind-plugin"}
_FUNCTIONS = {"nlb0": NLB0, "nlb3": NLB3}


@dataclass(frozen=True, slots=True)
class Kept:
    plan: NodePlan
    file: Path
    """Sets what commands need, for a shell."""
    variables: dict[str, str]


def prepare(folder: Path, plans: Sequence[NodePlan]) -> list[Kept]:
    """Write the command, the samples and the variables of each node; the nodes with most first."""
    program = folder / "bin" / "accelbind"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m simulator.command "$@"\n'
    )
    program.chmod(0o755)
    samples = folder / "samples"
    samples.mkdir()
    for interface_id in {card.interface_id for plan in plans for card in plan.cards}:
        for name, afu_id in _FUNCTIONS.items():
            file = samples / f"{name}-{interface_id[:8]}.gbs"
            file.write_bytes(make_bitstream(interface_id, afu_id))
    programmed_first = sorted(plans, key=lambda plan: not plan.bitstreams)
    return [_kept(folder, plan) for plan in programmed_first]


def write_workloads(api: Client, plans: Sequence[NodePlan]) -> None:
    """Represent the plugin's processes by a DaemonSet and its pod on each node."""
    place, body = f"/api/v1/namespaces/{_NAMESPACE}", {"metadata": {"name": _NAMESPACE}}
    api.ask("PATCH", place, body=body, content_type="application/apply-patch+yaml")
    for plan in plans:
        name = f"accelbind-plugin-{plan.mode}"
        mode = {"name": "ACCELBIND_MODE", "value": plan.mode}
        container = {"name": "plugin", "image": "accelbind-plugin", "env": [mode]}
        container["ports"] = [{"name": "metrics", "containerPort": 9102}]
        spec: Json = {"containers": [container]}
        made = api.ask(
            "POST",
            f"/apis/apps/v1/namespaces/{_NAMESPACE}/daemonsets",
            body={"metadata": {"name": name}, "spec": {"template": {"spec": spec}}},
        )
        owner = {key: made[key] for key in ("apiVersion", "kind")}
        owner |= {key: made["metadata"][key] for key in ("name", "uid")} | {"controller": True}
        metadata = {"name": f"{name}-{plan.name}", "ownerReferences": [owner], "labels": _LABELS}
        pod = {"metadata": metadata, "spec": spec | {"nodeName": plan.name}}
        api.ask("POST", f"{place}/pods", body=pod)
        api.ask(
            "PATCH",
            f"/apis/apps/v1/namespaces/{_NAMESPACE}/daemonsets/{name}/status",
            body={"status": dict.fromkeys(_COUNTS, 1)},
            content_type="application/merge-patch+json",
        )


def _kept(folder: Path, plan: NodePlan) -> Kept:
    file = folder / plan.name / "env"
    ports = json.loads((folder / f"plugin-{plan.name}.ports").read_text())
    variables = {
        "KUBECONFIG": str(folder / "api" / "kubeconfig"),
        "SAMPLES": str(folder / "samples"),
    }
    for name, value in (settings_of(folder, plan) | {"metrics-port": ports["metrics"]}).items():
        variables[f"ACCELBIND_{name.upper().replace('-', '_')}"] = str(value)
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    lines.append(f'export PATH={shlex.quote(str(folder / "bin"))}:"$PATH"')
    file.write_text("\n".join(lines) + "\n")
    return Kept(plan, file, variables)
