from collections.abc import Hashable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.mappings import sharded
from services.mappings.sharded import ShardedMap


def filled(number: int) -> ShardedMap[str, int]:
    draft = ShardedMap[str, int]().draft()
    for n in range(number):
        draft[f"key-{n}"] = n
    return draft.freeze()


def test_an_empty_map_has_nothing() -> None:
    empty = ShardedMap[str, int]()
    assert len(empty) == 0
    assert "a" not in empty
    assert empty.get("a") is None
    assert empty.get("a", 5) == 5
    assert list(empty) == []
    assert list(empty.each_value()) == []
    with pytest.raises(KeyError):
        empty["a"]


@pytest.mark.parametrize("number", [1, 1024, 1025, 20_000])
def test_a_map_of_any_size_is_what_was_put_in(number: int) -> None:
    made = filled(number)
    assert dict(made) == {f"key-{n}": n for n in range(number)}
    assert len(made) == number
    assert sorted(made.each_value()) == list(range(number))
    assert made["key-0"] == made.get("key-0") == 0
    assert "key-0" in made
    assert f"key-{number}" not in made
    keys = made.keys()
    assert f"key-{number}" not in keys


def test_a_changed_copy_leaves_the_map_as_it_was() -> None:
    before = filled(1000)
    draft = before.draft()
    draft["key-1"] = -1
    draft["new"] = 5
    draft.discard("key-2")
    draft.discard("never there")
    after = draft.freeze()
    assert before == {f"key-{n}": n for n in range(1000)}
    assert (after["key-1"], after["new"], after.get("key-2")) == (-1, 5, None)
    assert len(after) == len(draft) == 1000


def test_a_changed_copy_shares_what_has_not_changed() -> None:
    before = filled(20_000)
    draft = before.draft()
    draft["key-1"] = -1
    after = draft.freeze()
    differing = [a for a, b in zip(before._shards, after._shards, strict=True) if a is not b]
    assert len(before._shards) == 256
    assert len(differing) == 1


def test_a_draft_goes_on_after_it_was_frozen() -> None:
    draft = filled(3).draft()
    draft["a"] = 1
    first = draft.freeze()
    draft["a"] = 2
    draft["b"] = 3
    assert first["a"] == 1
    assert "b" not in first
    assert draft.get("a") == 2
    assert draft.freeze()["b"] == 3


def test_a_draft_that_changes_nothing_is_the_map_itself() -> None:
    before = filled(3)
    draft = before.draft()
    draft.discard("never there")
    assert draft.freeze() is before
    draft["key-1"] = 5
    after = draft.freeze()
    assert after is not before
    assert draft.freeze() is after


def test_the_shared_empty_map_stays_empty() -> None:
    draft = ShardedMap[str, int]().draft()
    draft["a"] = 1
    draft.discard("a")
    emptied = draft.freeze()
    assert len(emptied) == len(ShardedMap()) == 0
    assert not emptied


def test_a_map_grows_more_shards_and_none_gets_large() -> None:
    made = filled(20_000)
    assert len(made._shards) == 256
    assert max(map(len, made._shards)) < 2 * sharded.SHARD_ENTRIES


Keys = st.integers(0, 40) | st.text(max_size=2) | st.tuples(st.integers(0, 3), st.booleans())


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("sdf"), Keys, st.integers())))
def test_a_draft_does_what_a_dict_does(steps: list[tuple[str, Hashable, int]]) -> None:
    model: dict[Hashable, int] = {}
    draft = ShardedMap[Hashable, int](tuple({} for _ in range(16)), 0).draft()
    frozen = []
    for step, key, value in steps:
        if step == "s":
            draft[key] = model[key] = value
        elif step == "d":
            draft.discard(key)
            model.pop(key, None)
        else:
            frozen.append((draft.freeze(), dict(model)))
        assert draft.get(key) == model.get(key)
        assert len(draft) == len(model)
    frozen.append((draft.freeze(), model))
    assert all(made == expected and len(made) == len(expected) for made, expected in frozen)
