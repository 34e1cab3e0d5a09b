"""The stores of both kinds against `build_index`: of the same objects, both make the same index."""

import json
from collections.abc import Iterable
from functools import partial
from typing import TypeAlias

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from services.kube.reflector import Item, ObjectMetadata, Objects, Store
from services.mappings.index import EMPTY_INDEX, MappingIndex, build_index
from services.mappings.kinds import ACCELERATOR_FUNCTION, TABLE
from services.mappings.model import MappingEntry, read_entry
from services.mappings.source import indexed, read_item
from tests.services.building import ARRIA, NLB0, NLB3, STRATIX, Object, function, region

Key: TypeAlias = tuple[str, str, str]


def item(obj: Object) -> Item:
    metadata = ObjectMetadata(obj["metadata"]["name"], obj["metadata"].get("namespace", "default"))
    return Item(metadata, msgspec.Raw(json.dumps(obj["spec"]).encode()))


def stores() -> dict[str, Store[MappingEntry]]:
    return {kind: Store(partial(read_item, kind), lambda: None) for kind in TABLE}


def snapshot(
    found: dict[str, Store[MappingEntry]], before: MappingIndex = EMPTY_INDEX
) -> MappingIndex:
    return indexed(before, found.values())


def as_if_built(index: MappingIndex) -> dict[str, object]:
    """All that an index says, in a form in which two can be compared."""
    told: dict[str, object] = {"": (index.counts, index.rejected)}
    for name in index.namespaces:
        found = index.namespace(name)
        told[name] = (found.by_name, found.functions.keys(), found.rejected, found.modes)
    return told


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


def relist(store: Store[MappingEntry], listed: Iterable[Object]) -> None:
    objects: Objects[MappingEntry] = {}
    for obj in listed:
        store.collect(item(obj), objects)
    store.replace(objects)


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
