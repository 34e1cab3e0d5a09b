"""What we hold our own manifests to: rights, pods, what they run and where they listen."""

import json
import re
from collections.abc import Iterator

import kubernetes_validate
import pytest
import yaml

from services.mappings.kinds import TABLE
from tests.manifests.rendering import (
    DEFAULT,
    NAMES,
    NAMESPACE,
    TWO_POOLS,
    WHOLE,
    WITH_PLUGINS,
    Json,
    check_network_policies,
    containers,
    everything,
    named,
    of_kind,
    one,
    ours,
    pod_spec,
    rendered,
)
from tests.manifests.rights import rights_of
from tests.support import REPOSITORY

PROGRAMMING = ("overlays/region", "overlays/region-hook", "overlays/dra")
PRIVILEGED = {
    *((folder, "accelbind-plugin", "plugin") for folder in PROGRAMMING),
    (TWO_POOLS, "accelbind-plugin-b", "plugin"),
}
"""The only containers that are privileged."""
LIMITED = ("accelbind-webhook", "accelbind-certs")
"""Whose pods pass the level restricted of the Pod Security Standards."""
VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim"} | {
    "projected",
    "secret",
}
"""Kinds of volumes that the level restricted allows."""


def rules(items: list[Json]) -> Iterator[tuple[str, Json]]:
    for kind in ("Role", "ClusterRole"):
        for role in of_kind(items, kind):
            for rule in role["rules"]:
                yield named(role), rule


def all_pods() -> Iterator[tuple[str, str, Json]]:
    for folder in WHOLE:
        for name, spec in ours(folder).items():
            yield folder, name, spec


BANNED = {"*", "delete", "deletecollection", "escalate", "bind", "impersonate", "approve"} | {
    *("pods/exec", "nodes/proxy", "serviceaccounts/token")
}


@pytest.mark.parametrize("folder", WHOLE)
def test_rights_are_named_and_secrets_are_ours_and_never_listed(folder: str) -> None:
    for role, rule in rules(rendered(folder)):
        assert set(rule) <= {"apiGroups", "resources", "resourceNames", "verbs"}, role
        for part in ("apiGroups", "resources", "verbs"):
            assert rule[part], role
            banned = BANNED - ({"delete"} if rule["resources"] == ["resourceslices"] else set())
            assert not banned & set(rule[part]), role
        if "secrets" in rule["resources"]:
            assert role == f"Role {NAMESPACE}/accelbind-certs"
            assert rule["resources"] == ["secrets"]
            assert set(rule["verbs"]) == {"get", "update", "patch", "create"}
            assert set(rule["resourceNames"]) == {"accelbind-ca", "accelbind-webhook-tls"}


@pytest.mark.parametrize("folder", WHOLE)
def test_every_role_is_bound_to_accounts_of_ours_that_get_no_token_by_themselves(
    folder: str,
) -> None:
    items = rendered(folder)
    accounts = {each["metadata"]["name"] for each in of_kind(items, "ServiceAccount")}
    roles = set()
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        for binding in of_kind(items, kind):
            name = binding["metadata"]["name"]
            assert binding["roleRef"]["name"] == name
            roles.add(one(items, binding["roleRef"]["kind"], name)["metadata"]["name"])
            for subject in binding["subjects"]:
                assert (subject["kind"], subject["namespace"]) == ("ServiceAccount", NAMESPACE)
                assert subject["name"].split("-")[:2] == name.split("-")[:2]
                assert subject["name"] in accounts
    unbound = {name.partition("/")[2] for name, _ in rules(items)} - roles
    assert unbound == {"accelbind-view-mappings"}, "which the API server adds to the role view"
    assert {spec["serviceAccountName"] for spec in ours(folder).values()} <= accounts
    for account in of_kind(items, "ServiceAccount"):
        assert account["automountServiceAccountToken"] is False


def test_the_role_view_reads_mappings_and_no_stock_role_writes_them() -> None:
    for role in of_kind(rendered(DEFAULT), "ClusterRole"):
        labels = role["metadata"]["labels"]
        aggregated = {key for key in labels if key.startswith("rbac.authorization.k8s.io/")}
        if role["metadata"]["name"] == "accelbind-view-mappings":
            assert aggregated == {"rbac.authorization.k8s.io/aggregate-to-view"}
            kinds = [each for rule in role["rules"] for each in rule["resources"]]
            assert kinds == [kind.plural for kind in TABLE.values()]
            assert all(set(rule["verbs"]) == {"get", "list", "watch"} for rule in role["rules"])
        else:
            assert not aggregated


def test_names_alone_need_no_plugin_and_no_kinds_of_fpgas_but_the_rights_to_watch_them() -> None:
    """An API server checks rights before it says that it does not know a kind."""
    items, whole = rendered(NAMES), rendered(DEFAULT)
    assert set(ours(NAMES)) == {"accelbind-webhook", "accelbind-certs"}
    assert [each["metadata"]["name"] for each in of_kind(items, "CustomResourceDefinition")] == [
        "accelerators.accelbind.dev"
    ]
    assert rights_of(items, "accelbind-webhook") == rights_of(whole, "accelbind-webhook")
    watched = {right.resource for right in rights_of(items, "accelbind-webhook")}
    assert watched == {kind.plural for kind in TABLE.values()}
    names = [each["metadata"]["name"] for each in items]
    assert [each for each in names if each.startswith("accelbind-plugin")] == []
    assert set(_levels(items)) == {"restricted"}
    assert set(_levels(whole)) == {"privileged"}


