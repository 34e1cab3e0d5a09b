from typing import Any

import pytest

from services.pods.manifests import find_pods
from services.process.errors import InvalidManifest

TEMPLATE: dict[str, Any] = {"spec": {"containers": [{"name": "app"}]}}


@pytest.mark.parametrize(
    ("document", "label"),
    [
        ({"kind": "Pod", "metadata": {"name": "p"}} | TEMPLATE, "Pod p"),
        ({"kind": "PodTemplate", "template": TEMPLATE}, "PodTemplate"),
        *[
            ({"kind": kind, "metadata": {"name": "n"}, "spec": {"template": TEMPLATE}}, f"{kind} n")
            for kind in ["DaemonSet", "Deployment", "Job", "ReplicaSet", "StatefulSet"]
        ],
        ({"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": TEMPLATE}}}}, "CronJob"),
        ({"kind": "List", "items": [{"kind": "Pod"} | TEMPLATE]}, "Pod"),
        ({"kind": "PodList", "items": [TEMPLATE]}, "Pod"),
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


RUN: dict[str, Any] = {"containers": [{"name": "app"}], "restartPolicy": "Never"}


@pytest.mark.parametrize(
    ("version", "kind", "spec", "places"),
    [
        (
            *("ray.io/v1", "RayCluster"),
            {"headGroupSpec": {"template": TEMPLATE}, "workerGroupSpecs": [{"template": TEMPLATE}]},
            ["spec.headGroupSpec.template", "spec.workerGroupSpecs[0].template"],
        ),
        (
            *("jobset.x-k8s.io/v1alpha2", "JobSet"),
            {"replicatedJobs": [{"template": {"spec": {"template": TEMPLATE}}}]},
            ["spec.replicatedJobs[0].template.spec.template"],
        ),
        ("batch.volcano.sh/v1alpha1", "Job", {"tasks": [{"template": TEMPLATE}]}, None),
        ("serving.knative.dev/v1", "Service", {"template": TEMPLATE}, ["spec.template"]),
        ("example.com/v1", "Pod", RUN, [""]),
        ("v1", "Service", {"ports": []}, []),
        ("apps/v1", "Deployment", {"template": {"spec": {}}}, []),
        (7, "Other", {"template": 7}, []),
    ],
)
def test_templates_are_found_by_their_shape_in_any_object(
    version: object, kind: str, spec: object, places: list[str] | None
) -> None:
    found = [*find_pods({"apiVersion": version, "kind": kind, "spec": spec, "metadata": 7})]
    expected = ["spec.tasks[0].template"] if places is None else places
    assert [each.template_at for each in found] == expected
    assert not any(each.is_known for each in found)
    labels = [f"{kind}, {place}" for place in expected] if len(expected) > 1 else [kind]
    assert [each.label for each in found] == labels[: len(found)]


def test_templates_of_an_argo_workflow_are_pods_with_what_the_workflow_shares() -> None:
    container = {"image": "i", "resources": {"limits": {"a/b": 1}}}
    shared = {"nodeSelector": {"a": "b"}, "volumes": [{"name": "v"}]}
    own = {"volumes": [{"name": "w"}], "tolerations": [], "metadata": {"labels": {"a": "b"}}}
    spec: dict[str, Any] = {
        "templates": [
            {"name": "one", "container": container, "sidecars": [{"name": "s"}]} | own,
            {"name": "two", "script": container | {"source": "x"}, "initContainers": [{}]},
            {"name": "three", "containerSet": {"containers": [{"name": "a"}, {"name": "b"}]}},
            {"name": "steps", "steps": []},
            {"name": "no", "containerSet": {"containers": 7}},
            7,
        ]
    }
    document = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "spec": shared | spec}
    one, two, three = find_pods(document)
    assert [each.template_at for each in (one, two, three)] == [
        f"spec.templates[{number}]" for number in range(3)
    ]
    containers = [{"name": "main"} | container, {"name": "s"}]
    assert one.manifest["metadata"] == own["metadata"]
    assert one.manifest["spec"] == {
        "restartPolicy": "Never",
        "nodeSelector": {"a": "b"},
        "tolerations": [],
        "volumes": [{"name": "v"}, {"name": "w"}],
        "containers": containers,
    }
    assert two.manifest["spec"] == {
        "restartPolicy": "Never",
        "nodeSelector": {"a": "b"},
        "volumes": [{"name": "v"}],
        "containers": containers[:1],
        "initContainers": [{}],
    }
    of_three: Any = three.manifest["spec"]
    assert [each["name"] for each in of_three["containers"]] == ["a", "b"]
    cron = document | {"kind": "CronWorkflow", "spec": {"workflowSpec": shared | spec}}
    assert [each.template_at for each in find_pods(cron)][:1] == ["spec.workflowSpec.templates[0]"]


def argo(kind: str, spec: object) -> Any:
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": kind, "spec": spec}


