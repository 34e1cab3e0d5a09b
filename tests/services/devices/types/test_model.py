"""The JSON Schema that editors get, and what the structs themselves refuse."""

import json

import jsonschema
import pytest
import yaml

from services.devices.types.parsing import InvalidType
from tests.services.devices.types.making import ENGINE, type_of
from tools.docs.device_types import page


def test_the_schema_takes_a_type_and_no_unknown_field() -> None:
    check = jsonschema.Draft202012Validator(json.loads(page()))
    good = yaml.safe_load(ENGINE)
    assert list(check.iter_errors(good)) == []
    good["spec"]["match"][0]["pci"]["vendor"] = ["0x1bcf"]
    good["spec"]["mounts"] = ["/etc"]
    assert len(list(check.iter_errors(good))) == 2


def test_an_id_that_yaml_reads_as_another_number_is_to_be_quoted() -> None:
    match = [{"pci": {"vendor": [1e52]}}]
    with pytest.raises(InvalidType, match="put it into quotes"):
        type_of({"match": match, "nodes": [{"class": "tenstorrent"}]})