def _levels(items: list[Json]) -> Iterator[str]:
    labels = one(items, "Namespace", NAMESPACE)["metadata"]["labels"]
    return (value for key, value in labels.items() if key.startswith("pod-security."))


def test_no_image_is_whatever_is_newest() -> None:
    for _, item in everything():
        if item["kind"] in ("Pod", "Deployment", "DaemonSet"):
            for container in containers(pod_spec(item)):
                image, _, tag = container["image"].rpartition(":")
                assert image, f"{named(item)}: {container['image']} has no tag"
                assert re.fullmatch(r"\d+(\.\d+)*(\.dev\d+)?", tag), named(item)


def require_restricted(spec: Json) -> None:
    """Fail if pods aren't of the level restricted of the Pod Security Standards.

    Its list: kubernetes.io/docs/concepts/security/pod-security-standards.
    """
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert all(set(volume) - {"name"} <= VOLUMES for volume in spec.get("volumes", ()))
    for container in containers(spec):
        own = container["securityContext"]
        assert not {"privileged", "runAsUser", "runAsNonRoot", "seccompProfile"} & set(own)


def require_confined(spec: Json) -> list[str]:
    """Fail if pods have powers on their node; return the containers that are privileged."""
    privileged = []
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in containers(spec):
        own = container["securityContext"]
        assert not any("hostPort" in port for port in container.get("ports", ()))
        if own.get("privileged"):
            privileged.append(container["name"])
        else:
            assert own["allowPrivilegeEscalation"] is False
            assert own["capabilities"] == {"drop": ["ALL"]}
    return privileged


def test_pods_have_no_powers_but_for_the_pools_that_program() -> None:
    privileged = set()
    for folder, name, spec in all_pods():
        privileged |= {(folder, name, each) for each in require_confined(spec)}
        for container in containers(spec):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
        if name in LIMITED:
            require_restricted(spec)
    assert privileged == PRIVILEGED


@pytest.mark.parametrize("path", ["manifests/samples/pods", "examples/pods"])
def test_the_workload_without_root_passes_the_level_restricted(path: str) -> None:
    pod = yaml.safe_load((REPOSITORY / path / "non-root.yaml").read_text())
    kubernetes_validate.validate(pod, "1.36", strict=True)
    spec = pod["spec"]
    assert require_confined(spec) == []
    require_restricted(spec)
    assert spec["securityContext"]["runAsGroup"] > 0, "runtimes take the nodes' owner from here"
    (container,) = spec["containers"]
    limits = set(container["resources"]["limits"])
    assert {"hugepages-2Mi", "memory"} <= limits, "huge pages need CPU or memory as well"


def test_writable_paths_of_the_node_are_listed() -> None:
    for folder, name, spec in all_pods():
        if "plugin" not in name:
            continue
        mounts = [mount for each in containers(spec) for mount in each["volumeMounts"]]
        hosts = {each["name"]: each["hostPath"]["path"] for each in spec["volumes"]}
        assert {mount["name"] for mount in mounts} == set(hosts)
        written = {hosts[mount["name"]] for mount in mounts if not mount.get("readOnly", False)}
        more = {"/sys"} if (folder, name, "plugin") in PRIVILEGED else set()
        more |= {"/opt/accelbind", "/var/run/cdi"} if folder.endswith("hook") else set()
        if folder.endswith("dra"):
            kubelet = {
                "/var/lib/kubelet/plugins/accelbind.dev",
                "/var/lib/kubelet/plugins_registry",
            }
            more |= {"/var/run/cdi"} | kubelet
        assert written == {"/var/lib/kubelet/device-plugins", "/run/accelbind"} | more
        assert "/" not in hosts.values()


CARDS = {
    "accelbind.dev/plugin": "true",
    "node.kubernetes.io/instance-type": "f2.6xlarge",
    "example.com/pool": "a",
}
"""Labels of a node that an administrator sets, or its cloud."""
CONTROL_PLANE = {"node-role.kubernetes.io/control-plane": ""}


@pytest.mark.parametrize("folder", WITH_PLUGINS)
def test_plugins_run_on_labelled_nodes_only_also_on_those_with_the_taint_for_cards(
    folder: str,
) -> None:
    daemonset = one(rendered(folder), "DaemonSet", "accelbind-plugin")
    spec, every = pod_spec(daemonset), {"kubernetes.io/os": "linux"}
    selector = spec["nodeSelector"].items()
    assert selector <= (every | CARDS).items()
    assert not selector <= (every | CONTROL_PLANE).items()
    key = "accelbind.dev/fpga"
    assert spec["tolerations"] == [{"key": key, "operator": "Exists", "effect": "NoSchedule"}]
    pods = {"app.kubernetes.io/name": "accelbind-plugin"}  # nobody can change it later
    assert daemonset["spec"]["selector"] == {"matchLabels": pods}


