"""`accelbind explain` on a cluster says what the API server says."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from accelbind.explain.dry_run import Denied, DryRun, dry_run
from services.kube.client import BadStatus, ClusterClient
from services.pods.manifests import find_pods
from simulator.apiserver.http_server import Request, Response
from simulator.apiserver.standin import ApiServerStandIn
from tests.accelbind.doctor.answers import Answers, Json, answering, denied, first_of, one
from tests.accelbind.running import Done, run_process
from tests.services.building import accelerator
from tests.simulator.apiserver.support import function, pod

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
PODS = "/api/v1/namespaces/default/pods"
NAME = "fpga.intel.com/nlb0"


def refusal(message: str, code: int = 403) -> Answers:
    """The API server's refusal of pods, as one of 1.36 writes it."""
    return one(PODS, {"kind": "Status", "code": code, "message": message})


def may(*, allowed: bool) -> Answers:
    """The answer about the right to create pods."""
    return one(REVIEWS, {"status": {"allowed": allowed}})


class Explain:
    """Runs the command on a stand-in with some other answers."""

    def __init__(self, api: ApiServerStandIn, folder: Path) -> None:
        self.api = api
        self.path = folder / "pod.json"

    @property
    def requests(self) -> list[Request]:
        return [each.request for each in self.api.seen if each.request.path == PODS]

    async def __call__(self, document: Json, *answers: Answers, options: str = "") -> Done:
        self.path.write_text(json.dumps(document))
        flags = ("--api-server", self.api.address, *options.split())
        with answering(self.api, first_of(*answers)):
            return await asyncio.to_thread(run_process, "explain", self.path, *flags)

    async def dry_run(self, *answers: Answers) -> DryRun:
        (found,) = find_pods(pod())
        with answering(self.api, first_of(*answers)):
            async with ClusterClient(self.api.access) as client:
                return await dry_run(client, found, "default")

    async def json(self, document: Json, *answers: Answers) -> Json:
        done = await self(document, *answers, options="-o json")
        (found,) = json.loads(done.stdout)["items"]
        return dict(found)


@pytest.fixture
def explain(api: ApiServerStandIn, tmp_path: Path) -> Explain:
    return Explain(api, tmp_path)


REFUSALS = [
    (
        'admission webhook "pods.accelbind.dev" denied the request: container "c": no',
        ("webhook", "webhook pods.accelbind.dev", 'container "c": no'),
    ),
    (
        'admission webhook "guard.example" denied the request without explanation',
        ("webhook", "webhook guard.example", "without explanation"),
    ),
    (
        'Internal error occurred: failed calling webhook "w.example": failed to call webhook: EOF',
        ("webhook-failed", "webhook w.example, which can't be called", "Internal error"),
    ),
    (
        'pods "p" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=2',
        ("quota", "ResourceQuota gpus", "exceeded quota: gpus"),
    ),
    (
        'pods "p" is forbidden: failed quota: cpus: must specify limits.cpu for: c',
        ("quota", "ResourceQuota cpus", "failed quota: cpus"),
    ),
    (
        'pods "p" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true',
        ("pod-security", "pod security restricted:latest", "violates PodSecurity"),
    ),
    (
        'pods "p" is forbidden: [maximum cpu usage per Container is 2, but limit is 3]',
        ("limit-range", "a LimitRange", "[maximum cpu usage"),
    ),
    (
        'pods "p" is forbidden: cpu max limit to request ratio per Container is 2, but',
        ("limit-range", "a LimitRange", "cpu max limit"),
    ),
    (
        "pods \"p\" is invalid: : ValidatingAdmissionPolicy 'a' with binding 'b' denied request: x",
        ("policy", "ValidatingAdmissionPolicy a", "x"),
    ),
    (
        'Pod "p" is invalid: spec.containers[0].image: Required value',
        ("api-server", "the API server", "spec.containers[0].image: Required"),
    ),
    (
        'namespaces "n" not found',
        ("api-server", "the API server", 'namespaces "n" not found'),
    ),
]


