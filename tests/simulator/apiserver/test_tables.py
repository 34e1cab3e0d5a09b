"""Tables of the API server stand-in, for `kubectl get`. tests/docs/test_kept calls kubectl."""

from datetime import timedelta

import pytest

from simulator.apiserver.resources import ACCELERATORS, FUNCTIONS, REGIONS, Resource
from simulator.apiserver.tables import duration, wants_table
from tools.docs.crds import definition


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-1, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (47 * 3600, "47h"), (172800, "2d")],
)
def test_an_age_has_one_unit(seconds: int, shown: str) -> None:
    assert duration(timedelta(seconds=seconds)) == shown


@pytest.mark.parametrize("resource", [FUNCTIONS, REGIONS, ACCELERATORS])
def test_our_kinds_have_the_columns_of_their_definitions(resource: Resource) -> None:
    (version,) = definition(resource.plural)["spec"]["versions"]
    columns = [
        {key: each[key] for key in ("name", "type", "jsonPath")}
        for each in version["additionalPrinterColumns"]
        if not each.get("priority")
    ]
    assert list(resource.printed) == columns


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", True),
        ("application/json", False),
        ("application/json,application/json;as=Table;v=v1;g=meta.k8s.io", False),
    ],
)
def test_a_client_gets_a_table_if_it_prefers_one(accept: str, wanted: bool) -> None:
    assert wants_table(accept) is wanted