def test_pods_say_what_they_take_and_how_to_see_whether_they_live() -> None:
    for _, name, spec in all_pods():
        assert spec["priorityClassName"].startswith("system-")
        # A Service accelbind-metrics would set ACCELBIND_METRICS_PORT to a URL.
        assert spec["enableServiceLinks"] is False
        for container in containers(spec):
            resources = container["resources"]
            assert set(resources["requests"]) == {"cpu", "memory"}, name
            assert "memory" in resources["limits"], name
            assert "cpu" not in resources["limits"], "it would make answers wait"
        for container in spec["containers"]:
            ports = {port["name"] for port in container["ports"]}
            for probe, path in (
                ("startupProbe", "/healthz"),
                ("livenessProbe", "/healthz"),
                ("readinessProbe", "/readyz"),
            ):
                assert container[probe]["httpGet"]["path"] == path
                assert container[probe]["httpGet"]["port"] in ports


def test_the_webhook_is_there_twice_apart_and_never_away_as_a_whole() -> None:
    items = rendered("base")
    deployment = one(items, "Deployment", "accelbind-webhook")["spec"]
    assert deployment["replicas"] == 2
    assert deployment["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    labels = deployment["template"]["metadata"]["labels"]
    spread = deployment["template"]["spec"]["topologySpreadConstraints"]
    for each in spread:
        assert each["labelSelector"]["matchLabels"].items() <= labels.items()
    budget = one(items, "PodDisruptionBudget", "accelbind-webhook")["spec"]
    assert budget["selector"]["matchLabels"].items() <= labels.items()
    assert budget["maxUnavailable"] < deployment["replicas"]
    (container,) = deployment["template"]["spec"]["containers"]
    command, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
    (drain,) = [each.partition("=")[2] for each in container["args"] if "--drain-seconds" in each]
    assert (command, float(seconds) >= 5, float(drain) >= 5) == ("sleep", True, True)
    ready = container["readinessProbe"]
    assert ready["periodSeconds"] * ready["failureThreshold"] + 3 < float(drain), (
        "a liveness restart"
    )
    ended = float(seconds) + float(drain)
    assert ended < deployment["template"]["spec"]["terminationGracePeriodSeconds"] - 10


@pytest.mark.parametrize("folder", WHOLE)
def test_services_policies_and_monitors_select_pods_that_are_there(folder: str) -> None:
    items = rendered(folder)
    labels = [
        item["spec"]["template"]["metadata"]["labels"]
        for kind in ("Deployment", "DaemonSet")
        for item in of_kind(items, kind)
    ]
    ports = {
        port["name"]
        for spec in ours(folder).values()
        for container in containers(spec)
        for port in container.get("ports", ())
    }
    for service in of_kind(items, "Service"):
        assert any(service["spec"]["selector"].items() <= each.items() for each in labels)
        assert all(port["targetPort"] in ports for port in service["spec"]["ports"])
    for policy in of_kind(items, "NetworkPolicy"):
        for ingress in policy["spec"].get("ingress", ()):
            assert all(port["port"] in ports for port in ingress["ports"])
    for monitor in of_kind(items, "PodMonitor"):
        (choice,) = monitor["spec"]["selector"]["matchExpressions"]
        for value in choice["values"]:
            assert any(each.get(choice["key"]) == value for each in labels)
        assert all(each["port"] in ports for each in monitor["spec"]["podMetricsEndpoints"])
    check_network_policies(items)


def test_nothing_reaches_pods_but_what_a_policy_names() -> None:
    policies = of_kind(rendered("base"), "NetworkPolicy")
    (closing,) = [each for each in policies if "ingress" not in each["spec"]]
    assert closing["spec"]["policyTypes"] == ["Ingress"]
    (opening,) = [each for each in policies if "ingress" in each["spec"]]
    assert opening["spec"]["ingress"] == [{"ports": [{"protocol": "TCP", "port": "https"}]}]


def test_only_the_serving_pair_gets_into_a_pod_and_never_the_cas_key() -> None:
    for folder, name, spec in all_pods():
        serving = f"accelbind-webhook-{'cert-manager' if 'cert-manager' in folder else 'tls'}"
        for volume in spec.get("volumes", ()):
            if "secret" in volume:
                assert name == "accelbind-webhook"
                assert volume["secret"]["secretName"] == serving
                assert {item["key"] for item in volume["secret"]["items"]} == {"tls.crt", "tls.key"}
                assert volume["secret"]["defaultMode"] == 0o440


def test_manifests_have_the_form_in_which_an_api_server_stores_them() -> None:
    """Else whoever compares (kubectl, Argo CD) finds a difference that no apply ends."""
    for folder, item in everything():
        text, where = json.dumps(item), (folder, named(item))
        assert '"readOnly": false' not in text, where
        assert not re.search(r'"\d+000"', text), where
        spec = item.get("spec") or {}
        for strategy in ("strategy", "updateStrategy"):
            assert spec.get(strategy, {"type": ""}).get("type") is not None, where
        for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or ():
            assert "scope" in rule, where
