"""Slices of a pool: what is in them, and that no consumer ever sees a mixture."""

from collections import Counter
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.dra.slices import (
    UNHEALTHY,
    Body,
    Slice,
    device_body,
    devices_of_slices,
    in_order,
    plan,
    read_attributes,
    read_slice,
    slice_name,
    slice_spec,
)
from services.devices.dra import DraDevice
from services.devices.model import Device
from services.process.problem import Problem

NODE = "node-1"


def device(name: str, *reasons: str, **attributes: Any) -> DraDevice:
    made = Device(name, "r", tuple(Problem(reason, "a sentence") for reason in reasons))
    return DraDevice(name, made, {"type": "fpga", **attributes})


@cache
def numbered(number: int, afu: str) -> DraDevice:
    return device(f"fpga-{number:03}", afuID=afu)


def slices(*numbers: int, afu: str = "") -> list[list[Body]]:
    """The devices of each slice, of those with some numbers."""
    return devices_of_slices([numbered(number, afu) for number in numbers], taints=True)


def test_a_device_has_typed_attributes() -> None:
    made = device("a", on=True, cores=8)
    assert device_body(made) == {
        "name": "a",
        "attributes": {"type": {"string": "fpga"}, "on": {"bool": True}, "cores": {"int": 8}},
    }
    assert read_attributes(device_body(made)) == made.attributes
    assert read_attributes({"attributes": {"v": {"version": "1.0.0"}}}) == {}
    assert read_attributes({}) == {}


def test_a_slice_has_a_name_on_every_node() -> None:
    assert slice_name("n" * 230, 2) == f"{'n' * 230}-accelbind.dev-2"
    one, other = (slice_name("a." * 126 + end, 12) for end in "ab")
    assert one != other
    assert len(one) <= 253


def test_schedulers_sort_slices_by_their_numbers() -> None:
    names = [slice_name(NODE, number) for number in range(1200)]
    assert names == sorted(names)


def test_an_unhealthy_device_has_one_taint() -> None:
    (taint,) = device_body(device("a", "hot", "dead"))["taints"]
    assert taint == {"key": UNHEALTHY, "value": "hot", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("shown", "now", "order"),
    [
        ("", "a1 b1 c1", "abc"),  # the first time: by name
        ("a1 b1 c1", "a2 b1 c1", "bca"),  # programmed
        ("b1 c1 a2", "a2 b1 c1", "bca"),  # and so it stays
        ("b1 c1 a2", "a3 b4 c1", "cab"),  # both at once
        ("b1 a2", "a2 b1 c1", "cba"),  # a new one: nobody has programmed it
        ("b1 c1 a2", "a2 b1", "ba"),  # one that is gone
    ],
)
def test_the_device_that_was_programmed_last_comes_last(shown: str, now: str, order: str) -> None:
    before = {each[0]: {"afuID": each[1]} for each in shown.split()}
    devices = [device(each[0], afuID=each[1]) for each in now.split()]
    assert "".join(each.name for each in in_order(devices, before)) == order


def shares(*of: str, shown: str = "", held: str = "") -> list[list[str]]:
    """The names in each slice, of shares such as `a0`; a pool that was `shown` before."""
    devices = [
        DraDevice(each, Device(each, "r", share=int(each[1:])), {"card": each[0]})
        for each in of
        if each not in held.split()
    ]
    before = {each: {"card": each[0]} for each in shown.split()}
    bodies = devices_of_slices(in_order(devices, before), taints=True)
    return [[body["name"] for body in each] for each in bodies]


@pytest.mark.parametrize(
    ("now", "before", "order"),
    [
        ("a0 a1 b0 b1", {}, "a0 b0 a1 b1"),
        ("a0 a1 b0 b1", {"shown": "b0 a0 b1 a1"}, "b0 a0 b1 a1"),
        ("a0 a1 b0 b1", {"shown": "a0 a1 b0 b1"}, "a0 b0 a1 b1"),  # by an earlier version
        ("a0 a1 b0 b1", {"shown": "a0 a1"}, "b0 a0 b1 a1"),  # b was plugged in
        ("a0 a1 a2 b0 b1 b2", {"shown": "a0 b0 a1 b1"}, "a0 b0 a1 b1 a2 b2"),
        ("a0 a2 a10 b2", {}, "a0 a2 b2 a10"),
        ("a0 a1 b0 b1", {"held": "a0"}, "b0 a1 b1"),
    ],
)
def test_the_first_share_of_every_device_comes_before_the_second_of_any(
    now: str, before: dict[str, str], order: str
) -> None:
    assert shares(*now.split(), **before) == [order.split()]


