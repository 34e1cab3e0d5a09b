"""All checks of `accelbind doctor`: their ids, which scripts name, and their functions.

The docstring of a function is the question that its check answers.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeAlias, TypeVar

from accelbind.doctor import (
    access,
    certificates,
    cluster,
    definitions,
    files,
    kubelet,
    node,
    plugin,
    pods,
    pools,
    webhooks,
    workloads,
)
from accelbind.doctor.cluster import Cluster
from accelbind.doctor.model import Check, Line
from accelbind.doctor.node import Node

S = TypeVar("S", Node, Cluster)
Find: TypeAlias = Callable[[S], Iterable[Line]]

NODE: Final[Mapping[str, Find[Node]]] = {
    "node.driver": node.check_driver,
    "node.cards": node.check_cards,
    "node.device-nodes": node.check_device_nodes,
    "node.kubelet": kubelet.check_kubelet,
    "node.plugin-sockets": kubelet.check_sockets,
    "node.checkpoint": kubelet.check_checkpoint,
    "node.pod-resources": kubelet.check_pod_resources,
    "node.pod-logs": kubelet.check_pod_logs,
    "node.access": node.check_access,
    "node.cdi": files.check_cdi,
    "node.bitstreams": files.check_bitstreams,
    "node.state-dir": files.check_state_dir,
    "node.hook": files.check_hook,
    "node.plugin": plugin.check_plugin,
    "node.devices": plugin.check_devices,
    "node.permissions": plugin.check_permissions,
}

CLUSTER: Final[Mapping[str, Find[Cluster]]] = {
    cluster.API_SERVER: cluster.check_api_server,
    "cluster.workloads": workloads.check_workloads,
    "cluster.other-suites": workloads.check_other_suites,
    "cluster.nodes": workloads.check_nodes,
    "cluster.pools": pools.check_pools,
    "cluster.definitions": definitions.check_definitions,
    "cluster.webhooks": webhooks.check_webhooks,
    "cluster.webhook-rules": webhooks.check_rules,
    "cluster.other-webhooks": webhooks.check_other_webhooks,
    "cluster.bundles": certificates.check_bundles,
    "cluster.served": certificates.check_served,
    "cluster.mappings": pods.check_mappings,
    "cluster.pending-pods": pods.check_pending,
    "cluster.failed-pods": pods.check_failed,
    "cluster.access.webhook": access.check_webhook_access,
    "cluster.access.plugin": access.check_plugin_access,
    "cluster.access.certs": access.check_certs_access,
    "cluster.policy": definitions.check_policy,
}

_MAY_GROW: Final = ("node.bitstreams", *CLUSTER)
"""Checks that take longer where there is more to read."""


def checks_of(table: Mapping[str, Find[S]], subject: S) -> list[Check]:
    """The checks of a node or a cluster."""
    return [
        Check(key, question(find), partial(find, subject), grows=key in _MAY_GROW)
        for key, find in table.items()
    ]


def question(find: object) -> str:
    """The question that a check answers."""
    return (find.__doc__ or "").rstrip(".")
