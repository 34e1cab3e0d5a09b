"""Which connections are closed to make room for others."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.connections import Connection, Connections, Phase

PHASES = {
    "secure": Phase.HEAD,
    "begin": Phase.BODY,
    "complete": Phase.TURN,
    "answer": Phase.ANSWER,
    "end": Phase.IDLE,
}


class Played:
    """Connections with a clock of their own; the first letter of a name is the client's address."""

    def __init__(self, most: int = 4, most_held: int = 100) -> None:
        self.now = 0.0
        self.connections = Connections(most=most, most_held=most_held, clock=lambda: self.now)
        self.named: dict[str, Connection] = {}
        self.closed: list[str] = []

    def play(self, *steps: str) -> list[str]:
        """Do what steps such as `hold a1 60` say; return who was closed by them."""
        before = len(self.closed)
        for step in steps:
            verb, name, *size = step.split()
            if verb == "wait":
                self.now += float(name)
                self.connections.close_slow()
            elif verb == "add":
                connection = self.named[name] = self.connections.add(name[0])
                connection.close = partial(self.closed.append, name)
            elif verb == "idle":  # a connection from its start to its first answer
                self.play(f"add {name}", f"end {name}")
            elif verb in PHASES:
                if verb == "end":
                    self.connections.hold(self.named[name], -self.named[name].held)
                self.connections.enter(self.named[name], PHASES[verb])
            else:
                getattr(self.connections, verb)(self.named[name], *map(int, size))
        return self.closed[before:]


@pytest.mark.parametrize(
    ("steps", "closed"),
    [
        pytest.param(
            "add a1, add b1, add b2, add c1, add d1",
            "b1 connections",
            id="the oldest of the address with the most",
        ),
        pytest.param(
            "idle k1, idle k2, wait 2, add a1, wait 2, add b1, wait 0.5, add k3",
            "a1 connections",
            id="one that has waited for over a second before all others",
        ),
        pytest.param(
            "idle k1, add a1, add b1, add b2, add c1",
            "b1 connections",
            id="a flood within a second pushes out itself, no idle connection",
        ),
        pytest.param(
            "idle k1, begin k1, complete k1, idle k2, begin k2, complete k2, wait 2,"
            "add a1, add b1, add c1",
            "a1 connections",
            id="requests that wait for their turn are not slow, nor many",
        ),
        pytest.param(
            "idle k1, begin k1, hold k1 60, complete k1, idle k2, begin k2, hold k2 60",
            "k2 memory",
            id="memory: a request that has arrived stays",
        ),
        pytest.param(
            "idle k1, begin k1, hold k1 60, complete k1, idle a1, begin a1, complete a1,hold a1 90",
            "a1 memory",
            id="memory: where all have arrived, the address that holds the most",
        ),
        pytest.param(
            "idle a1, idle a2, idle a3, add k1, add k2",
            "a1 connections",
            id="idle connections that are many push out no new one",
        ),
        pytest.param(
            "idle k1, begin k1, hold k1 60, wait 2, add a1, begin a1, hold a1 90",
            "k1 memory",
            id="memory: an old request before a new one",
        ),
        pytest.param(
            "add a1, begin a1, hold a1 30, add a2, begin a2, hold a2 30,"
            "add k1, begin k1, hold k1 50",
            "a1 memory",
            id="memory: the address that holds the most",
        ),
        pytest.param("add a, wait 5.1", "a slow", id="a handshake that takes too long"),
        pytest.param("add a, secure a, wait 31", "a slow", id="no first request"),
        pytest.param("idle a, wait 29, begin a, wait 31", "a slow", id="a request that takes long"),
        pytest.param("idle a, wait 100", "", id="idle connections are uvicorn's to close"),
    ],
)
def test_who_is_closed(steps: str, closed: str) -> None:
    played = Played()
    assert played.play(*steps.split(",")) == closed.split()[:1]
    evicted = played.connections.evicted
    assert [reason for reason, number in evicted.items() if number] == closed.split()[1:]


def test_forty_pods_with_ten_slow_connections_each_do_not_push_out_an_api_server() -> None:
    """It has more connections than each of them: idle ones, and handshakes at the same time."""
    played = Played(most=400)
    names = [f"k{number}" for number in range(40)]
    played.play(*(f"idle {name}" for name in names[:20]))
    for turn in range(3):
        for pod in range(40):
            address = chr(ord("\u0100") + pod)
            played.play(*(f"add {address}{turn}-{number}" for number in range(10)))
        played.play("wait 1.5")
    played.play(*(f"add {name}" for name in names[20:]))
    assert len(played.closed) > 800
    assert not set(played.closed) & set(names)


KEYS = st.sampled_from("abcdefgh")
STEPS = st.lists(
    st.one_of(
        st.builds("{} {}".format, st.sampled_from(("add", *PHASES)), KEYS),
        st.builds("remove {}".format, KEYS),
        st.builds("hold {} {}".format, KEYS, st.integers(1, 150)),
        st.builds("wait {}".format, st.sampled_from((0.5, 2, 40))),
    ),
    max_size=60,
)


@given(STEPS)
def test_the_limits_hold_whatever_happens(steps: list[str]) -> None:
    played = Played()
    connections = played.connections
    for step in steps:
        verb, name = step.split()[:2]
        is_open = name in played.named and played.named[name] in connections
        if verb != "wait" and is_open == (verb == "add"):
            continue
        played.play(step)
        assert len(connections) <= 4
        assert 0 <= connections.held_bytes <= 100
    for connection in played.named.values():
        connections.remove(connection)
    assert (len(connections), connections.held_bytes) == (0, 0)
