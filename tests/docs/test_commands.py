"""The commands in the documentation work, in the order of their page."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from accelbind.cli import main
from accelbind.doctor import command as doctor
from tests.docs import blocks, elsewhere, playing, test_kept
from tests.docs.blocks import Command, commands
from tests.docs.cluster import Cluster, cluster
from tests.docs.playing import PROGRAMS, Scene
from tests.support import REPOSITORY

Json = dict[str, Any]

PAGES = blocks.pages()
INSTALLED = (
    "kubectl label node worker-1 accelbind.dev/plugin=true",
    "kubectl apply -k manifests/overlays/af",
    "kubectl -n accelbind-system rollout status deployment/accelbind-webhook --timeout=60s",
    "kubectl -n accelbind-system rollout status daemonset/accelbind-plugin --timeout=60s",
    "kubectl apply -f manifests/samples/namespace.yaml -f manifests/samples/mappings",
    "kubectl apply -f manifests/samples/pods",
)
INSTALLING = {
    "README.md": (),
    "docs/administrators.md": (),
    "docs/migration.md": ("kubectl apply -f docs/old.yaml",),
    "docs/pools.md": (),
    "docs/quickstart.md": (),
}
"""Pages that install accelbind, and what comes before. The others find it installed."""

SAID = {
    "README.md": ("accelbind-plugin created", "node/worker-1 labeled"),
    "docs/quickstart.md": ("1 of 1 pod ran", '{"fpga.intel.com/af-ce4.d84.', "rolled out"),
    "docs/pod-authors.md": ("+ FPGA_AFU_2=", "exit code 1"),
    "docs/administrators.md": ("dfl-port.0", "node/worker-1 uncordoned", '"cluster.served"'),
    "docs/migration.md": (
        'fpgadeviceplugin.deviceplugin.intel.com "fpgadeviceplugin-sample" deleted',
    ),
}
"""What must be in the commands' output."""


@pytest.fixture
def empty(tmp_path: Path, short_dir: Path) -> Iterator[Cluster]:
    with cluster(tmp_path, short_dir) as made:
        yield made


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("installed")
    with (
        tempfile.TemporaryDirectory(prefix="ab-", dir="/tmp", ignore_cleanup_errors=True) as short,
        cluster(folder, Path(short)) as made,
    ):
        Scene(folder, made).play((), INSTALLED)
        yield made


def old_suite() -> Iterator[Json]:
    """What an Intel suite and a b<>com plugin leave in a cluster, as far as pages name it."""
    served = {"intelfpgawebhook": ["fpga"], "intel-deviceplugins": ["fpga", "sgx"]}
    for prefix, devices in served.items():
        yield {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": f"{prefix}-mutating-webhook-configuration"},
            "webhooks": [
                {
                    "name": f"{device}.mutator.webhooks.intel.com",
                    "admissionReviewVersions": ["v1"],
                    "clientConfig": {"url": "https://127.0.0.1:9/pods"},
                    "failurePolicy": "Ignore",
                    "sideEffects": "None",
                }
                for device in devices
            ],
        }
    yield {
        "apiVersion": "deviceplugin.intel.com/v1beta1",
        "kind": "FpgaDevicePlugin",
        "metadata": {"name": "fpgadeviceplugin-sample"},
        "spec": {"mode": "af"},
    }
    yield {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "accelerator-device-plugin-daemonset", "namespace": "kube-system"},
        "spec": {},
    }


def played(page: str) -> list[Command]:
    return [one for one in commands(page) if elsewhere.who_runs(one.plain) is None]


def check(page: str, said: str) -> None:
    assert [words for words in SAID.get(page, ()) if words not in said] == []


@pytest.mark.timeout(playing.TIME_LIMIT + 30)
@pytest.mark.parametrize("page", INSTALLING)
def test_the_commands_of_a_page_that_installs_accelbind_work(
    page: str, empty: Cluster, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, empty)
    (scene.home / "docs" / "old.yaml").write_text(yaml.safe_dump_all(old_suite()))
    check(page, scene.play(commands(page), INSTALLING[page]))


@pytest.mark.timeout(playing.TIME_LIMIT + 30)
@pytest.mark.parametrize(
    "page", [each for each in PAGES if played(each) and each not in (*INSTALLING, test_kept.PAGE)]
)
def test_the_commands_of_a_page_work(page: str, installed: Cluster, tmp_path: Path) -> None:
    check(page, Scene(tmp_path, installed).play(commands(page)))


