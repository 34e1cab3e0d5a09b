import pytest

from services.process.retry import Backoff


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
