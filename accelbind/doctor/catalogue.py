"""All checks of `accelbind doctor`. Their ids stay, since scripts name them."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

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

NodeRow = tuple[str, str, Callable[[Node], Iterable[Line]]]
ClusterRow = tuple[str, str, Callable[[Cluster], Iterable[Line]]]

NODE: Final[tuple[NodeRow, ...]] = (
    ("node.driver", "Is the cards' driver loaded?", node.check_driver),
    ("node.cards", "Can all cards be read, and are they healthy?", node.check_cards),
    ("node.device-nodes", "Does every device have its file in /dev?", node.check_device_nodes),
    ("node.kubelet", "Does the kubelet accept registrations?", kubelet.check_kubelet),
    ("node.plugin-sockets", "Does exactly one plugin serve?", kubelet.check_sockets),
    ("node.checkpoint", "Can the kubelet's checkpoint be read?", kubelet.check_checkpoint),
    (
        "node.pod-resources",
        "Does the kubelet report who has which device?",
        kubelet.check_pod_resources,
    ),
    ("node.pod-logs", "Can pods be found by their log folders?", kubelet.check_pod_logs),
    ("node.access", "Can this user read everything that is checked?", node.check_access),
    ("node.cdi", "Can runtimes use our CDI file?", files.check_cdi),
    ("node.bitstreams", "Can all bitstreams be used?", files.check_bitstreams),
    ("node.state-dir", "Can only root write to the state folder?", files.check_state_dir),
    ("node.hook", "Can the host start the OCI hook?", files.check_hook),
    ("node.plugin", "Is the plugin alive and registered?", plugin.check_plugin),
    ("node.devices", "Are all devices of the plugin healthy?", plugin.check_devices),
    ("node.permissions", "Does the plugin have all permissions?", plugin.check_permissions),
)

CLUSTER: Final[tuple[ClusterRow, ...]] = (
    ("cluster.api-server", "Does the API server answer?", cluster.check_api_server),
    ("cluster.workloads", "Do accelbind's workloads run?", workloads.check_workloads),
    ("cluster.other-suites", "Other FPGA suites are removed", workloads.check_other_suites),
    ("cluster.nodes", "Do nodes offer accelerators?", workloads.check_nodes),
    (
        "cluster.pools",
        "Does one plugin DaemonSet cover each node with accelerators?",
        pools.check_pools,
    ),
    (
        "cluster.definitions",
        "Are both kinds of mappings defined?",
        definitions.check_definitions,
    ),
    ("cluster.webhooks", "Is the webhook called for all reviews?", webhooks.check_webhooks),
    ("cluster.webhook-rules", "Are the webhook configurations right?", webhooks.check_rules),
    (
        "cluster.other-webhooks",
        "Does no other suite change FPGA pods?",
        webhooks.check_other_webhooks,
    ),
    ("cluster.bundles", "Are the CA bundles valid?", certificates.check_bundles),
    (
        "cluster.served",
        "Does the served certificate fit the CA bundle?",
        certificates.check_served,
    ),
    ("cluster.mappings", "Are all mappings valid, and served by nodes?", pods.check_mappings),
    ("cluster.pending-pods", "No FPGA pod is stuck", pods.check_pending),
    ("cluster.failed-pods", "No pod failed because of its device", pods.check_failed),
    (
        "cluster.access.webhook",
        "Does the account accelbind-webhook have its rights, and no more?",
        access.check_webhook_access,
    ),
    (
        "cluster.access.plugin",
        "Does the account accelbind-plugin have its rights, and no more?",
        access.check_plugin_access,
    ),
    (
        "cluster.access.certs",
        "Does the account accelbind-certs have its rights, and no more?",
        access.check_certs_access,
    ),
    (
        "cluster.policy",
        "Can the account accelbind-certs change only caBundle?",
        definitions.check_policy,
    ),
)

_GROWS: Final = frozenset({"node.bitstreams"})


def node_checks(subject: Node) -> list[Check]:
    """The checks of a node."""
    return [
        Check(key, title, partial(find, subject), grows=key in _GROWS) for key, title, find in NODE
    ]


def cluster_checks(subject: Cluster) -> list[Check]:
    """The checks of a cluster, all of which take longer in a large one."""
    return [Check(key, title, partial(find, subject), grows=True) for key, title, find in CLUSTER]
