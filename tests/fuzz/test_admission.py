"""Bent AdmissionReviews against the running process; `make soak` sends 100 000 of them."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz.admission import MAPPINGS, Wrong, fuzz, judge
from tests.fuzz.mutations import Case, make_case
from tests.fuzz.report import MAX_FAILURES
from tests.support import soak, soaking
from tests.webhook.reviews import UID, body
from tests.webhook.running import start_webhook

FULL = 100_000
SHORT = 600
"""Without a limit to their time: a slow machine sees the same cases."""
GROWTH_MIB = 16 if soaking() else 32
"""What it warms up with is sooner over where more is sent."""


@pytest.mark.long
@pytest.mark.timeout(0)
def test_every_bent_review_gets_a_usable_answer_and_memory_stays_flat(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    length = soak(short=1e9, full=3600)
    requests = FULL if soaking() else SHORT
    webhook = start_webhook(tmp_path, "--log-level", "warning", mappings=MAPPINGS)
    with webhook.process:
        report = asyncio.run(
            fuzz(webhook, seed=length.seed, requests=requests, seconds=length.seconds)
        )
    figure(str(report))
    assert report.failures == []
    assert report.inputs > MAX_FAILURES
    assert report.outcomes["passed twice"]
    assert report.memory_mib < GROWTH_MIB
    told = webhook.process.stderr.splitlines()
    assert [line for line in told if "the event loop" not in line] == []  # a machine that stood


def test_a_case_can_be_had_again() -> None:
    assert make_case(7, 42) == make_case(7, 42)
    assert make_case(7, 42) != make_case(8, 42)


def answer(uid: str = UID, code: int = 403) -> bytes:
    response = {"uid": uid, "allowed": False, "status": {"code": code, "message": "no"}}
    head = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}
    return json.dumps(head | {"response": response}).encode()


@pytest.mark.parametrize(
    ("status", "sent", "wanted"),
    [
        (500, b"{}", "status 500"),
        (200, b"{}", "response"),
        (400, b'{"kind": "Other"}', "without a reason"),
        (200, answer().replace(b"admission.k8s.io/v1", b"v1"), "no review"),
        (200, answer("another"), "another uid"),
        (200, answer(code=500), "for one of ours"),
    ],
)
def test_answers_that_must_not_be_are_noticed(status: int, sent: bytes, wanted: str) -> None:
    with pytest.raises((Wrong, KeyError), match=wanted):
        judge(Case("/mutate", body()), status, sent)
    assert judge(Case("/mutate", body()), 200, answer()) == ("denied 403", [])
