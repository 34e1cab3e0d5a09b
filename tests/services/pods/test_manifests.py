from typing import Any

import pytest

from services.pods.manifests import find_pods
from services.process.errors import InvalidManifest

TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "app"}]}}


@pytest.mark.parametrize(
    ("document", "label"),
    [
        ({"kind": "Pod", "metadata": {"name": "p"}} | TEMPLATE, "Pod p"),
        ({"kind": "Pod"} | TEMPLATE, "Pod"),
        ({"kind": "PodTemplate", "template": TEMPLATE}, "PodTemplate"),
        *[
            ({"kind": kind, "metadata": {"name": "n"}, "spec": {"template": TEMPLATE}}, f"{kind} n")
            for kind in (
                "DaemonSet",
                "Deployment",
                "Job",
                "ReplicaSet",
                "ReplicationController",
                "StatefulSet",
            )
        ],
        ({"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": TEMPLATE}}}}, "CronJob"),
        ({"kind": "List", "items": [{"kind": "Pod"} | TEMPLATE]}, "Pod"),
        ({"kind": "PodList", "items": [TEMPLATE]}, "Pod"),
        ({"apiVersion": "v1", "kind": "PodList", "items": [{"kind": "Pod"} | TEMPLATE]}, "Pod"),
        (
            {
                "apiVersion": "apps/v1",
                "kind": "DeploymentList",
                "items": [{"spec": {"template": TEMPLATE}}],
            },
            "Deployment",
        ),
    ],
)
def test_pods_are_found_in_every_kind_of_workload(document: dict[str, Any], label: str) -> None:
    (found,) = find_pods(document)
    assert found.label == label
    assert found.manifest["spec"] == TEMPLATE["spec"]
    assert found.pod.spec is not None
    assert found.pod.spec.containers is not None
    assert [container.name for container in found.pod.spec.containers] == ["app"]


@pytest.mark.parametrize(
    ("version", "kind", "found"),
    [
        ("v1", "Pod", True),
        ("batch/v1", "Job", True),
        ("batch/v1beta1", "CronJob", True),
        ("apps/v1", "Deployment", True),
        ("extensions/v1beta1", "DaemonSet", True),
        ("batch.volcano.sh/v1alpha1", "Job", False),
        ("batch/v1", "Deployment", False),
        ("apps.kruise.io/v1alpha1", "DaemonSet", False),
        ("example.com/v1", "Pod", False),
        ("v1", "Job", False),
        (7, "Pod", False),
    ],
)
def test_kinds_of_other_groups_are_other_kinds(version: object, kind: str, found: bool) -> None:
    """Whatever is in them: it is not ours to read."""
    spec = {"template": TEMPLATE, "jobTemplate": {"spec": {"template": TEMPLATE}}}
    document = {"apiVersion": version, "kind": kind, "spec": spec}
    for each in (document, {"apiVersion": "v1", "kind": "List", "items": [document]}):
        assert len([*find_pods(each)]) == found
    if not found:
        assert [*find_pods(document | {"spec": 7, "metadata": 7})] == []


@pytest.mark.parametrize(
    "document",
    [
        {"kind": "Listing", "items": 7},
        {"kind": "List", "items": None},
        {"kind": "PodList", "items": None},
        {"kind": "ServiceList", "items": 7},
        {"apiVersion": "v1", "kind": "ServiceList", "items": 7},
        {"apiVersion": "example.com/v1", "kind": "PodList", "items": 7},
        {"apiVersion": "example.com/v1", "kind": "List", "items": [{"kind": "Pod"} | TEMPLATE]},
    ],
)
def test_empty_lists_and_those_of_other_kinds_have_none(document: dict[str, Any]) -> None:
    assert [*find_pods(document)] == []


def test_a_pod_is_read_in_what_json_knows_and_a_template_where_it_is() -> None:
    (template,) = find_pods({"kind": "Job", "spec": {"template": TEMPLATE}})
    assert template.template_at == "spec.template"
    shared = {"cpu": 1}
    document = {"kind": "Pod", 7: "seven", "spec": {"a": shared, "b": shared}}
    (found,) = find_pods(document)
    assert found.manifest == {"kind": "Pod", "7": "seven", "spec": {"a": shared, "b": shared}}
    spec: Any = found.manifest["spec"]
    assert spec["a"] is not spec["b"]


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ("text", "a document of a manifest must be an object with a kind"),
        ({"a": 1}, "an object of a manifest must have a kind"),
        (
            {"kind": "CronJob", "spec": {"jobTemplate": {"spec": None}}},
            "a CronJob must have an object at spec.jobTemplate.spec.template",
        ),
        ({"kind": "List", "items": 7}, "items of a List must be a list"),
        ({"kind": "PodList", "items": 7}, "items of a PodList must be a list"),
        ({"kind": "PodList", "items": [7]}, "a document of a manifest must be an object"),
        ({"kind": "List", "items": [{"kind": "List"}]}, "a list within a list is not a manifest"),
        (
            {"kind": "Pod", "metadata": {"namespace": 3}},
            "metadata.namespace of a Pod must be a text",
        ),
        ({"kind": "Pod", "metadata": {"name": "p"}, "spec": 7}, "Pod p: the pod can't be read: "),
    ],
)
def test_documents_that_are_no_manifests_are_named(document: object, problem: str) -> None:
    with pytest.raises(InvalidManifest) as caught:
        list(find_pods(document))
    assert str(caught.value).startswith(problem)
