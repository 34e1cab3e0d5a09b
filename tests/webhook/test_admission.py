import json

import pytest
from structlog.testing import capture_logs

from services.admission import pod_review
from services.mappings.index import EMPTY_INDEX
from tests.webhook.asgi import DISCONNECT, JSON, Bench
from tests.webhook.reviews import LOGICAL, RESOURCE, UID, body, patch_of, pod, response_of
from webhook.selfcheck import check_ourselves


@pytest.fixture
def bench() -> Bench:
    return Bench()


def message(answer: bytes) -> str:
    return str(json.loads(answer)["message"])


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


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (b"[" * 90_000, "can't be read as an AdmissionReview"),
        (b'{"kind": "AdmissionReview", "request": {"uid": "1"}}', "set admissionReviewVersions"),
    ],
)
def test_a_body_without_a_review_gets_a_400_with_its_reason(
    bench: Bench, content: bytes, wanted: str
) -> None:
    status, headers, answer = bench.ask("/mutate", content)
    assert (status, headers["content-type"]) == (400, "application/json")
    assert wanted in message(answer)
    assert json.loads(answer)["kind"] == "Status"


def test_other_methods_are_a_405_that_names_the_right_one(bench: Bench) -> None:
    status, headers, answer = bench.ask("/mutate", method="GET")
    assert (status, headers["allow"]) == (405, "POST")
    assert json.loads(answer)["reason"] == "MethodNotAllowed"


TYPE = b"content-type"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([(TYPE, b" APPLICATION/JSON ;x=y")], 200),
        ([*JSON, (b"content-encoding", b"Identity"), (b"accept-encoding", b"gzip")], 200),
        ([], 415),
        ([(TYPE, b"application/jsonx")], 415),
        ([*JSON, (b"content-encoding", b"gzip")], 415),
    ],
)
def test_only_plain_json_is_read(
    bench: Bench, headers: list[tuple[bytes, bytes]], status: int
) -> None:
    assert bench.ask("/mutate", body(), headers=headers)[0] == status


def test_a_body_at_the_limit_is_read_and_one_above_is_a_413(bench: Bench) -> None:
    whole = body()
    full = whole + b" " * (100_000 - len(whole))
    assert bench.ask("/mutate", full)[0] == 200
    assert bench.ask("/mutate", full[:60_000], full[60_000:])[0] == 200
    for pieces in ((full + b" ",), (full[:60_000], full[60_000:] + b" "), (full, b" ", b" ")):
        status, _, answer = bench.ask("/mutate", *pieces)
        assert (status, message(answer)) == (413, "a review may have at most 100000 bytes")


def test_a_body_announced_above_the_limit_is_refused_unread(bench: Bench) -> None:
    headers = [*JSON, (b"content-length", b"100001")]
    assert bench.ask("/mutate", DISCONNECT, headers=headers)[0] == 413


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
