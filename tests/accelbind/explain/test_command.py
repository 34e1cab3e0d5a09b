import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.accelbind.running import Done, run, write_config
from tests.services.building import AF_NLB0, ARRIA, NLB0, REGION, accelerator, function, region
from tests.support import require

LOGICAL = "arria10.dcp1.0-nlb0-orchestrated"
MAPPINGS = (function(LOGICAL, "region"), function("nlb0-af", "af"), region("devel"))

POD = """
apiVersion: v1
kind: Pod
metadata:
  name: nlb
  creationTimestamp: 2026-11-21
spec:
  containers:
  - name: app
    image: registry/app:1
    env:
    - name: NODE
      valueFrom:
        fieldRef: {fieldPath: spec.nodeName}
    resources:
      limits:
        fpga.intel.com/arria10.dcp1.0-nlb0-orchestrated: 1
      requests:
        fpga.intel.com/arria10.dcp1.0-nlb0-orchestrated: 1
"""


@pytest.fixture
def maps(tmp_path: Path) -> Path:
    folder = tmp_path / "maps"
    folder.mkdir()
    (folder / "all.yaml").write_text(yaml.safe_dump_all(MAPPINGS))
    return folder


class Explain:
    """Runs the command on the text of a manifest."""

    def __init__(self, folder: Path, maps: Path) -> None:
        self._path = folder / "pod.yaml"
        self._maps = maps

    def __call__(self, manifest: str, *options: str, env: dict[str, str] | None = None) -> Done:
        self._path.write_text(manifest)
        return run("explain", "--mappings", self._maps, "-f", self._path, *options, env=env)

    def json(self, manifest: str, *options: str) -> Any:
        code, out, err = self(manifest, "-o", "json", *options)
        assert (code in (0, 1), err) == (True, "")
        explained = json.loads(out)["items"]
        assert (code == 1) is any(one["outcome"] == "refused" for one in explained)
        return explained


@pytest.fixture
def explain(tmp_path: Path, maps: Path) -> Explain:
    return Explain(tmp_path, maps)


def test_a_pod_is_shown_before_and_after_with_the_reason(explain: Explain) -> None:
    code, out, err = explain(POD)
    assert (code, err) == (0, "")
    title, rewritten, reason, *diff = out.splitlines()
    logical = "fpga.intel.com/arria10.dcp1.0-nlb0-orchestrated: 1"
    assert title == "Pod nlb in namespace default: admitted, rewritten"
    assert rewritten == f"  container app: {logical} becomes {REGION}"
    assert reason == (
        "    AcceleratorFunction default/arria10.dcp1.0-nlb0-orchestrated: function "
        f"{NLB0} of interface {ARRIA}, mode region: the container starts only with "
        "the function in its region"
    )
    changed = [line for line in diff if line.startswith(("+ ", "- "))]
    assert f"+      value: {NLB0}" in changed
    assert changed[-2:] == [f"-        {logical}", f"+        {REGION}: '1'"]


def pod(limits: str, **more: str) -> str:
    """A pod of one container, as JSON that YAML knows too."""
    metadata = {"name": "p"} | more
    containers = [{"name": "app", "resources": {"limits": json.loads(limits)}}]
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    return json.dumps(made | {"spec": {"containers": containers}})


def test_programs_get_the_patch_and_what_was_rewritten(explain: Explain) -> None:
    (explained,) = explain.json(pod('{"fpga.intel.com/nlb0-af": 2}'))
    admitted = explained.pop("admitted")
    assert admitted["metadata"]["namespace"] == "default"
    assert admitted["spec"]["containers"][0]["resources"] == {"limits": {AF_NLB0: "2"}}
    assert [each["op"] for each in explained.pop("patch")] == ["remove", "add", "add"]
    assert explained == {
        "kind": "Pod",
        "pod": "p",
        "namespace": "default",
        "outcome": "patched",
        "reasons": [],
        "message": "",
        "warnings": [],
        "hints": [],
        "claims": [],
        "template": "",
        "assumed": "",
        "rewrites": [
            {
                "container": "app",
                "init": False,
                "logical": "fpga.intel.com/nlb0-af",
                "resource": AF_NLB0,
                "count": 2,
                "mode": "af",
                "mapping": "AcceleratorFunction default/nlb0-af",
            }
        ],
    }


