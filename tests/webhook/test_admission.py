import json
from typing import Any

import pytest
from structlog.testing import capture_logs

from services.admission import pod_review
from services.mappings.index import EMPTY_INDEX
from tests.services.admission.test_mapping_review import body as mapping_body
from tests.simulator.apiserver.support import function
from tests.webhook.asgi import DISCONNECT, JSON, Bench, Message
from tests.webhook.reviews import (
    LOGICAL,
    NAME,
    RESOURCE,
    UID,
    body,
    patch_of,
    pod,
    response_of,
)
from webhook.selfcheck import check_ourselves


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("path", ["/mutate", "/pods"])
def test_a_logical_name_is_rewritten(bench: Bench, path: str) -> None:
    status, headers, answer = bench.ask(path, body())
    assert (status, headers["content-type"]) == (200, "application/json")
    assert int(headers["content-length"]) == len(answer)
    added = {
        operation["path"].rpartition("/")[2].replace("~1", "/")
        for operation in patch_of(answer)
        if operation["op"] == "add" and operation["path"].startswith("/spec")
    }
    assert added == {RESOURCE}


TYPE = b"content-type"
FULL = body().ljust(100_000)
TOO_LONG = "a review may have at most 100000 bytes"


@pytest.mark.parametrize(
    ("messages", "given", "status", "said"),
    [
        ([b"[" * 90_000], {}, 400, "can't be read as an AdmissionReview"),
        (
            [b'{"kind": "AdmissionReview", "request": {"uid": "1"}}'],
            *({}, 400, "set admissionReviewVersions"),
        ),
        ([], {"method": "GET"}, 405, '"MethodNotAllowed"'),
        ([FULL], {"headers": [(TYPE, b" APPLICATION/JSON ;x=y")]}, 200, ""),
        ([FULL], {"headers": [*JSON, (b"content-encoding", b"Identity")]}, 200, ""),
        ([FULL], {"headers": [*JSON, (b"accept-encoding", b"gzip")]}, 200, ""),
        ([FULL], {"headers": []}, 415, "application/json"),
        ([FULL], {"headers": [(TYPE, b"application/jsonx")]}, 415, "application/json"),
        (
            [FULL],
            {"headers": [*JSON, (b"content-encoding", b"gzip")]},
            415,
            "must not be compressed",
        ),
        ([FULL[:60_000], FULL[60_000:]], {}, 200, ""),
        ([FULL + b" "], {}, 413, TOO_LONG),
        ([FULL[:60_000], FULL[60_000:] + b" "], {}, 413, TOO_LONG),
        ([FULL, b" ", b" "], {}, 413, TOO_LONG),
        # Unread, as it announces more.
        ([DISCONNECT], {"headers": [*JSON, (b"content-length", b"100001")]}, 413, TOO_LONG),
    ],
)
def test_requests_without_a_review_get_a_status_with_the_reason(
    bench: Bench, messages: list[bytes | Message], given: dict[str, Any], status: int, said: str
) -> None:
    found, headers, answer = bench.ask("/mutate", *messages, **given)
    assert (found, headers["content-type"]) == (status, "application/json")
    assert headers.get("allow") == ("POST" if status == 405 else None)
    assert said in answer.decode()
    assert json.loads(answer)["kind"] == ("AdmissionReview" if status == 200 else "Status")


def test_a_request_whose_client_went_away_is_not_judged() -> None:
    bench = Bench()
    begun = {"type": "http.request", "body": b"{", "more_body": True}
    for messages in ((DISCONNECT,), (begun, DISCONNECT)):
        bench.ask("/mutate", *messages)
    assert bench.figures.requests == {}


def test_nothing_is_refused_for_mappings_that_are_not_loaded_yet() -> None:
    bench = Bench()
    bench.mappings.index, bench.mappings.loaded = EMPTY_INDEX, False
    status, _, answer = bench.ask("/mutate", body())
    assert status == 503
    assert b"the mappings aren't loaded yet: try again in a moment" in answer
    assert response_of(bench.ask("/mutate", body(pod("cpu")))[2])["allowed"] is True
    assert bench.figures.requests == {
        ("mutate", "rejected", "not-loaded"): 1,
        ("mutate", "allowed", "nothing-asked"): 1,
    }


