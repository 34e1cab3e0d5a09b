"""`accelbind doctor`: what is wrong with a node or a cluster, and what to do about it."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accelbind.options import (
    Domains,
    Kubeconfig,
    default_note,
    find_kubeconfig,
    namespace_option,
    time_option,
)
from accelbind.output import Format, Output, print_json, styled
from accelbind.run import Given, load_settings, with_settings
from plugin.settings import PluginSettings

if TYPE_CHECKING:
    from accelbind.doctor.model import Check

EXIT_FAILED = 1

NODE = "On a node: as the plugin's"
SYSTEM = "accelbind-system"


@with_settings(
    PluginSettings,
    {
        "mode": "as the plugin runs, or af",
        "root": "",
        "kubelet_dir": "",
        "pod_logs_dir": "",
        "bitstreams": "",
        "state_dir": "",
        "cdi_dir": "/etc/cdi and /var/run/cdi",
        "programming": "",
        "metrics_host": "this machine",
        "metrics_port": "",
    },
    group=NODE,
)
def doctor(
    *,
    node: Annotated[
        bool, typer.Option("--node", help="Look at this node, also if nothing speaks for one.")
    ] = False,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Look at the cluster only, or with --node too.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Only this check, or all that begin so; repeat it."),
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Not this check, or those that begin so; repeat it."),
    ] = None,
    time_limit: Annotated[
        float,
        time_option("--time-limit", "How long one check may take.", "15s", most=600),
    ] = 15.0,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="List all checks and all that they found.")
    ] = False,
    output: Output = Format.TEXT,
    kubeconfig: Kubeconfig = None,
    namespace: Annotated[str, namespace_option("Where accelbind runs.", SYSTEM)] = SYSTEM,
    domain: Domains = None,
    webhook_address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where the webhook can be reached from here."
            f" {default_note('as the configurations say')}",
        ),
    ] = None,
    given: Given,
) -> None:
    """Find what is wrong with a node or a cluster, and what to do about it.

    On a node it looks at the driver, the cards, the kubelet, the files and the
    plugin; in a cluster (whose kubeconfig is named or found) at definitions,
    webhooks, certificates, accounts, mappings and pods. It changes nothing,
    needs no root, and says what it couldn't see.

    Each check has an id that stays, a state (ok, warning, failed, unseen,
    skipped) and a time limit of its own.

    Exit code 0: nothing has failed; 1: something has; 2: wrong options, or
    nothing here to look at.

    [bold]Examples[/bold]
      accelbind doctor
      accelbind doctor --cluster --kubeconfig ~/.kube/config -o json
      kubectl exec -n accelbind-system ds/accelbind-plugin -- accelbind doctor
      accelbind doctor --only node.kubelet --only node.plugin
    """
    from accelbind.doctor import show as doctor_show  # noqa: PLC0415 - only when it runs
    from accelbind.doctor.model import State, run  # noqa: PLC0415 - the same
    from services.process.errors import InvalidSettings  # noqa: PLC0415 - the same

    checks: list[Check] = []
    config = find_kubeconfig(kubeconfig)
    if node or (not cluster and _is_node(given)):
        checks += node_checks(given, time_limit)
    if cluster or kubeconfig is not None or (not node and _is_cluster(config, here=bool(checks))):
        checks += cluster_checks(config, namespace, domain, webhook_address)
    if not checks:
        raise InvalidSettings(
            "nothing here looks like a node or knows a cluster: name a --kubeconfig, or look at"
            " this machine all the same with --node"
        )
    results = run(_chosen(checks, only, skip), time_limit)
    if output is Format.JSON:
        print_json(doctor_show.document(results))
    else:
        for state, line in doctor_show.lines(results, verbose=verbose):
            typer.echo(styled(line, doctor_show.COLOURS.get(state) if state else None))
    if any(result.state is State.FAILED for result in results):
        raise typer.Exit(EXIT_FAILED)


def node_checks(given: dict[str, Any], seconds: float) -> "list[Check]":
    """The checks of a node.

    Args:
        given: Settings of the plugin that were given, by name; None where it wasn't.
        seconds: What one check may take.
    """
    from accelbind.doctor.files import NodeFiles  # noqa: PLC0415 - only on a node
    from accelbind.doctor.model import Once  # noqa: PLC0415 - the same
    from accelbind.doctor.node import Node  # noqa: PLC0415 - the same
    from accelbind.doctor.plugin import RunningPlugin  # noqa: PLC0415 - the same

    options = load_settings(PluginSettings, given)
    plugin = RunningPlugin(options)
    asked = options.mode if given.get("mode") is not None else None
    node = Node(options, Once(lambda: plugin.mode(asked)))
    return [*node.checks(), *NodeFiles(node, seconds).checks(), *plugin.checks()]


def cluster_checks(
    kubeconfig: Path | None, namespace: str, domain: list[str] | None, address: str | None
) -> "list[Check]":
    """The checks of a cluster.

    Args:
        kubeconfig: How to reach its API server; None: as a pod does.
        namespace: Where accelbind runs.
        domain: The webhook's domains, if they were given.
        address: Where the webhook can be reached from here, if not where the API server does.
    """
    from accelbind.doctor.access import Access  # noqa: PLC0415 - only in a cluster
    from accelbind.doctor.bundle import Bundles, parse_address  # noqa: PLC0415 - the same
    from accelbind.doctor.cluster import Cluster  # noqa: PLC0415 - the same
    from accelbind.doctor.definitions import Definitions  # noqa: PLC0415 - the same
    from accelbind.doctor.pods import Pods  # noqa: PLC0415 - the same
    from accelbind.doctor.policy import CertificatesPolicy  # noqa: PLC0415 - the same
    from accelbind.doctor.pools import Pools  # noqa: PLC0415 - the same
    from accelbind.doctor.webhooks import Webhooks  # noqa: PLC0415 - the same
    from services.admission.mutate import Policy  # noqa: PLC0415 - the same

    prefixes = (Policy(tuple(domain)) if domain else Policy()).prefixes
    cluster = Cluster(kubeconfig, namespace, prefixes)
    webhooks = Webhooks.of(cluster)
    bundles = Bundles(cluster, webhooks, parse_address(address) if address else None)
    pools = Pools(cluster)
    parts = (
        *(cluster, pools, Definitions(cluster), webhooks, bundles, Pods(cluster)),
        *(Access(cluster, pools), CertificatesPolicy(cluster)),
    )
    return [replace(check, grows=True) for part in parts for check in part.checks()]


def _chosen(
    checks: "Sequence[Check]", only: Sequence[str] | None, skip: Sequence[str] | None
) -> "list[Check]":
    from services.process.errors import InvalidSettings  # noqa: PLC0415 - only when it runs

    for start in (*(only or ()), *(skip or ())):
        if not any(check.id.startswith(start) for check in checks):
            known = ", ".join(check.id for check in checks)
            raise InvalidSettings(f"no check here is called {start!r}: there are {known}")
    return [
        check
        for check in checks
        if (not only or check.id.startswith(tuple(only)))
        and not check.id.startswith(tuple(skip or ()))
    ]


def _is_node(given: dict[str, Any]) -> bool:
    """Whether this looks like a node: it was described, or has a kubelet or a driver."""
    if any(given.get(name) is not None for name in ("root", "kubelet_dir", "metrics_port")):
        return True
    signs = ("/var/lib/kubelet/device-plugins", "/sys/class/fpga", "/sys/class/fpga_region")
    return any(name.startswith("ACCELBIND_") for name in os.environ) or any(
        map(os.path.isdir, signs)
    )


def _is_cluster(kubeconfig: Path | None, *, here: bool) -> bool:
    """Whether an API server is known; an account of a pod on a node is for the plugin's work."""
    from services.kube.config import may_reach  # noqa: PLC0415 - only when it runs

    if kubeconfig is not None or "KUBECONFIG" in os.environ:
        return True
    return may_reach() and not here
