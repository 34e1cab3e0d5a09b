"""`accelbind doctor`: what is wrong with a node or a cluster, and what to do about it."""

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, TypeVar

import msgspec
import typer

from accelbind.cluster import NO_CLUSTER, Target, with_target
from accelbind.doctor import cluster, node, pools, webhooks, workloads
from accelbind.doctor.cluster import Cluster
from accelbind.doctor.model import Check, CheckStatus, Result, run_check
from accelbind.doctor.node import Node
from accelbind.flags import Given, load_settings, namespace_option, switch, with_settings
from accelbind.output import Exit, Output, StyledLine, print_result
from certs.settings import NAMESPACE
from plugin.settings import PluginSettings
from services.devices.hardware.scan import DRIVERS
from services.process.errors import InvalidSettings
from services.process.settings import PREFIX
from services.process.text import count, plain
from webhook.settings import ReviewSettings

T = TypeVar("T")

_PREFIX: Final = "whose id starts with this; repeat it for more."
Only = Annotated[list[str] | None, typer.Option(metavar="ID", help=f"Run only checks {_PREFIX}")]
Skip = Annotated[list[str] | None, typer.Option(metavar="ID", help=f"Skip checks {_PREFIX}")]
_NODE_FLAGS: Final = ("root", "kubelet_dir", "metrics_port", "device_types")
_NODE_FOLDERS: Final = ("/var/lib/kubelet/device-plugins", *(each.folder for each in DRIVERS))
"""Of which a node has one."""


_MOST: Final = 20
"""Lines of one check in text output."""

_MARKS: Final = {
    CheckStatus.OK: "ok",
    CheckStatus.WARNING: "warning",
    CheckStatus.FAILED: "FAILED",
    CheckStatus.UNSEEN: "unseen",
    CheckStatus.SKIPPED: "-",
}
_COLOURS: Final = {
    CheckStatus.WARNING: "yellow",
    CheckStatus.FAILED: "red",
    CheckStatus.UNSEEN: "cyan",
}
_FINE: Final = frozenset({CheckStatus.OK, CheckStatus.SKIPPED})
_WIDTH: Final = max(map(len, _MARKS.values()))
_INDENT: Final = " " * (_WIDTH + 2)
_MESSAGE: Final = 1200

NODE: Final[Mapping[str, Check[Node]]] = {
    "node.devices": node.check_devices,
    "node.vfio": node.check_vfio,
    "node.plugin": node.check_plugin,
}
API_SERVER: Final = "cluster.api-server"
CLUSTER: Final[Mapping[str, Check[Cluster]]] = {
    API_SERVER: cluster.check_api_server,
    "cluster.workloads": workloads.check_workloads,
    "cluster.other-suites": workloads.check_other_suites,
    "cluster.pools": pools.check_pools,
    "cluster.webhooks": webhooks.check_webhooks,
    "cluster.served": webhooks.check_served,
    "cluster.pending-pods": workloads.check_pending,
    "cluster.policy": webhooks.check_policy,
}


@with_settings(
    PluginSettings,
    *("mode", "root", "kubelet_dir", "pod_logs_dir", "device_types"),
    *("resource_domain", "allow_nodes", "state_dir", "metrics_host", "metrics_port"),
    group="Node: as the plugin's",
    defaults={"mode": "as the plugin runs, or af", "metrics_host": "this machine"},
)
@with_settings(
    ReviewSettings,
    *("domain", "accelerator_domain", "shared_namespace"),
    group="Cluster: as the webhook's",
)
@with_target
def doctor(
    *,
    on_node: Annotated[
        bool, switch("--node", help="Check this node, even if it does not look like one.")
    ] = False,
    on_cluster: Annotated[
        bool, switch("--cluster", help="Check only the cluster, or with --node both.")
    ] = False,
    only: Only = None,
    skip: Skip = None,
    output: Output = "text",
    namespace: Annotated[str, namespace_option("Where accelbind runs.", NAMESPACE)] = NAMESPACE,
    target: Target,
    settings: ReviewSettings,
    given: Given,
) -> None:
    """Find what is wrong with a node or a cluster, and what to do about it.

    On a node it checks the devices, device types and the plugin, which says whether
    the kubelet accepts it. In a cluster (with a kubeconfig) it checks workloads,
    nodes, webhooks, certificates, other suites and pods that wait. It changes
    nothing, needs no root, and reports what it could not check. For mappings and
    claims see accelbind check mappings.

    Each check has a fixed id and a state (ok, warning, failed, unseen, skipped).

    Exit code 0: all is well; 1: a check failed; 2: none failed, but something
    could not be checked, or the options are wrong.

    [bold]Examples[/bold]
      accelbind doctor
      accelbind doctor --cluster --kubeconfig ~/.kube/config -o json
      kubectl exec -n accelbind-system ds/accelbind-plugin -- accelbind doctor
      accelbind doctor --only node.devices --only node.plugin
    """
    checks: dict[str, Callable[[], Result]] = {}
    if on_node or (not on_cluster and _is_node(given)):
        options = load_settings(PluginSettings, given)
        named = {name for name, value in given.items() if value is not None}
        checks |= _checks_of(NODE, Node(options, named))
    with contextlib.ExitStack() as stack:
        # The account of a pod on a node is the plugin's, which may not read what these checks need.
        known = target.is_chosen or (target.is_known and not checks)
        if on_cluster or target.is_named or (not on_node and known):
            policy = settings.policy()
            subject = Cluster(lambda: stack.enter_context(target.access()), namespace, policy)
            checks |= _checks_of(CLUSTER, subject)
        if not checks:
            raise InvalidSettings(f"this machine is not a node, and {NO_CLUSTER}, or use --node")
        results = _run(checks, only or (), skip or ())
    print_result(output, document(results), lines(results))
    states = {result.state for result in results}
    if CheckStatus.FAILED in states:
        raise typer.Exit(Exit.NO)
    if CheckStatus.UNSEEN in states:
        raise typer.Exit(Exit.UNKNOWN)


