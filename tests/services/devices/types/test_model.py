"""The JSON Schema that editors get, and what the structs themselves refuse."""

import json

import jsonschema
import yaml

from tests.services.devices.types.making import ENGINE
from tools.docs.device_types import page


def test_the_schema_takes_a_type_and_no_unknown_field() -> None:
    check = jsonschema.Draft202012Validator(json.loads(page()))
    good = yaml.safe_load(ENGINE)
    assert list(check.iter_errors(good)) == []
    good["spec"]["match"][0]["pci"]["vendor"] = ["0x1bcf"]
    good["spec"]["mounts"] = ["/etc"]
    assert len(list(check.iter_errors(good))) == 2