@pytest.mark.parametrize(("message", "told"), REFUSALS)
async def test_a_refusal_has_its_author_and_no_more_than_the_authors_words(
    explain: Explain, message: str, told: tuple[str, str, str]
) -> None:
    # A webhook chooses its status: controller-runtime has 500 for errors.
    of_any = (401, 429, 500, 503) if "admission webhook" in message else ()
    for code in (500,) if message.startswith("Internal error") else (403, 404, 422, *of_any):
        result = await explain.dry_run(refusal(message, code))
        assert isinstance(result, Denied)
        assert (result.code, result.author) == told[:2]
        assert result.message.startswith(told[2])


async def test_a_refusal_is_shown_with_its_author(explain: Explain) -> None:
    message, _ = REFUSALS[0]
    done = await explain(pod(), refusal(message))
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "Pod p in namespace default: refused",
        '  ✗ by webhook pods.accelbind.dev: container "c": no [webhook]',
    ]
    found = await explain.json(pod(), refusal(message))
    (why,) = found["reasons"]
    author = "webhook pods.accelbind.dev"
    assert (found["outcome"], why["code"], why["by"]) == ("refused", "webhook", author)
    assert found["admitted"] is None


@pytest.mark.parametrize(
    ("message", "code"),
    [("", 403), ("etcd is down", 500), ("try again", 429), ("Unauthorized", 401)],
)
async def test_an_answer_that_says_nothing_of_the_pod_is_no_refusal(
    explain: Explain, message: str, code: int
) -> None:
    with pytest.raises(BadStatus, match=f"answers {code} to the dry run of a pod"):
        await explain.dry_run(refusal(message, code))


def created(body: Json) -> Answers:
    return one(PODS, body)


