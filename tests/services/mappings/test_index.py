"""The stores of both kinds against `build_index`: of the same objects, both make the same index."""

import json
from collections.abc import Iterable
from functools import partial
from typing import TypeAlias

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from services.kube.reflector import Item, ObjectMetadata, Store
from services.mappings.index import EMPTY_INDEX, MappingIndex, build_index
from services.mappings.kinds import ACCELERATOR_FUNCTION, FPGA_REGION, TABLE
from services.mappings.model import Entry, read_entry
from services.mappings.source import indexed, read_item
from tests.services.building import ARRIA, NLB0, NLB3, STRATIX, Object, function, region

Key: TypeAlias = tuple[str, str, str]


def item(obj: Object) -> Item:
    metadata = ObjectMetadata(obj["metadata"]["name"], obj["metadata"].get("namespace", "default"))
    return Item(metadata, msgspec.Raw(json.dumps(obj["spec"]).encode()))


def stores() -> dict[str, Store[Entry]]:
    return {kind: Store(partial(read_item, kind), lambda: None) for kind in TABLE}


def snapshot(found: dict[str, Store[Entry]], before: MappingIndex = EMPTY_INDEX) -> MappingIndex:
    return indexed(before, found.values())


def as_if_built(index: MappingIndex) -> dict[str, object]:
    """All that an index says, in a form in which two can be compared."""
    told: dict[str, object] = {"": (index.counts, index.rejected)}
    for name in index.namespaces:
        found = index.namespace(name)
        told[name] = (found.by_name, found.functions.keys(), found.rejected, found.modes)
    return told


def test_namespaces_without_changes_are_shared() -> None:
    found = stores()
    for namespace in ("one", "two"):
        found[ACCELERATOR_FUNCTION].upsert(item(function("a", "af", namespace=namespace)))
    before = snapshot(found)
    assert snapshot(found, before) is before
    found[ACCELERATOR_FUNCTION].upsert(item(function("b", "af", namespace="two")))
    after = snapshot(found, before)
    assert after.namespace("one") is before.namespace("one")
    assert set(after.namespace("two").by_name) == {"a", "b"}
    assert set(before.namespace("two").by_name) == {"a"}


def test_a_refused_object_is_told_until_it_is_right_or_gone() -> None:
    found = stores()
    found[FPGA_REGION].upsert(item(region("x", interface="bad")))
    first = snapshot(found)
    (reason,) = first.reasons
    assert first.namespace("default").rejected == {"x": reason}
    found[ACCELERATOR_FUNCTION].upsert(item(function("y", "af")))
    second = snapshot(found, first)
    assert list(second.reasons) == [reason]
    found[FPGA_REGION].upsert(item(region("x")))
    third = snapshot(found, second)
    assert set(third.namespace("default").by_name) == {"x", "y"}
    assert third.rejected == 0


OBJECTS: st.SearchStrategy[Object] = st.builds(
    lambda mode, name, interface, afu: (
        region(name, interface=interface)
        if mode == "devel"
        else function(name, mode, interface=interface, afu=afu)
    ),
    st.sampled_from(["af", "region", "no", "devel"]),
    st.sampled_from(["a", "b", "c", "d"]),
    st.sampled_from([ARRIA, STRATIX, "bad"]),
    st.sampled_from([NLB0, NLB3]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["upsert", "upsert", "remove"]), OBJECTS.map(lambda one: [one])),
        st.tuples(st.just("list"), st.lists(OBJECTS, max_size=4)),
    )
)


def relist(store: Store[Entry], objects: Iterable[Object]) -> None:
    store.start_list()
    for obj in objects:
        store.add(item(obj))
    store.finish_list()


@settings(max_examples=50)
@given(steps=STEPS)
def test_stores_make_what_building_anew_would(steps: list[tuple[str, list[Object]]]) -> None:
    model: dict[Key, Object] = {}
    found, index = stores(), EMPTY_INDEX
    for step, chosen in steps:
        objects = chosen
        if step == "list":
            model = {key: obj for key, obj in model.items() if key[0] != ACCELERATOR_FUNCTION}
            objects = [obj for obj in chosen if obj["kind"] == ACCELERATOR_FUNCTION]
            relist(found[ACCELERATOR_FUNCTION], objects)
        else:
            getattr(found[objects[0]["kind"]], step)(item(objects[0]))
        for obj in objects:
            key = (obj["kind"], "default", obj["metadata"]["name"])
            model.pop(key, None)
            if step != "remove":
                model[key] = obj
        index = snapshot(found, index)
        entries = [read_entry(model[key]) for key in sorted(model)]
        assert as_if_built(index) == as_if_built(build_index(each for each in entries if each))
