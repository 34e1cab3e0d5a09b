"""Which connections are closed to make room for others."""

import gc
import weakref
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from webhook.connections import (
    ANSWER_FACTOR,
    BUFFER_FACTOR,
    CONNECTION_BYTES,
    LEAST_SECONDS,
    MEBIBYTE,
    QUIET_SECONDS,
    Connection,
    ConnectionLimiter,
    EvictionReason,
    Limits,
    limits_for,
)

SMALL = Limits(connections=4, handshakes=3, held_bytes=100)


class Played:
    """A limiter with a clock of its own, and connections that have names."""

    def __init__(self, limits: Limits = SMALL) -> None:
        self.now = 0.0
        self.limiter = ConnectionLimiter(limits, lambda: self.now)
        self.connections: dict[str, Connection] = {}
        self.closed: list[str] = []

    def play(self, *steps: str) -> list[str]:
        """Do what steps such as `hold a 60` say; return who was closed by them."""
        before = len(self.closed)
        for step in steps:
            verb, name, *size = step.split()
            if verb == "open":
                close = partial(self.closed.append, name)
                self.connections[name] = self.limiter.open("client", close)
            elif verb == "answered":  # a connection from its opening to its first answer
                self.play(f"open {name}", f"secure {name}", f"start {name}", f"finish {name}")
            elif verb == "secure":
                self.limiter.secure(self.connections[name], known=False)
            else:
                getattr(self.limiter, verb)(self.connections[name], *map(int, size))
        return self.closed[before:]


@pytest.mark.parametrize(
    ("steps", "closed"),
    [
        pytest.param("open a, open b, open c, open d", "a handshakes", id="oldest handshake"),
        pytest.param(
            "open a, secure a, open b, secure b, open c, open d, open e",
            "a connections",
            id="oldest connection without a request",
        ),
        pytest.param(
            "open a, open b, secure b, open c, secure c, open d, secure d, open e",
            "a connections",
            id="a handshake that is older than any connection",
        ),
        pytest.param(
            "answered a, open b, open c, open d, secure b, open e",
            "b connections",
            id="newcomers before a connection that was answered",
        ),
        pytest.param(
            "answered a, answered b, answered c, answered d, start a, finish a, open e",
            "b connections",
            id="among answered ones, whose last answer is longest ago, so that newcomers get in",
        ),
        pytest.param(
            "answered a, answered b, answered c, answered d, start a, open e",
            "b connections",
            id="an idle connection before one with a request",
        ),
        pytest.param(
            "answered a, answered b, answered c, answered d,"
            "start c, start a, start b, start d, open e",
            "c connections",
            id="the oldest of requests that are under way",
        ),
        pytest.param(
            "open a, secure a, open b, secure b, start b, hold b 60, start a, hold a 60",
            "b memory",
            id="the oldest unfinished request, not the oldest connection",
        ),
        pytest.param(
            "answered k, start k, hold k 30, open a, secure a, hold a 40, hold k 40",
            "a memory",
            id="a newcomer's request before one of an answered connection",
        ),
        pytest.param(
            "answered k, answered l, start k, hold k 60, start l, hold l 30,"
            "open a, secure a, hold a 20",
            "k memory",
            id="but not where newcomers hold little",
        ),
        pytest.param("answered k, start k, hold k 101", "k memory", id="one that holds too much"),
        pytest.param(
            "open a, secure a, start a, hold a 90, finish a, open b, secure b, hold b 90",
            "",
            id="what was answered holds nothing",
        ),
        pytest.param(
            "open a, secure a, hold a 90, close a, open b, secure b, hold b 90",
            "",
            id="what was closed holds nothing",
        ),
        pytest.param(
            "open a, secure a, buffer a 10, open b, secure b, hold b 90",
            "",
            id="small buffers are part of what any connection costs",
        ),
        pytest.param(
            f"open a, secure a, buffer a {CONNECTION_BYTES}, open b",
            "a memory",
            id="large buffers count",
        ),
        pytest.param(
            "open x, close x, hold x 1000, buffer x 100000000, finish x, secure x, close x",
            "",
            id="gone",
        ),
    ],
)
def test_who_is_closed(steps: str, closed: str) -> None:
    played = Played()
    assert played.play(*steps.split(",")) == closed.split()[:1]
    assert [reason for reason, number in played.limiter.evicted.items() if number] == (
        closed.split()[1:]
    )


def test_buffers_stay_until_the_connection_is_closed() -> None:
    played = Played(replace(SMALL, held_bytes=MEBIBYTE))
    played.play("open a", "secure a", f"buffer a {CONNECTION_BYTES}", "hold a 5", "finish a")
    assert played.limiter.held_bytes == (BUFFER_FACTOR - 1) * CONNECTION_BYTES
    played.play(f"buffer a {CONNECTION_BYTES}")
    assert played.limiter.held_bytes == (BUFFER_FACTOR - 1) * CONNECTION_BYTES
    played.play("close a")
    assert played.limiter.held_bytes == 0


