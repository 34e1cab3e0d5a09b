"""Bent AdmissionReviews against the running process; `make soak` sends 100 000 of them."""

import asyncio
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz.admission import MAPPINGS, MAX_FAILURES, Wrong, fuzz, judge
from tests.fuzz.mutations import Case, Seeds, make_case
from tests.support import soak, soaking
from tests.webhook.reviews import body
from tests.webhook.running import start_webhook

FULL = 100_000
SHORT = 600
"""Without a limit to their time: a slow machine sees the same cases."""
MEBIBYTE = 1024 * 1024
GROWTH = (16 if soaking() else 32) * MEBIBYTE
"""What it warms up with is sooner over where more is sent."""


@pytest.mark.long
@pytest.mark.timeout(0)
def test_every_bent_review_gets_a_usable_answer_and_memory_stays_flat(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    length = soak(short=math.inf, full=3600)
    requests = FULL if soaking() else SHORT
    webhook = start_webhook(tmp_path, "--log-level", "warning", mappings=MAPPINGS)
    with webhook.process:
        report = asyncio.run(
            fuzz(webhook, seed=length.seed, requests=requests, seconds=length.seconds)
        )
    figure(str(report))
    assert report.failures == []
    assert report.requests > MAX_FAILURES
    assert report.growth < GROWTH
    told = webhook.process.stderr.splitlines()
    assert [line for line in told if "the event loop" not in line] == []  # a machine that stood


def test_a_case_can_be_had_again() -> None:
    assert make_case(Seeds(), 7, 42) == make_case(Seeds(), 7, 42)
    assert make_case(Seeds(), 7, 42) != make_case(Seeds(), 8, 42)


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (500, b"{}"),
        (200, b"{}"),
        (400, b'{"kind": "Other"}'),
        (200, b'{"kind":"AdmissionReview","apiVersion":"v1","response":{"uid":"x"}}'),
    ],
)
def test_answers_that_must_not_be_are_noticed(status: int, answer: bytes) -> None:
    with pytest.raises(Exception, match=r"status|response|reason|no review"):
        judge(Case("/mutate", body()), status, answer)


@pytest.mark.parametrize("code", [403, 500])
def test_an_internal_error_and_another_uid_are_noticed(code: int) -> None:
    uid = "another" if code == 403 else "705ab4f5-6393-11e8-b7cc-42010a800002"
    status = f'{{"code": {code}, "message": "no"}}'
    answer = (
        '{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response":'
        f' {{"uid": "{uid}", "allowed": false, "status": {status}}}}}'
    )
    with pytest.raises(Exception, match=r"another uid|for one of ours"):
        judge(Case("/mutate", body()), 200, answer.encode())


def test_a_body_too_deep_for_the_reader_of_the_tests_is_judged_by_its_uid() -> None:
    uid, deep = b"705ab4f5-6393-11e8-b7cc-42010a800002", b"[" * 899 + b'"x",' + b"[" * 899
    answer = b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": {"uid":'
    answer += b' "%s", "allowed": true}}'
    case = Case("/mutate", b'{"request": {"uid": "%s", "deep": %s' % (uid, deep))
    assert judge(case, 200, answer % uid) == ("allowed", [])
    with pytest.raises(Wrong, match="another uid"):
        judge(case, 200, answer % b"another")
