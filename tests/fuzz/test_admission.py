"""Bent AdmissionReviews against the running process; `make soak` sends 100 000 of them."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz.admission import MAPPINGS, fuzz
from tests.fuzz.report import MAX_FAILURES
from tests.support import soak, soaking
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
    assert report.outcomes["patched"]
    assert report.memory_mib < GROWTH_MIB
    told = webhook.process.stderr.splitlines()
    assert [line for line in told if "the event loop" not in line] == []  # a machine that stood