def test_a_refusal_is_told_and_ends_with_one(explain: Explain) -> None:
    manifest = pod('{"fpga.intel.com/nlb0": 1}')
    code, out, err = explain(manifest)
    message = (
        'container "app": fpga.intel.com/nlb0 does not exist in namespace "default"; '
        "did you mean nlb0-af? Available: "
        "arria10.dcp1.0-nlb0-orchestrated, devel and nlb0-af"
    )
    assert (code, err) == (1, "")
    assert out.splitlines() == [
        "Pod p in namespace default: refused",
        f"  ✗ {message} [unknown-name]",
    ]
    (explained,) = explain.json(manifest)
    assert (explained["admitted"], explained["patch"]) == (None, [])
    reason = {"code": "unknown-name", "container": "app", "message": message}
    assert (explained["reasons"], explained["message"]) == ([reason], message)


@pytest.mark.parametrize(
    ("manifest", "code", "why"),
    [
        (pod('{"cpu": 1}'), "nothing-asked", "no container asks for an accelerator"),
        (
            pod(f'{{"{REGION}": 1}}'),
            "already-physical",
            "it asks by physical names only, and all of them are mapped",
        ),
    ],
)
def test_a_pod_that_stays_as_it_is_says_why(
    explain: Explain, manifest: str, code: str, why: str
) -> None:
    assert explain(manifest) == (
        0,
        f"Pod p in namespace default: admitted unchanged\n  {why}\n",
        "",
    )
    (explained,) = explain.json(manifest)
    assert explained["outcome"] == "unchanged"
    assert explained["reasons"] == [{"code": code, "container": "", "message": why}]


def test_warnings_are_shown(explain: Explain) -> None:
    manifest = """
kind: Pod
metadata: {annotations: {a: b}}
spec:
  initContainers: [{name: setup, resources: {limits: {fpga.intel.com/nlb0-af: 1}}}]
  containers: [{name: app, resources: {limits: {fpga.intel.com/devel: 1}}}]
"""
    warning = "containers setup (af) and app (regiondevel): a node runs one mode only"
    code, out, err = explain(manifest)
    assert (code, "accelbind dra template devel" in err) == (0, True)
    assert out.startswith("Pod in namespace default: admitted, rewritten\n  init container setup: ")
    assert f"\n  warning: {warning}\n" in out
    assert "the container programs the region itself" in out
    assert "FpgaRegion default/devel: interface ce4" in out
    (explained,) = explain.json(manifest)
    assert explained["warnings"] == [warning]


def test_each_document_is_explained_and_counted(explain: Explain) -> None:
    template = json.loads(pod('{"fpga.intel.com/nlb0-af": 1}'))
    documents = [
        {"kind": "Deployment", "metadata": {"name": "d"}, "spec": {"template": template}},
        {"kind": "List", "items": [template]},
        json.loads(pod('{"fpga.intel.com/nlb0": 1}')),
    ]
    manifest = "---\n# nothing\n---\n" + "\n---\n".join(json.dumps(one) for one in documents)
    found = [(one["kind"], one["pod"], one["outcome"]) for one in explain.json(manifest)]
    assert found == [
        ("Deployment", "d", "patched"),
        ("Pod", "p", "patched"),
        ("Pod", "p", "refused"),
    ]
    _, out, _ = explain(manifest)
    assert out.count("\n\nPod") == 2
    assert out.endswith("\n\n2 admitted, 1 refused\n")


def test_the_namespace_of_the_pod_decides_which_mappings_count(
    explain: Explain, maps: Path
) -> None:
    mapping = function("theirs", "af", namespace="team")
    (maps / "team.yaml").write_text(yaml.safe_dump(mapping))
    theirs = '{"fpga.intel.com/theirs": 1}'
    for explained in (
        explain.json(pod(theirs, namespace="team")),
        explain.json(pod(theirs), "-n", "team"),
    ):
        assert [(one["namespace"], one["outcome"]) for one in explained] == [("team", "patched")]
    # As in the webhook, mappings without a namespace are of namespace default.
    code, out, err = explain(pod('{"fpga.intel.com/nlb0-af": 1}'), "--namespace", "team")
    assert (code, err) == (1, "")
    assert 'fpga.intel.com/nlb0-af does not exist in namespace "team"' in out
    code, _, err = explain(pod("{}", namespace="team"), "-n", "other")
    assert (code, err) == (2, "error: Pod p is of namespace team, not of other\n")


