"""The examples are what they say: every mapping serves, and the pods do as their comments tell."""

import json
from pathlib import Path

import kubernetes_validate
import pytest

from services.devices.dra import DRIVER
from services.devices.types.load import load_types
from services.mappings.index import build_index
from services.mappings.model import parse
from services.names import DEVICE_DOMAIN
from services.process.yaml import Document, read_documents
from tests.accelbind.running import run
from tests.support import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
DEMO = REPOSITORY / "simulator" / "demo"
PODS = sorted([*EXAMPLES.glob("pods/*.yaml"), *DEMO.glob("pods/*.yaml")])
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
