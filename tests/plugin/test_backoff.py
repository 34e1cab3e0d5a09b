from plugin.backoff import Backoff


def test_waits_double_up_to_the_longest() -> None:
    backoff = Backoff(1, 5, jitter=lambda _least, _most: 1)
    assert [backoff.next() for _ in range(5)] == [1, 2, 4, 5, 5]


def test_a_reset_starts_over() -> None:
    backoff = Backoff(1, 5, jitter=lambda _least, _most: 1)
    backoff.next()
    backoff.next()
    backoff.reset()
    assert backoff.next() == 1


def test_waits_differ_by_up_to_a_quarter() -> None:
    waits = [Backoff(1, 5).next() for _ in range(200)]
    assert all(0.75 <= wait <= 1.25 for wait in waits)
    assert len(set(waits)) > 100


def test_the_first_wait_is_short_enough_to_be_registered_soon() -> None:
    assert Backoff().next() <= 0.125
