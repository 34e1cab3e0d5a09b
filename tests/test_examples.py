"""The examples are what they say: every mapping serves, and the pods do as their comments tell."""

import json
import re
from pathlib import Path

import kubernetes_validate
import pytest

from services.devices.dra import DRIVER
from services.devices.types.load import load_types
from services.mappings.index import build_index
from services.mappings.model import parse
from services.names import ACCELERATOR_DOMAIN, DEVICE_DOMAIN
from services.process.yaml import Document, read_documents
from tests.accelbind.running import run
from tests.support import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
DEMO = REPOSITORY / "simulator" / "demo"
PODS = sorted([*EXAMPLES.glob("pods/*.yaml"), *DEMO.glob("pods/*.yaml")])
WORKLOADS = sorted(EXAMPLES.glob("workloads/*.yaml"))
REFUSED = {"refused.yaml", "3-misspelled.yaml", "8-forged.yaml"}


@pytest.mark.parametrize("folder", [EXAMPLES, DEMO], ids=lambda folder: folder.name)
def test_every_mapping_serves(folder: Path) -> None:
    documents = [
        document
        for path in sorted(folder.glob("mappings/*.yaml"))
        for document in read_documents(path.read_bytes())
    ]
    objects = [document.value for document in documents if isinstance(document, Document)]
    assert len(objects) == len(documents) >= 3
    index = build_index(parse(value) for value in objects)
    assert len(index) == len(objects)
    assert not any(index.namespace(name).rejected for name in index.namespaces)


@pytest.mark.parametrize("path", PODS, ids=lambda path: path.name)
def test_every_pod_does_as_its_comment_tells(path: Path) -> None:
    mappings = path.parent.parent / "mappings"
    done = run("explain", "-f", path, "--mappings", mappings, "-o", "json")
    assert done.returncode == (1 if path.name in REFUSED else 0), done.stdout + done.stderr
    assert json.loads(done.stdout)


@pytest.mark.parametrize("path", WORKLOADS, ids=lambda path: path.name)
def test_every_workload_is_admitted_and_gets_what_its_names_stand_for(path: Path) -> None:
    done = run("explain", path, "--mappings", EXAMPLES / "names", "-o", "yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    limits = re.findall(r"^ +([a-z.]+/[a-z0-9.-]+): [\"']?\d", done.stdout, re.MULTILINE)
    assert limits
    assert not [each for each in limits if each.startswith(f"{ACCELERATOR_DOMAIN}/")]


def test_every_device_type_of_the_chart_has_a_pod() -> None:
    loaded = load_types(REPOSITORY / "manifests" / "device-types", domains=(DEVICE_DOMAIN,))
    assert loaded.types
    text = (EXAMPLES / "workloads" / "devices.yaml").read_text()
    for each in loaded.types:
        assert f"name: {each.name}," in text
        assert f"{each.spec.resource.domain}/{each.spec.resource.name}: 1" in text


def test_the_type_for_virtual_machines_has_the_variable_of_their_device() -> None:
    loaded = load_types(EXAMPLES / "kubevirt", domains=(DEVICE_DOMAIN,))
    (device_type,) = loaded.types
    machine = (EXAMPLES / "kubevirt" / "vm.yaml").read_text()
    (named,) = re.findall(r"deviceName: (device\S+?)}", machine)
    (variable,) = device_type.spec.env
    assert variable.name == "PCI_RESOURCE_" + re.sub(r"[/.]", "_", named.upper())


def test_every_folder_of_examples_is_on_their_page() -> None:
    page = (EXAMPLES / "README.md").read_text()
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    assert folders == {each.partition("/")[0] for each in re.findall(r"\]\(([a-z][^)]+)\)", page)}


def test_every_claim_is_for_a_type_that_is_an_example_too() -> None:
    loaded = load_types(EXAMPLES / "devices", domains=(DEVICE_DOMAIN,))
    assert not loaded.problems
    for path in sorted(EXAMPLES.glob("claims/*.yaml")):
        for document in read_documents(path.read_bytes()):
            assert isinstance(document, Document)
            kubernetes_validate.validate(document.value, "1.36", strict=True)
        done = run("explain", "-f", path, "--mappings", EXAMPLES / "mappings")
        assert "the container gets the device" in done.stdout
        assert f"DeviceClass {loaded.types[0].name}.{DRIVER}" in done.stdout