def admitted(limits: Json, *, env: bool = False, **spec: Any) -> Json:
    """A pod as it comes back: with defaults, and what admission added."""
    container: Json = {
        "name": "c",
        "image": "reg/app:1",
        "resources": {"limits": limits, "requests": limits},
        "terminationMessagePath": "/dev/termination-log",
        "volumeMounts": [{"name": "kube-api-access-x", "mountPath": "/a"}],
    }
    if env:
        container["env"] = [{"name": "TIER", "value": "small"}]
    usual = {
        "volumes": [{"name": "kube-api-access-x"}],
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
        "dnsPolicy": "ClusterFirst",
        "containers": [container],
    }
    metadata = {"name": "p", "namespace": "default", "uid": "u", "managedFields": []}
    body = {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": usual | spec}
    return body | {"status": {"phase": "Pending"}}


async def test_a_pod_is_shown_as_it_came_back_without_the_defaults_of_all_pods(
    explain: Explain,
) -> None:
    explain.api.put(function("nlb0"))
    limits = {"nvidia.com/gpu": "1", "cpu": "1"}
    came = created(admitted(limits, env=True, nodeSelector={"a": "b"}))
    done = await explain(pod(resource=NAME), came)
    assert done.returncode == 0
    title, rewritten, why, *diff = done.stdout.splitlines()
    assert title == "Pod p in namespace default: admitted, rewritten"
    assert rewritten == f"  container c: {NAME}: 1 becomes nvidia.com/gpu: 1"
    assert why.startswith("    AcceleratorFunction default/nlb0: function ")
    changed = [line.strip("+- ") for line in diff if line[:1] in "+-" and line[1:2] == " "]
    assert changed == [
        *(f"{NAME}: 1", "nvidia.com/gpu: '1'", "cpu: '1'"),
        *("env:", "name: TIER", "value: small", "nodeSelector:", "a: b"),
    ]
    document = yaml.safe_load((await explain(pod(), came, options="-o yaml")).stdout)
    assert document.keys() == {"kind", "apiVersion", "metadata", "spec"}
    assert document["metadata"] == {"name": "p", "namespace": "default"}
    assert document["spec"]["dnsPolicy"] == "ClusterFirst"


async def test_a_pod_that_only_gets_the_defaults_is_admitted_unchanged(explain: Explain) -> None:
    came = created(admitted({"nvidia.com/gpu": "1"}))
    done = await explain(pod(resource="nvidia.com/gpu"), came)
    assert done == (0, "Pod p in namespace default: admitted unchanged\n", "")
    found = await explain.json(pod(resource="nvidia.com/gpu"), came)
    assert (found["outcome"], found["reasons"], found["rewrites"]) == ("unchanged", [], [])


async def test_a_name_may_become_a_claim_and_its_mapping_be_unreadable(explain: Explain) -> None:
    unreadable = denied("/apis/fpga.intel.com")
    came = admitted({})
    came["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    found = await explain.json(pod(resource=NAME), unreadable, created(came))
    (rewrite,) = found["rewrites"]
    assert (rewrite["logical"], rewrite["resource"], rewrite["mapping"]) == (NAME, "", "")
    before = len(explain.api.seen)
    done = await explain(pod(resource=NAME), unreadable, created(came))
    assert f"  container c: {NAME}: 1 becomes claim gpu\n" in done.stdout
    paths = [each.request.path for each in explain.api.seen[before:]]
    assert len([each for each in paths if "/fpga.intel.com/" in each]) == 1


async def test_each_name_of_a_container_becomes_what_its_own_mapping_stands_for(
    explain: Explain,
) -> None:
    names = {name: f"accelbind.dev/{name}" for name in ("gpu", "pair", "nic", "unknown")}
    explain.api.put(accelerator("gpu", "a.example/gpu", alsoRequest=[{"resource": "a.example/b"}]))
    explain.api.put(accelerator("pair", "", target={"claimTemplate": "gpu-nic"}))
    explain.api.put(accelerator("nic", "", target={"claimTemplate": "one-nic"}))
    came = admitted({"a.example/gpu": "1", "a.example/b": "1"})
    came["spec"]["containers"][0]["resources"]["claims"] = [{"name": "nic-0"}, {"name": "pair-0"}]
    came["spec"]["resourceClaims"] = [
        {"name": "pair-0", "resourceClaimTemplateName": "gpu-nic"},
        {"name": "nic-0", "resourceClaimTemplateName": "one-nic"},
    ]
    asked = pod()
    asked["spec"]["containers"][0]["resources"] = {"limits": dict.fromkeys(names.values(), "1")}
    lines = (await explain(asked, created(came))).stdout.splitlines()
    resources = "a.example/gpu: 1, a.example/b: 1"
    assert [line for line in lines if " becomes " in line] == [
        f"  container c: {names['gpu']}: 1 becomes {resources}",
        f"  container c: {names['pair']}: 1 becomes claim pair-0",
        f"  container c: {names['nic']}: 1 becomes claim nic-0",
        (
            f"  container c: {names['unknown']}: 1 becomes {resources}, claim nic-0, claim pair-0,"
            " together with the other names"
        ),
    ]


async def test_a_template_is_asked_about_as_the_pod_that_its_controller_makes(
    explain: Explain,
) -> None:
    template = {"metadata": {"name": "no", "labels": {"a": "b"}}, "spec": pod()["spec"]}
    volumes = [{"metadata": {"name": "data"}}]
    spec = {"template": template, "volumeClaimTemplates": volumes}
    document = {"kind": "StatefulSet", "metadata": {"name": "web"}, "spec": spec}
    done = await explain(document)
    assert done.stdout.startswith(
        "StatefulSet web in namespace default: its pods would be admitted"
    )
    assert "policies that look at the user saw you" in done.stderr
    (request,) = explain.requests
    sent = json.loads(request.body)
    assert sent["metadata"] == {
        "labels": {"a": "b"},
        "namespace": "default",
        "generateName": "web-",
    }
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}}
    assert sent["spec"]["volumes"] == [claim]
    assert request.query == {"dryRun": "All", "fieldValidation": "Strict"}
    await explain({"apiVersion": "ray.io/v1", "kind": "RayJob", "spec": {"a": template}})
    assert explain.requests[-1].query["fieldValidation"] == "Warn"


async def test_a_pod_that_exists_is_asked_about_by_another_name(explain: Explain) -> None:
    explain.api.put(pod())
    document = pod() | {"status": {}}
    document["metadata"] |= {"uid": "u", "resourceVersion": "7"}
    done = await explain(document)
    assert (done.returncode, done.stdout.splitlines()[0]) == (
        0,
        "Pod p in namespace default: admitted unchanged",
    )
    assert "warning: a pod of this name exists already" in done.stdout
    first, second = (json.loads(each.body) for each in explain.requests)
    assert first["metadata"] == {"name": "p", "namespace": "default"}
    assert second["metadata"] == {"generateName": "p-", "namespace": "default"}