def _checks_of(table: Mapping[str, Check[T]], subject: T) -> dict[str, Callable[[], Result]]:
    return {name: partial(run_check, name, check, subject) for name, check in table.items()}


def _run(
    checks: Mapping[str, Callable[[], Result]], only: Sequence[str], skip: Sequence[str]
) -> list[Result]:
    for start in (*only, *skip):
        if not any(name.startswith(start) for name in checks):
            raise InvalidSettings(
                f"no check that runs here is called {start!r}; these run: {', '.join(checks)}"
                " (--node and --cluster choose others, --kubeconfig names a cluster)"
            )
    chosen = {
        name
        for name in checks
        if (not only or name.startswith(tuple(only))) and not name.startswith(tuple(skip))
    }
    if not chosen:
        raise InvalidSettings("--only and --skip leave no check: skip fewer checks")
    results = []
    for name, check in checks.items():
        # It says why the others can't be made, also if it was not chosen.
        is_cause = name == API_SERVER and any(each in CLUSTER for each in chosen)
        if name not in chosen and not is_cause:
            continue
        result = check()
        if name in chosen or result.state is CheckStatus.UNSEEN:
            results.append(result)
        if is_cause and result.state is CheckStatus.UNSEEN:
            break  # the checks of the cluster come last
    return results


def _is_node(given: dict[str, Any]) -> bool:
    if any(given.get(name) is not None for name in _NODE_FLAGS):
        return True
    # A container of a plugin has its settings as variables.
    return any(name.startswith(PREFIX) for name in os.environ) or any(
        map(os.path.isdir, _NODE_FOLDERS)
    )


def document(results: Sequence[Result]) -> dict[str, Any]:
    """The results for programs."""
    return {
        "ok": not {CheckStatus.FAILED, CheckStatus.UNSEEN} & {each.state for each in results},
        "counts": {state.value: 0 for state in CheckStatus} | _counts(results),
        "checks": [msgspec.to_builtins(each) | {"state": each.state} for each in results],
    }


def lines(results: Sequence[Result]) -> Iterator[StyledLine]:
    """Yield the checklist for people."""
    for result in results:
        text = f"{_MARKS[result.state].ljust(_WIDTH)}  {result.id}  {result.title}"
        yield _COLOURS.get(result.state), text
        yield from _result_lines(result)
    yield None, ""
    counts = _counts(results)
    parts = [f"{counts[state]} {state}" for state in reversed(CheckStatus) if state in counts]
    yield None, f"{count(len(results), 'check')}: {', '.join(parts) or 'none'}"


def _result_lines(result: Result) -> Iterator[StyledLine]:
    # The problems of a check, or if there are none, what is well.
    shown = [line for line in result.lines if line.state not in _FINE] or result.lines
    for line in shown[:_MOST]:
        mark = "" if line.state in _FINE else f"{line.state}: "
        text = plain(" ".join(line.what.split()), _MESSAGE)
        yield _COLOURS.get(line.state), f"{_INDENT}{mark}{text}"
        if line.todo:
            yield None, f"{_INDENT}→ {plain(line.todo, _MESSAGE)}"
    if len(shown) > _MOST:
        yield None, f"{_INDENT}… and {len(shown) - _MOST} more (-o json lists them)"


def _counts(results: Sequence[Result]) -> Counter[str]:
    return Counter(result.state.value for result in results)