def test_the_answer_to_a_large_request_counts_until_the_connection_is_closed() -> None:
    played = Played(Limits(held_bytes=4 * MEBIBYTE))
    assert played.play("open a", "secure a", f"hold a {MEBIBYTE}", "finish a") == []
    assert played.limiter.held_bytes == ANSWER_FACTOR * MEBIBYTE
    assert played.play("open b", "secure b", f"hold b {2 * MEBIBYTE}", "finish b") == ["a"]
    assert played.limiter.held_bytes == ANSWER_FACTOR * 2 * MEBIBYTE


KEYS = st.sampled_from("abcdefgh")
STEPS = st.lists(
    st.one_of(
        st.builds("open {}".format, KEYS),
        st.builds("secure {}".format, KEYS),
        st.builds("start {}".format, KEYS),
        st.builds("finish {}".format, KEYS),
        st.builds("close {}".format, KEYS),
        st.builds("hold {} {}".format, KEYS, st.integers(1, 150)),
        st.builds("buffer {} {}".format, KEYS, st.integers(1, CONNECTION_BYTES)),
    ),
    max_size=60,
)


@given(STEPS)
def test_the_limits_hold_whatever_happens(steps: list[str]) -> None:
    played = Played()
    limiter = played.limiter
    for step in steps:
        verb, name = step.split()[:2]
        is_open = played.connections.get(name) in limiter._open
        if is_open == (verb == "open"):
            continue
        played.play(step)
        assert limiter.connections <= SMALL.connections
        assert limiter.handshakes <= SMALL.handshakes
        assert 0 <= limiter.held_bytes <= SMALL.held_bytes
    for connection in played.connections.values():
        limiter.close(connection)
    assert (limiter.connections, limiter.handshakes, limiter.held_bytes) == (0, 0, 0)


def test_newcomers_do_not_push_out_connections_that_were_answered() -> None:
    played = Played()
    played.play("answered known")
    for number in range(20):
        played.play(f"open n{number}", f"secure n{number}", f"hold n{number} 90")
    assert "known" not in played.closed


def test_a_new_connection_waits_until_the_oldest_one_had_its_time() -> None:
    played = Played()
    played.play("open a", "open b")
    assert played.limiter.seconds_until_room() == 0
    played.now = 0.5
    played.play("open c")
    assert played.limiter.seconds_until_room() == LEAST_SECONDS - 0.5


def test_a_series_of_closed_connections_is_logged_when_it_begins_and_when_it_ends() -> None:
    played = Played(replace(SMALL, request_seconds=30.0))
    with capture_logs() as logs:
        played.play("open a", "secure a", "hold a 101", "open b", "secure b", "start b")
        played.now = 31.0
        played.limiter.sweep()
        assert played.closed == ["a", "b"]
        for played.now in (31.0 + QUIET_SECONDS / 2, 31.0 + QUIET_SECONDS, 100.0):
            played.limiter.sweep()
    first, last = logs
    assert (first["event"], first["reason"]) == (
        "closing connections to stay within limits",
        EvictionReason.MEMORY,
    )
    assert (last["event"], last["closed"]) == (
        "connections are within limits again",
        {"memory": 1, "slow": 1},
    )


class Protocol:
    """It refers to its connection, which refers to it, as those of the webhook do."""

    def __init__(self, limiter: ConnectionLimiter) -> None:
        self.aborted = False
        self.connection = limiter.open("client", self.abort)

    def abort(self) -> None:
        self.aborted = True


def test_a_closed_connection_is_freed_at_once_with_its_protocol() -> None:
    limiter = ConnectionLimiter(SMALL)
    evicted, closed = Protocol(limiter), Protocol(limiter)
    left = [weakref.ref(evicted), weakref.ref(closed)]
    gc.disable()
    try:
        limiter.evict(evicted.connection, EvictionReason.SLOW)
        limiter.close(closed.connection)
        assert (evicted.aborted, closed.aborted) == (True, False)
        del evicted, closed
        assert [each() for each in left] == [None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("descriptors", "connections", "handshakes"),
    [(-1, 400, 200), (65536, 400, 200), (600, 400, 200), (256, 56, 28), (100, 16, 8)],
)
def test_few_descriptors_allow_few_connections(
    descriptors: int, connections: int, handshakes: int
) -> None:
    limits = limits_for(3 * MEBIBYTE, descriptors)
    assert (limits.connections, limits.handshakes) == (connections, handshakes)
    assert limits.held_bytes == Limits().held_bytes
    assert limits_for(10 * MEBIBYTE, descriptors).held_bytes == 40 * MEBIBYTE