ASSUMED = "assumed: you may not create pods in namespace default; evaluated here as by a webhook"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", "no shared namespace, no guard and --max-units 64"),
        ("--shared-namespace s --guard x.y/* --max-units 3", "--shared-namespace s, --guard x.y/*"),
    ],
)
async def test_a_missing_right_is_no_refusal_and_the_answer_says_what_it_assumes(
    explain: Explain, options: str, words: str
) -> None:
    explain.api.put(function("nlb0"))
    done = await explain(pod(resource=NAME), may(allowed=False), options=options)
    assert done.returncode == 0
    assert f"{NAME}: 1 becomes fpga.intel.com/" in done.stdout
    assert f"{ASSUMED} with {words}" in done.stdout
    assert explain.requests == []
    assert (await explain(pod(resource=NAME), may(allowed=True))).returncode == 0
    assert len(explain.requests) == 1


async def test_a_webhook_that_knows_no_dry_runs_leaves_the_answer_open(explain: Explain) -> None:
    message = 'admission webhook "w.example" does not support dry run'
    done = await explain(pod(), refusal(message, 400))
    assert done.returncode == 0
    assert "assumed: webhook w.example does not support dry runs; evaluated here" in done.stdout


async def test_without_any_right_there_is_no_answer(explain: Explain) -> None:
    done = await explain(pod(resource=NAME), may(allowed=False), denied("fpga.intel.com"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "you may not create pods in namespace default, and the API server" in done.stderr


async def test_a_parameter_that_a_controller_fills_in_is_no_refusal(explain: Explain) -> None:
    job: Json = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"template": pod() | {"metadata": {"labels": {"a": "{{workflow.name}}"}}}},
    }
    refused = 'Pod "p" is invalid: metadata.labels: Invalid value: "{{workflow.name}}"'

    def answer(request: Request) -> Json | None:
        if request.path != PODS:
            return None
        sent: Json = json.loads(request.body)
        if "{{workflow.name}}" in request.body.decode():
            return {"kind": "Status", "code": 422, "message": refused}
        assert sent["metadata"]["labels"] == {"a": "1"}
        assert sent["spec"]["containers"][0]["args"] == ["1-1", 7]
        return sent

    job["spec"]["template"]["spec"]["containers"][0]["args"] = ["{{a}}-{{b}}", 7]
    done = await explain(job, answer)
    assert (done.returncode, "admitted unchanged" in done.stdout) == (0, True)
    assert "warning: {{workflow.name}}, which its controller fills in, was" in done.stdout
    for message in (REFUSALS[0][0], 'Pod "p" is invalid: spec.containers[0].image: Required'):
        done = await explain(job, refusal(message))
        assert (done.returncode, "fills in" in done.stdout) == (1, False)


@pytest.mark.parametrize(
    ("allowed", "hidden"), [("default", "fpga.intel.com"), ("", "/other/acceleratorfunctions")]
)
async def test_pods_without_an_answer_take_none_from_the_others(
    explain: Explain, allowed: str, hidden: str
) -> None:
    def answer(request: Request) -> Json | None:
        there = request.path == REVIEWS and json.loads(request.body)["spec"]["resourceAttributes"]
        return {"status": {"allowed": there["namespace"] == allowed}} if there else None

    other = pod() | {"metadata": {"name": "q", "namespace": "other"}}
    pods = {"apiVersion": "v1", "kind": "List", "items": [pod(), other]}
    done = await explain(pods, denied(hidden), answer, created(admitted({})))
    assert (done.returncode, "Pod p in namespace default: admitted" in done.stdout) == (2, True)
    assert "error: Pod q: you may not create pods in namespace other, and the" in done.stderr


@pytest.mark.parametrize("code", [201, 403])
async def test_warnings_of_the_api_server_are_shown(explain: Explain, code: int) -> None:
    warning = ("Warning", '299 - "a \\"quoted\\" text", 299 - "another"')
    body = json.dumps(admitted({}) if code == 201 else {"message": "no"}).encode()
    explain.path.write_text(json.dumps(pod()))
    with explain.api.faults.answering(
        lambda _: Response(code, body, (warning,)), matches=lambda each: each.path == PODS
    ):
        flags = ("--api-server", explain.api.address)
        done = await asyncio.to_thread(run_process, "explain", explain.path, *flags)
    assert '  warning: a "quoted" text\n  warning: another\n' in done.stdout