def test_the_shares_of_devices_are_in_order_across_slices() -> None:
    every = [f"{device}{share}" for device in "abcdefgh" for share in range(128)]
    slices = shares(*every)
    assert [len(each) for each in slices] == [64] * 16
    in_turn = [f"{device}{share}" for share in range(128) for device in "abcdefgh"]
    assert [name for each in slices for name in each] == in_turn


def test_the_order_does_not_move_devices_between_slices() -> None:
    (first, second) = slices(*reversed(range(70)))
    assert [each["name"] for each in first] == [f"fpga-{n:03}" for n in reversed(range(64))]
    assert [each["name"] for each in second] == [f"fpga-{n:03}" for n in reversed(range(64, 70))]


def test_a_slice_without_devices_is_read() -> None:
    spec = slice_spec(NODE, Slice("x", 3, 2, []))
    del spec["devices"]
    assert read_slice({"metadata": {"name": "x"}, "spec": spec}) == Slice("x", 3, 2, [])


# What consumers see -------------------------------------------------------------------------------


class Pool:
    """The slices as the API server has them, and as the allocator reads them."""

    def __init__(self) -> None:
        self.stored: dict[str, Slice] = {}
        self.history: list[list[list[Body]]] = []
        """What was wanted, the latest last."""

    def want(self, wanted: list[list[Body]], *, writes: int | None = None) -> int:
        """Write what is wanted, but for so many writes at most; return how many were made."""
        self.history.append(wanted)
        planned = plan(NODE, wanted, self.stored.values())
        steps = [*((name, None) for name in planned.delete)]
        made = [*steps, *((each.name, each) for each in planned.write)][:writes]
        for name, each in made:
            if each is None:
                del self.stored[name]
            else:
                self.stored[name] = each
            self.check()
        return len(made)

    def delete(self, number: int) -> None:
        """Somebody else deletes a slice."""
        self.stored.pop([*self.stored][number % len(self.stored)])
        self.check()

    def devices(self) -> list[Body] | None:
        """What can be allocated: None while the pool is incomplete."""
        generation = max((each.generation for each in self.stored.values()), default=0)
        counted = [each for each in self.stored.values() if each.generation == generation]
        # The allocator takes the number from any one of them.
        if not any(each.count == len(counted) for each in counted):
            return None
        return [body for each in sorted(counted, key=lambda s: s.name) for body in each.devices]

    def check(self) -> None:
        devices = self.devices()
        if devices is None:
            return
        assert max(Counter(each["name"] for each in devices).values(), default=0) <= 1
        whole = [[body for each in wanted for body in each] for wanted in self.history]
        assert devices in whole, "a mixture"


def test_one_slice_keeps_its_generation_whatever_changes() -> None:
    pool = Pool()
    for wanted in (slices(1, 2), slices(1), slices(1, afu="x"), slices()):
        assert pool.want(wanted) == 1
        assert pool.want(wanted) == 0
    pool.delete(0)
    assert pool.want(slices()) == 1
    assert {each.generation for each in pool.stored.values()} == {1}


def test_a_change_within_one_of_two_slices_is_one_write_and_in_both_a_generation() -> None:
    pool = Pool()
    before = slices(*range(70))
    pool.want(before)
    after = [before[0], [{**before[1][0], "attributes": {}}, *before[1][1:]]]
    assert pool.want(after) == 1
    assert pool.devices() == [*after[0], *after[1]]
    assert pool.want(slices(*range(1, 70))) == 2, "a change in both"
    assert {each.generation for each in pool.stored.values()} == {2}


WANTED = st.builds(
    lambda numbers, afu: slices(*sorted(numbers), afu=afu),
    st.one_of(
        st.sets(st.integers(0, 140), max_size=140),
        st.integers(60, 135).map(lambda number: {*range(number)}),
    ),
    st.sampled_from(["", "a"]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("want"), WANTED, st.one_of(st.none(), st.integers(0, 4))),
        st.tuples(st.just("delete"), st.integers(0, 5)),
    ),
    max_size=12,
)


@given(STEPS)
def test_whoever_looks_sees_what_the_node_has_or_had_and_never_a_mixture(
    steps: list[tuple[Any, ...]],
) -> None:
    pool = Pool()
    for step in steps:
        if step[0] == "want":
            pool.want(step[1], writes=step[2])
        elif pool.stored:
            pool.delete(step[1])
    last = slices(*range(70))
    pool.want(last)
    assert pool.devices() == [body for each in last for body in each]
    assert pool.want(last) == 0