def test_requests_are_counted_by_endpoint_outcome_and_reason() -> None:
    bench = Bench()
    bench.ask("/mutate", body())
    bench.ask("/pods", body())
    bench.ask("/validate", body())
    bench.ask("/mutate", body(pod("fpga.intel.com/none")))
    bench.ask("/mutate", body(pod("cpu")))
    bench.ask("/mutate", b"{")
    bench.ask("/mutate", body(), headers=[])
    bench.ask("/guard", body(pod("cpu")))
    assert bench.figures.requests == {
        ("mutate", "patched", ""): 2,
        ("validate", "denied", "not-mutated"): 1,
        ("guard", "denied", "nothing-guarded"): 1,
        ("mutate", "denied", "unknown-name"): 1,
        ("mutate", "allowed", "nothing-asked"): 1,
        ("mutate", "rejected", "invalid-review"): 1,
        ("mutate", "rejected", "content-type"): 1,
    }


def test_a_crash_answers_a_denial_is_logged_with_its_trace_and_fails_the_probe(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(pod_review, "mutate", crash)
    with capture_logs() as logs:
        status, _, answer = bench.ask("/mutate", body())
    response = response_of(answer)
    assert (status, response["allowed"], response["status"]["code"]) == (200, False, 500)
    (line,) = logs
    assert line["log_level"] == "error"
    assert isinstance(line["exc_info"], RuntimeError)
    assert bench.figures.requests == {("mutate", "errored", "internal-error"): 1}
    assert check_ourselves().startswith("a review of our own was answered wrongly (Runtime")


def test_a_refusal_is_logged_and_an_admission_for_debugging() -> None:
    with capture_logs() as logs:
        Bench().ask("/mutate", body(pod("fpga.intel.com/none"), namespace="team"))
        Bench().ask("/mutate", body())
    refused, admitted = logs
    assert (refused["event"], refused["log_level"]) == ("pod refused", "info")
    assert (refused["namespace"], refused["pod"]) == ("team", "nlb")
    assert (refused["reason"], refused["uid"]) == ("unknown-name", UID)
    assert (admitted["event"], admitted["log_level"]) == ("pod admitted", "debug")
    assert admitted["rewrites"] == {LOGICAL: RESOURCE}


def test_a_line_in_the_log_is_short_whatever_a_pod_is_called() -> None:
    long = "\x1b" * 5_000
    refused = pod("fpga.intel.com/none") | {"metadata": {"generateName": long}}
    with capture_logs() as logs:
        Bench().ask("/mutate", body(refused, namespace=long, uid=long[:128]))
    (line,) = logs
    assert len(str(line)) < 2000
    assert {line[part] for part in ("namespace", "pod", "uid")} == {"\\x1b" * 29 + "\\x1…"}


# Reviews of mappings


def test_mappings_are_judged_by_the_index_that_serves() -> None:
    bench = Bench()
    status, _, answer = bench.ask("/validate-mapping", mapping_body(function("new")))
    assert (status, response_of(answer)["warnings"]) == (
        200,
        [f"duplicate of {NAME}: pods that use either get a warning"],
    )
    region = function(NAME, mode="regiondevel") | {"kind": "FpgaRegion"}
    status, _, answer = bench.ask("/validate-mapping", mapping_body(region))
    response = response_of(answer)
    assert (status, response["allowed"]) == (200, False)
    assert f"AcceleratorFunction default/{NAME} and FpgaRegion" in response["status"]["message"]
    assert bench.figures.requests == {
        ("validate-mapping", "allowed", "usable"): 1,
        ("validate-mapping", "denied", "name-clash"): 1,
    }


def test_nothing_is_admitted_that_mappings_not_loaded_yet_may_clash_with() -> None:
    bench = Bench()
    bench.mappings.loaded = False
    status, _, answer = bench.ask("/validate-mapping", mapping_body(function("new")))
    assert (status, json.loads(answer)["reason"]) == (503, "ServiceUnavailable")
    old = function("new", mode="no")
    unchanged = mapping_body(old, old=old)
    assert response_of(bench.ask("/validate-mapping", unchanged)[2])["allowed"] is True
    assert bench.figures.requests == {
        ("validate-mapping", "rejected", "not-loaded"): 1,
        ("validate-mapping", "allowed", "unchanged-spec"): 1,
    }


def test_a_refused_mapping_is_logged_as_one() -> None:
    with capture_logs() as logs:
        for mode in ("no", "af"):
            new = function("new", mode=mode)
            Bench().ask("/validate-mapping", mapping_body(new, name="new"))
    refused, admitted = logs
    assert (refused["event"], refused["mapping"]) == ("mapping refused", "new")
    assert "spec.mode must be af or region" in refused["message"]
    assert (admitted["event"], admitted["mapping"]) == ("mapping admitted", "new")
    assert "pod" not in refused.keys() | admitted.keys()