@pytest.mark.parametrize("page", PAGES)
def test_each_command_is_one_that_is_run(page: str) -> None:
    unknown = [
        f"{one.page}:{one.line}: {one.plain}"
        for one in played(page)
        if not one.programs <= PROGRAMS
    ]
    assert unknown == [], "run it here (PROGRAMS), or say who does (elsewhere.py)"
    assert set(blocks.languages(page)) <= {*blocks.SHELL, *blocks.INERT}


def test_commands_listed_as_run_elsewhere_are_run_there() -> None:
    script = (REPOSITORY / ".ci" / "run").read_text()
    usual = script.partition("targets=(")[2].partition(")")[0]
    used = set()
    for one in (one for page in PAGES for one in commands(page)):
        runner = elsewhere.who_runs(one.plain)
        if runner == elsewhere.CI:
            target = one.plain.removeprefix("make ").split()[0]
            assert target in ("setup", *usual.split()), one
        elif runner not in (None, elsewhere.BY_HAND):
            file, name = runner.split("::")
            assert re.search(rf"def {name}\b", (REPOSITORY / file).read_text()), runner
        used |= {pattern for pattern in elsewhere.ELSEWHERE if re.fullmatch(pattern, one.plain)}
    assert set(elsewhere.ELSEWHERE) - used == set(), "no page has such a command any more"


def named_within_text() -> dict[str, set[str]]:
    """Return the commands that are named within sentences, and the flags shown with them."""
    found: dict[str, set[str]] = {}
    for page in PAGES:
        if page == "docs/reference.md":  # generated from the code
            continue
        for span in blocks.inline_commands(page):
            words = span.split()[1:]
            names = [word for word in words if re.fullmatch(r"[a-z]+(-[a-z]+)*", word)]
            if names and names[0] == "has":  # a message of accelbind
                continue
            groups = {"certs", "fpga", "bitstream", "names", "check"}
            depth = 2 if names and names[0] in groups else 1
            name = " ".join(words[: min(depth, len(names))])
            flags = {re.split(r"[=\[]", word)[0] for word in words if word.startswith("--")}
            found.setdefault(name, set()).update(flags)
    return found


def test_commands_within_sentences_exist_with_their_flags(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "200")
    for name, flags in named_within_text().items():
        assert main([*name.split(), "--help"]) == 0, f"accelbind {name}"
        shown = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
        assert flags - shown == set(), name


CHECK = re.compile(r"(?:`|--only )((?:cluster|node)\.[a-z][a-z.-]*)(?=[`\s])")


def test_checks_of_the_doctor_that_are_named_exist() -> None:
    named = {
        check
        for page in PAGES
        for check in CHECK.findall((REPOSITORY / page).read_text())
        if page != "CHANGELOG.md"
    }
    known = [*doctor.NODE, *doctor.CLUSTER, "cluster.api-server"]
    assert len(named) > 5
    assert [each for each in named if not any(name.startswith(each) for name in known)] == []


def test_logs_of_several_pods_are_asked_for_whole() -> None:
    """With a label kubectl shows the last ten lines of each, unless told otherwise."""
    shown = " ".join((REPOSITORY / page).read_text() for page in PAGES)
    found = re.findall(r"kubectl [^`|]*\blogs\b[^`|]* -l [^`|]*", " ".join(shown.split()))
    assert found
    assert [each for each in found if "--tail=-1" not in each] == []


def test_links_lead_somewhere() -> None:
    dead = []
    for page in PAGES:
        text = re.sub(r"`[^`\n]*`", "", (REPOSITORY / page).read_text())  # patterns look like links
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = target.partition("#")
            if "://" in target:
                continue
            file = (REPOSITORY / page).parent / path if path else REPOSITORY / page
            if not file.exists() or (anchor and anchor not in anchors(file)):
                dead.append(f"{page}: {target}")
    assert dead == []


def anchors(file: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def test_every_page_can_be_found_from_the_readme() -> None:
    known, todo = set[Path](), [REPOSITORY / "README.md"]
    while todo:
        file = todo.pop().resolve()
        if file not in known and file.suffix == ".md" and file.exists():
            known.add(file)
            links = re.findall(r"\]\(([^)#:\s]+)[^)]*\)", file.read_text())
            todo += [file.parent / link for link in links]
    assert {(REPOSITORY / page).resolve() for page in PAGES} - known == set()
