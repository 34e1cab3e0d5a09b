import pytest
import structlog
from structlog.testing import capture_logs

from services.process.outage import MAX_REASONS, Outage
from services.process.retry import Backoff

TABLE = {
    "one that works all the time is silent": (["", "", ""], []),
    "the same reason again is for debugging": (
        ["a", "a", "a", "", ""],
        ["warning a", "debug a", "debug a", "info 3"],
    ),
    "another reason is logged": (["a", "b", ""], ["warning a", "warning b", "info 2"]),
    "reasons that take turns are logged once each": (
        ["a", "b", "a", "b", ""],
        ["warning a", "warning b", "debug a", "debug b", "info 4"],
    ),
    "each outage is logged anew": (
        ["a", "", "a", ""],
        ["warning a", "info 1", "warning a", "info 1"],
    ),
}
"""What was noted, a reason or nothing, a second apart; and what is logged for it."""


@pytest.mark.parametrize("case", TABLE)
def test_an_outage_is_logged_when_it_starts_changes_and_ends(case: str) -> None:
    noted, expected = TABLE[case]
    now = [0.0]
    outage = Outage(structlog.get_logger(), "it fails", "it works", clock=lambda: now[0], on="disk")
    with capture_logs() as logs:
        for reason in noted:
            outage.update(reason)
            now[0] += 1
    lines = [f"{each['log_level']} {each.get('reason') or round(each['seconds'])}" for each in logs]
    assert lines == expected
    for each in logs:
        assert each["event"] == ("it fails" if "reason" in each else "it works")
        assert each["on"] == "disk"


def test_an_outage_of_ever_new_reasons_fills_no_log() -> None:
    outage = Outage(structlog.get_logger(), "fails", "works", level="error")
    with capture_logs() as logs:
        for number in range(100):
            outage.failed(f"reason {number}")
    assert [each["log_level"] for each in logs].count("error") == MAX_REASONS


# Pauses between tries


def test_pauses_grow_to_between_30_and_45_seconds_and_never_more() -> None:
    for jitter, pause in ((0.0, 30), (1.0, 45)):
        backoff = Backoff(jitter=lambda jitter=jitter: jitter)  # type: ignore[misc]
        pauses = [backoff.pause() for _ in range(10_000)]
        assert sum(pauses[:5]) > 30, "few in the first minute"
        assert pauses[-1] == pytest.approx(pause)
        assert max(pauses) <= 45


@pytest.mark.parametrize(("asked", "pause"), [(0, 0.5), (1, 2), (20, 40), (3600, 45)])
def test_a_server_that_asks_for_longer_is_given_it_within_reason(
    asked: float, pause: float
) -> None:
    assert Backoff(jitter=lambda: 1.0).pause(asked) == pause
