import json

import pytest

from tests.webhook.asgi import Bench
from webhook import selfcheck
from webhook.selfcheck import check_ourselves


@pytest.mark.parametrize("path", ["/mutate", "/pods", "/validate"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
def test_other_methods_are_a_405_that_names_the_right_one(path: str, method: str) -> None:
    status, headers, answer = Bench().ask(path, method=method)
    assert (status, headers["allow"]) == (405, "POST")
    assert json.loads(answer)["reason"] == "MethodNotAllowed"


def test_the_endpoints_are_documented() -> None:
    status, _, answer = Bench().ask("/openapi.json", method="GET")
    document = json.loads(answer)
    assert status == 200
    reviews = {"/guard", "/mutate", "/pods", "/validate", "/validate-mapping"}
    assert set(document["paths"]) == reviews | {"/healthz", "/readyz"}
    operation = document["paths"]["/mutate"]["post"]
    assert set(operation["responses"]) == {"200", "400", "413", "415"}
    assert "application/json" in operation["requestBody"]["content"]
    names = [path["post"]["operationId"] for path in document["paths"].values() if "post" in path]
    assert len(set(names)) == len(names)


def test_healthz_makes_a_review_of_its_own() -> None:
    bench = Bench()
    assert bench.ask("/healthz", method="GET")[::2] == (200, b"ok\n")
    assert bench.figures.requests == {}


def test_healthz_fails_when_the_answer_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_ourselves() == ""
    monkeypatch.setattr(selfcheck, "_RESOURCE", "fpga.intel.com/other")
    assert check_ourselves() == "a review of our own was answered wrongly"


def test_readyz_says_what_is_missing() -> None:
    assert Bench().ask("/readyz", method="GET")[::2] == (200, b"ok\n")
    bench = Bench(missing="mappings not loaded, stopping")
    assert bench.ask("/readyz", method="GET")[::2] == (503, b"mappings not loaded, stopping\n")
