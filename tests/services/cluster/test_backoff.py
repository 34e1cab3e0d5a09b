import pytest

from services.cluster.backoff import Backoff, Pace

PACE = Pace(first=1.0, longest=10.0, asked=60.0)


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(PACE, lambda: 1.0)
    assert [backoff.pause() for _ in range(6)] == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert backoff.failures == 6


def test_pauses_do_not_overflow() -> None:
    backoff = Backoff(PACE, lambda: 1.0)
    backoff.failures = 100_000
    assert backoff.pause() == 10.0


def test_a_success_begins_anew() -> None:
    backoff = Backoff(PACE, lambda: 1.0)
    for _ in range(5):
        backoff.pause()
    backoff.reset()
    assert backoff.pause() == 1.0


def test_two_clients_get_out_of_step() -> None:
    assert Backoff(PACE, lambda: 0.0).pause() == 0.5
    assert Backoff(PACE, lambda: 0.3).pause() == 0.65


@pytest.mark.parametrize(("asked", "pause"), [(0, 0.75), (7, 10.5), (3600, 90.0)])
def test_what_the_server_asks_for_is_granted_within_bounds(asked: float, pause: float) -> None:
    assert Backoff(PACE, lambda: 0.5).pause(asked) == pause