def test_the_limits_and_domains_of_the_webhook_can_be_given(explain: Explain) -> None:
    manifest = pod('{"fpga.intel.com/nlb0-af": 2}')
    (explained,) = explain.json(manifest, "--max-units", "1")
    assert explained["reasons"][0]["code"] == "too-many-units"
    both = ("--domain", "example.org", "--domain", "fpga.intel.com")
    manifest = pod('{"fpga.intel.com/nlb0-af": 2, "example.org/nlb0-af": 1}')
    (explained,) = explain.json(manifest, *both)
    assert sorted(rewrite["count"] for rewrite in explained["rewrites"]) == [1, 2]


def test_bad_mappings_are_named_beside_the_answer(explain: Explain, maps: Path) -> None:
    (maps / "bad.yaml").write_text("kind: FpgaRegion\napiVersion: fpga.intel.com/v2\n")
    code, out, err = explain(POD)
    assert code == 0
    assert out.startswith("Pod nlb")
    assert err.startswith("warning: bad.yaml")
    assert err.count("\n") == 1


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: team}
spec:
  template:
    metadata: {}
    spec:
      containers: [{name: app, resources: {limits: {fpga.intel.com/nlb0: 1}}}]
"""


def test_a_workload_is_accepted_and_its_pods_are_refused(explain: Explain) -> None:
    code, out, _ = explain(DEPLOYMENT)
    assert code == 1
    assert out.splitlines()[0] == "Deployment web in namespace team: its pods would be refused"
    assert "ask an administrator" in out
    code, out, _ = explain(DEPLOYMENT.replace("fpga.intel.com/nlb0", "cpu"))
    assert out.startswith("Deployment web in namespace team: its pods would be admitted unchanged")


@pytest.mark.parametrize(
    ("manifest", "warning"),
    [
        (
            POD.replace("resources:", "resource:"),
            'has no field "spec.containers[0].resource"; did you mean "resources"?',
        ),
        (
            DEPLOYMENT.replace("containers:", "initContainer: []\n      initContainers:"),
            'has no field "spec.template.spec.initContainer"; did you mean "initContainers"?',
        ),
        (DEPLOYMENT.replace("containers:", "initContainers:"), "spec.template.spec.containers is"),
        *[
            (POD.replace("spec:\n", f"spec:\n  {more}\n", 1), f'has no field "spec.{path}"')
            for more, path in (
                ("resources: {limit: {cpu: 1}}", "resources.limit"),
                ("resources: {gpu: 1}", "resources.gpu"),
                ("container: []", "container"),
                ("limits: {cpu: 1}", "limits"),
            )
        ],
        (
            POD.replace("spec:\n", "spec:\n  resourceClaims: []\n  colour: red\n", 1),
            "",  # which only resembles fields of resources
        ),
        (POD.replace("spec:\n", "spec:\n  ephemeralContainers: []\n", 1), ""),
        (
            POD.replace("orchestrated: 1", "orchestrated: null"),
            "has null for fpga.intel.com/arria10.dcp1.0-nlb0-orchestrated, which Kubernetes reads",
        ),
    ],
)
def test_unknown_missing_and_empty_fields_get_a_warning(
    explain: Explain, manifest: str, warning: str
) -> None:
    _, out, _ = explain(manifest)
    (explained,) = explain.json(manifest)
    lines = [each for each in out.splitlines() if each.startswith("  warning: ")]
    assert [f"  warning: {each}" for each in explained["warnings"]] == lines
    assert [warning] * bool(warning) == [warning for each in lines if warning in each][:1]


def test_the_kubeconfigs_namespace_counts_for_folders_of_mappings_too(
    explain: Explain, tmp_path: Path
) -> None:
    require("kubectl")
    env = {"KUBECONFIG": str(write_config(tmp_path, {"server": "https://127.0.0.1:9"}))}
    done = explain(POD, env=env)
    assert ("namespace n: refused" in done.stdout, done.stderr) == (True, "")
    assert "namespace default: admitted" in explain(POD, "-n", "default", env=env).stdout


GPU = accelerator(
    "gpu-small",
    "nvidia.com/mig-1g.10gb",
    alsoRequest=[{"resource": "rdma/hca", "per": "Container"}],
    env=[{"name": "TIER", "value": "small"}],
    nodeSelector={"a": "b"},
    tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    runtimeClassName="nvidia",
)
GPU_POD = """
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  containers:
  - name: app
    image: registry/app:1
    resources: {limits: {accelbind.dev/gpu-small: 2, nvidia.com/mig-1g.10gb: 1}}
