"""Which connections are closed to make room for others."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.ledger import (
    ANSWER_FACTOR,
    BUFFER_FACTOR,
    CONNECTION_BYTES,
    MEBIBYTE,
    ConnectionLedger,
    EvictionLog,
    EvictionReason,
    Limits,
    limits_for,
)

SMALL = Limits(connections=4, handshakes=3, held_bytes=100)
Ledger = ConnectionLedger[str]


def play(ledger: Ledger, *steps: str) -> list[str]:
    """Does what steps such as `hold a 60` say; returns who was closed and why."""
    closed = []
    for step in steps:
        verb, key, *size = step.split()
        if verb == "answered":  # a connection from its opening to its first answer
            closed += play(ledger, f"open {key}", f"secure {key}", f"start {key}", f"finish {key}")
            continue
        found = getattr(ledger, verb)(key, *map(int, size))
        closed += [f"{each} {reason}" for each, reason in found or []]
    return closed


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
        pytest.param("hold x 1000, buffer x 100000000, finish x, secure x, close x", "", id="gone"),
    ],
)
def test_who_is_closed(steps: str, closed: str) -> None:
    assert play(ConnectionLedger(SMALL), *steps.split(",")) == ([closed] if closed else [])


def test_buffers_stay_until_the_connection_is_closed() -> None:
    ledger: Ledger = ConnectionLedger(replace(SMALL, held_bytes=MEBIBYTE))
    play(ledger, "open a", "secure a", f"buffer a {CONNECTION_BYTES}", "hold a 5", "finish a")
    assert ledger.held_bytes == (BUFFER_FACTOR - 1) * CONNECTION_BYTES
    play(ledger, f"buffer a {CONNECTION_BYTES}")
    assert ledger.held_bytes == (BUFFER_FACTOR - 1) * CONNECTION_BYTES
    play(ledger, "close a")
    assert ledger.held_bytes == 0


def test_the_answer_to_a_large_request_counts_until_the_connection_is_closed() -> None:
    ledger: Ledger = ConnectionLedger(Limits(held_bytes=4 * MEBIBYTE))
    assert play(ledger, "open a", "secure a", f"hold a {MEBIBYTE}", "finish a") == []
    assert ledger.held_bytes == ANSWER_FACTOR * MEBIBYTE
    steps = ("open b", "secure b", f"hold b {2 * MEBIBYTE}", "finish b")
    assert play(ledger, *steps) == ["a memory"]
    assert ledger.held_bytes == ANSWER_FACTOR * 2 * MEBIBYTE


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
    ledger: Ledger = ConnectionLedger(SMALL)
    handshaking: set[str] = set()
    for step in steps:
        verb, key = step.split()[:2]
        if (verb == "open" and key in ledger) or (verb == "secure" and key not in handshaking):
            continue
        handshaking.discard(key)
        if verb == "open":
            handshaking.add(key)
        closed = play(ledger, step)
        handshaking -= {each.split()[0] for each in closed}
        assert ledger.connections <= SMALL.connections
        assert ledger.handshakes <= SMALL.handshakes
        assert 0 <= ledger.held_bytes <= SMALL.held_bytes
        assert not any(each.split()[0] in ledger for each in closed)
    for key in "abcdefgh":
        ledger.close(key)
    assert (ledger.connections, ledger.handshakes, ledger.held_bytes) == (0, 0, 0)


def test_newcomers_do_not_push_out_connections_that_were_answered() -> None:
    ledger: Ledger = ConnectionLedger(SMALL)
    play(ledger, "answered known")
    for number in range(20):
        play(ledger, f"open n{number}", f"secure n{number}", f"hold n{number} 90")
        assert "known" in ledger


@pytest.mark.parametrize(
    ("max_body", "descriptors", "connections", "held_bytes"),
    [
        (3 * MEBIBYTE, 2048, 400, 24 * MEBIBYTE),
        (64 * MEBIBYTE, 2048, 400, 256 * MEBIBYTE),
        (3 * MEBIBYTE, -1, 400, 24 * MEBIBYTE),
        (3 * MEBIBYTE, 512, 312, 24 * MEBIBYTE),
        (3 * MEBIBYTE, 100, 16, 24 * MEBIBYTE),
    ],
)
def test_limits_leave_room_for_large_bodies_and_open_files(
    max_body: int, descriptors: int, connections: int, held_bytes: int
) -> None:
    limits = limits_for(max_body, descriptors)
    assert (limits.connections, limits.held_bytes) == (connections, held_bytes)
    assert limits.handshakes < limits.connections


def test_a_series_of_evictions_is_told_when_it_begins_and_when_it_ends() -> None:
    log = EvictionLog()
    quiet = log.QUIET_SECONDS
    assert log.ended(0) == {}
    assert log.count(EvictionReason.MEMORY, 0)
    assert not log.count(EvictionReason.SLOW, 5)
    assert not log.count(EvictionReason.MEMORY, 6)
    assert log.ended(6 + quiet / 2) == {}
    assert log.ended(6 + quiet) == {"memory": 2, "slow": 1}
    assert log.ended(6 + quiet) == {}
    assert log.count(EvictionReason.MEMORY, 100)
    assert log.ended(100 + quiet) == {"memory": 1}
    assert log.counts["memory"] == 3
