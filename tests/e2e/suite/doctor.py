"""`accelbind doctor` on the cluster, and on the node where that is this machine: no red line."""

import json

import pytest

from tests.e2e.api import Place
from tests.e2e.cluster import CONFIGURATION, REGISTRATION, Cluster
from tests.e2e.hosts import Hosts
from tests.e2e.pods import Pods
from tests.e2e.reds import Red, red_lines, run_doctor

OF_OTHERS = ("cluster.pending-pods",)
"""Checks that tell of what people have made, wherever in the cluster."""


def explained(red: Red, before: frozenset[Red], namespaces: tuple[str, ...]) -> str:
    """Why a red line is as it should be; empty if it isn't."""
    ours = any(name in red.what for name in namespaces)
    if red in before:
        return "so it was before the run"
    if red.check in OF_OTHERS and not ours:
        return "of others"
    if red.check == "cluster.pools" and "no plugin" in red.what:
        return "plugins run as processes of the host"
    return ""


def test_the_doctor_finds_nothing_that_is_wrong_with_the_suite(
    cluster: Cluster, pods: Pods, elsewhere: Pods, suite: Hosts | None, red_before: frozenset[Red]
) -> None:
    if suite is not None:
        suite.serve("af")
        flags = ("--node", "--mode", "af", *suite.files, "--metrics-host", "127.0.0.1")
        flags += ("--metrics-port", str(suite.plugin_port), "--namespace", pods.namespace)
    else:
        flags = ("--namespace", system_namespace(cluster))
    checks = run_doctor(cluster, *flags)
    assert {each["state"] for each in checks} & {"ok", "failed"}, json.dumps(checks)
    namespaces = (pods.namespace, elsewhere.namespace)
    wrong = []
    for red in red_lines(checks):
        why = explained(red, red_before, namespaces)
        if why:
            cluster.notes.append(f"doctor: {red} ({why})")
        else:
            wrong.append(str(red))
    if wrong:
        pytest.fail("accelbind doctor finds\n" + "\n".join(wrong), pytrace=False)


def system_namespace(cluster: Cluster) -> str:
    """Where the webhook is that the configuration names."""
    place = Place(REGISTRATION, "MutatingWebhookConfiguration")
    for hook in cluster.api.get(place, CONFIGURATION)["webhooks"]:
        service = hook["clientConfig"].get("service")
        if service:
            return str(service["namespace"])
    return "accelbind-system"