"""


def test_names_of_accelerators_are_explained(explain: Explain, maps: Path) -> None:
    (maps / "gpu.yaml").write_text(yaml.safe_dump(GPU))
    status, text, _ = explain(GPU_POD)
    assert status == 0
    assert "accelbind.dev/gpu-small: 2 becomes nvidia.com/mig-1g.10gb" in text
    for each in (
        "1 of nvidia.com/mig-1g.10gb for each unit",
        "1 of rdma/hca for each container",
        "variable TIER",
        "node selector a=b",
        "toleration of nvidia.com/gpu",
        "runtime class nvidia",
    ):
        assert each in " ".join(text.split())


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("intel.com/nlb0-af", "fpga.intel.com/nlb0-af"),
        ("fgpa.intel.com/nlb0-af", "fpga.intel.com/nlb0-af"),
        (AF_NLB0.replace("fpga.", ""), AF_NLB0),
        ("nlb0-af", "fpga.intel.com/nlb0-af"),
        ("intel.com/qat", None),
        ("example.org/nlb0", None),
        ("accelbind.de/gpu-small", "accelbind.dev/gpu-small"),
        ("gpu-shared", "accelbind.dev/gpu-shared"),
        ("nvidia.com/gpu-small", None),
    ],
)
def test_a_resource_that_was_probably_meant_to_be_ours_gets_a_hint(
    explain: Explain, maps: Path, key: str, meant: str | None
) -> None:
    shared = accelerator("gpu-shared", "nvidia.com/gpu", namespace="lib")
    (maps / "gpu.yaml").write_text(yaml.safe_dump_all([GPU, shared]))
    manifest, options = pod(json.dumps({key: 1})), ("--shared-namespace", "lib")
    code, out, err = explain(manifest, *options)
    assert (code, "admitted unchanged" in out) == (0, True)
    hint = (
        f'hint: Pod p: container "app" asks for {key}, which accelbind does not serve; did you mean'
        f" {meant}?\n"
    )
    assert err == (hint if meant else "")
    (explained,) = explain.json(manifest, *options)
    assert len(explained["hints"]) == bool(meant)


def test_a_guard_is_explained_for_the_pod_after_its_patch(explain: Explain, maps: Path) -> None:
    (maps / "gpu.yaml").write_text(yaml.safe_dump(GPU))
    guard = ("--guard", "nvidia.com/*")
    status, text, _ = explain(GPU_POD, *guard)
    assert status == 1
    assert "the container has 3, but the names" in " ".join(text.split())
    assert "[guarded-resource]" in text
    by_name = GPU_POD.replace(", nvidia.com/mig-1g.10gb: 1", "")
    assert explain(by_name, *guard)[0] == 0
    physical = GPU_POD.replace("accelbind.dev/gpu-small: 2, ", "")
    assert explain(physical)[0] == 0
    assert explain(physical, *guard)[0] == 1
    assert explain(by_name.replace("gpu-small", "gpu"), *guard)[0] == 1


TYPED = "device.accelbind.dev/x"
CLASS = "deviceclass.resource.kubernetes.io/gpu"
OURS = "fpga.intel.com/nlb0-af"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        *[
            (f"resources: {{{part}: {{{key}: 1}}}}", f"{key} is in spec.resources, where")
            for part in ("limits", "requests")
            for key in (TYPED, OURS, "b-com.com/accelerator", "nvidia.com/mig-1g.10gb", CLASS)
        ],
        ("resources: {claims: [{name: a}]}", "claims is in spec.resources"),
        ("resources: {claims: []}", ""),
        ("resources: {limits: {ephemeral-storage: 1Gi}}", "ephemeral-storage is in spec.resources"),
        ("overhead: {fpga.intel.com/nlb0: 1}", "fpga.intel.com/nlb0 is in spec.overhead"),
        (
            f"ephemeralContainers: [{{name: e, resources: {{limits: {{{TYPED}: 1}}}}}}]",
            f"{TYPED} is in spec.ephemeralContainers[0].resources",
        ),
        (
            f"initContainers: [{{name: i, resources: {{requests: {{{TYPED}: 1}}}}}}]",
            "not in limits",
        ),
        (f"initContainers: [{{name: i, resources: {{limits: {{{TYPED}: 500m}}}}}}]", "quantity of"),
        ("resources: {limits: {cpu: 1, hugepages-2Mi: 2Mi}}", ""),
        ("overhead: {cpu: 1}", ""),
        (f"initContainers: [{{name: i, resources: {{limits: {{{TYPED}: 1}}}}}}]", ""),
        ("initContainers: [{name: i, resources: {limits: {a.kubernetes.io/b: x}}}]", ""),
        ("initContainers: [{name: i, resources: {requests: {memory: 1Mi}}}]", ""),
    ],
)
def test_a_pod_that_an_api_server_refuses_for_its_resources_is_refused(
    explain: Explain, spec: str, words: str
) -> None:
    """As a 1.36 API server refuses them, which calls no webhook for some."""
    plain_pod = POD.partition("    resources:")[0]
    for text in (POD, plain_pod):
        done = explain(text.replace("spec:\n", f"spec:\n  {spec}\n", 1))
        assert done.returncode == bool(words), done
        assert words in " ".join(done.stdout.split())


RAY = """
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: ray}
spec:
  headGroupSpec: {template: {spec: {containers: [{name: head}]}}}
  workerGroupSpecs: [{template: {spec: {containers: [{name: w, resources: {limits: LIMITS}}]}}}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
"""


def test_objects_of_others_are_read_and_those_without_pods_are_named(explain: Explain) -> None:
    code, out, err = explain(RAY.replace("LIMITS", "{fpga.intel.com/none: 1}"))
    assert (code, err) == (1, "")
    titles = [line.split(" in ") for line in out.splitlines() if line.startswith("RayCluster")]
    pods = "namespace default: its pods would be"
    assert titles == [
        ["RayCluster ray, spec.headGroupSpec.template", f"{pods} admitted unchanged"],
        ["RayCluster ray, spec.workerGroupSpecs[0].template", f"{pods} refused"],
    ]
    assert out.endswith("\nwithout pods: Service web\n")


def test_a_file_in_which_nothing_is_read_is_an_error_beside_the_answers(
    tmp_path: Path, maps: Path
) -> None:
    service, good, folder = tmp_path / "service.yaml", tmp_path / "good.yaml", tmp_path / "folder"
    service.write_text("kind: Service\nmetadata: {name: web}\n")
    good.write_text(POD)
    folder.mkdir()
    (folder / "service.yaml").write_text(service.read_text())
    (folder / "below").mkdir()
    (folder / ".git").mkdir()
    (folder / "below/pod.yaml").write_text(POD)
    (folder / ".git/pod.yaml").write_text(POD)
    code, out, err = run("explain", good, folder, "-f", service, "--mappings", maps)
    assert (code, err) == (
        2,
        f"error: {service}: no pod, and no template of one (a spec with containers)\n",
    )
    assert ".git" not in out
    for each in (good, folder / "below/pod.yaml"):
        assert f"{each}: Pod nlb in namespace default: admitted, rewritten\n" in out
    assert out.endswith(
        f"\nwithout pods: Service web in {folder / 'service.yaml'}, Service web in {service}\n"
    )
    assert run("explain", good, folder, "--mappings", maps).returncode == 0
    done = run("explain", service, "--mappings", maps)
    assert (done.returncode, done.stderr.count("no pod, and no template")) == (2, 1)


def test_a_file_that_cannot_be_read_is_an_error_beside_the_answers(
    tmp_path: Path, maps: Path
) -> None:
    good, broken, missing = (tmp_path / name for name in ("good.yaml", "broken.yaml", "none.yaml"))
    good.write_text(POD)
    broken.write_text("a: [")
    code, out, err = run("explain", missing, good, broken, "--mappings", maps)
    assert code == 2
    assert "Pod nlb in namespace default: admitted, rewritten\n" in out
    first, second = err.splitlines()
    assert first == f"error: {missing}: No such file or directory"
    assert second.startswith(f"error: {broken}, line ")
    assert run("explain", missing, "--mappings", maps).stderr == f"{first}\n"
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    code, out, err = run("explain", tmp_path, "--mappings", maps)
    assert (code, err) == (2, f"{second}\n")
    assert f"nothing in {tmp_path / 'empty.yaml'}, " in out


def test_pods_are_printed_as_they_would_be(explain: Explain) -> None:
    refused = pod('{"fpga.intel.com/no": 1}')
    code, out, err = explain(f"{POD}---\n{DEPLOYMENT}---\n{refused}", "-o", "yaml")
    assert code == 1
    assert err.count("refused: ") == 2
    (made,) = yaml.safe_load_all(out)
    assert (made["apiVersion"], made["kind"], made["metadata"]["namespace"]) == (
        "v1",
        "Pod",
        "default",
    )
    assert made["spec"]["containers"][0]["resources"]["limits"] == {REGION: "1"}
    template = DEPLOYMENT.replace("fpga.intel.com/nlb0", "cpu")
    first, second = yaml.safe_load_all(explain(f"{POD}---\n{template}", "-o", "yaml")[1])
    assert (first, second["metadata"]) == (made, {"namespace": "team", "generateName": "web-"})