_LEAF = {"name": "m", "container": {"image": "i"}}


@pytest.mark.parametrize(
    ("kind", "spec", "places"),
    [
        ("Rollout", {"template": TEMPLATE}, ["spec.template"]),
        ("Experiment", {"templates": [{"template": TEMPLATE}]}, ["spec.templates[0].template"]),
        ("Sensor", {"of": argo("Workflow", {"templates": [_LEAF]})}, ["spec.of.spec.templates[0]"]),
        (
            "Workflow",
            {
                "templates": [
                    {"steps": [[{"inline": _LEAF}, 7], 7]},
                    {"dag": {"tasks": [{"inline": _LEAF}, {"inline": 7}, 7]}},
                ]
            },
            ["spec.templates[0].steps[0][0].inline", "spec.templates[1].dag.tasks[0].inline"],
        ),
    ],
)
def test_all_templates_of_argo_are_found(kind: str, spec: object, places: list[str]) -> None:
    assert [each.template_at for each in find_pods(argo(kind, spec))] == places


def test_defaults_of_an_argo_workflow_count_and_its_patches_are_named() -> None:
    limits: Any = {"resources": {"limits": {"a/b": 1}}}
    defaults = {"container": limits, "script": limits, "nodeSelector": {"a": "b"}, "volumes": []}
    resources = {"resources": {"requests": {"cpu": 1}}}
    templates = [
        {"container": resources, "podSpecPatch": "x", "volumes": [{"name": "v"}]},
        {"containerSet": {"containers": [{"name": "c"}]}},
        {"suspend": {}},
        {"resource": {"manifest": "kind: Job"}},
    ]
    spec = {"templateDefaults": defaults, "podSpecPatch": "{}", "templates": templates}
    one, several = find_pods(argo("Workflow", spec))
    of_one: Any = one.manifest["spec"]
    assert of_one["containers"] == [
        {"name": "main", "resources": limits["resources"] | resources["resources"]}
    ]
    assert (of_one["nodeSelector"], of_one["volumes"]) == ({"a": "b"}, [{"name": "v"}])
    of_all = ("spec.templates[3].resource", "spec.podSpecPatch")
    assert one.unread == (*of_all, "spec.templates[0].podSpecPatch")
    of_several: Any = several.manifest["spec"]
    assert (of_several["containers"], several.unread) == ([{"name": "c"}], of_all)


def test_an_object_within_another_may_have_a_namespace_of_its_own() -> None:
    inner = {"kind": "Job", "metadata": {"namespace": "b"}, "spec": {"template": TEMPLATE}}
    work = {"kind": "Work", "metadata": {"namespace": "a"}, "spec": {"of": [inner, TEMPLATE]}}
    assert [each.namespace for each in find_pods(work)] == ["b", "a"]


def test_a_kind_in_other_letters_is_none_of_kubernetes() -> None:
    for version, kind in (("v1", "pod"), ("apps/v1", "deployment"), ("v1", "list")):
        document = {"apiVersion": version, "kind": kind, "items": []} | TEMPLATE
        with pytest.raises(InvalidManifest, match=f"no kind {kind}; did you mean {kind.title()}"):
            list(find_pods(document))
    assert len([*find_pods({"apiVersion": "example.com/v1", "kind": "job"} | TEMPLATE)]) == 1


def test_volumes_that_a_controller_adds_are_known() -> None:
    claims: list[Any] = [{"metadata": {"name": "data"}}, {"metadata": {"name": 7}}, {}, 7]
    spec = {"template": TEMPLATE, "volumeClaimTemplates": claims}
    (found,) = find_pods({"kind": "StatefulSet", "spec": spec})
    assert found.claimed == ("data",)


def test_templates_are_looked_for_to_a_depth_only() -> None:
    deep: Any = TEMPLATE
    for _ in range(40):
        deep = {"a": [deep]}
    assert [*find_pods({"kind": "Deep", "spec": deep})] == []


@pytest.mark.parametrize(
    ("named", "given", "used"),
    [("a", None, "a"), ("a", "a", "a"), (None, "b", "b"), (None, None, "default"), ("", "b", "b")],
)
def test_the_namespace_is_its_own_or_the_one_that_is_given(
    named: str | None, given: str | None, used: str
) -> None:
    (found,) = find_pods({"kind": "Pod", "metadata": {"namespace": named}} | TEMPLATE)
    assert found.namespace_among(given) == used
    if named:
        with pytest.raises(InvalidManifest, match="Pod is of namespace a, not of other"):
            found.namespace_among("other")


@pytest.mark.parametrize(
    "document",
    [
        {"kind": "Listing", "items": 7},
        {"kind": "List", "items": None},
        {"kind": "PodList", "items": None},
        {"apiVersion": "v1", "kind": "ServiceList", "items": 7},
        {"apiVersion": "example.com/v1", "kind": "PodList", "items": 7},
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
