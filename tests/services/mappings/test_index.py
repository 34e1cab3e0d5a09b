"""The table against `build_index`: of the same objects, both make the same index."""

from collections import Counter
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from services.mappings.index import EMPTY_INDEX, MappingIndex, MappingTable, build_index
from services.mappings.model import (
    ACCELERATOR_FUNCTION,
    FPGA_REGION,
    KINDS,
    Entry,
    Mapping,
    Rejected,
    parse,
)
from tests.services.building import (
    ARRIA,
    NLB0,
    NLB3,
    REGION,
    STRATIX,
    Object,
    function,
    region,
)

RESOURCE = REGION.partition("/")[2]
Key = tuple[str, str, str]


def mapping(obj: Object) -> Mapping:
    return parse(obj)


def table_of(*entries: Entry) -> MappingTable:
    table = MappingTable()
    for entry in entries:
        table.upsert(entry)
    return table


def as_if_built(index: MappingIndex) -> dict[str, object]:
    """All that an index says, in a form in which two can be compared."""
    told: dict[str, object] = {}
    for name in index.namespaces:
        found = index.namespace(name)
        told[name] = (
            found.namespace,
            dict(found.by_name),
            {key: Counter(group) for key, group in found.by_resource.items()},
            dict(found.functions),
            dict(found.rejected),
            dict(found.modes),
        )
    return told


def check(table: MappingTable, entries: Iterable[Entry]) -> None:
    ordered = sorted(entries, key=lambda entry: KINDS.index(entry.kind))
    built = build_index(ordered)
    index = table.snapshot()
    assert as_if_built(index) == as_if_built(built)
    assert (len(index), index.counts) == (len(built), built.counts)
    assert index.rejected == sum(len(index.namespace(name).rejected) for name in index.namespaces)
    for kind in KINDS:
        known = {(entry.namespace, entry.name) for entry in ordered if entry.kind == kind}
        assert set(table.keys(kind)) == known


def test_an_empty_table_maps_nothing() -> None:
    table = MappingTable()
    assert len(table.snapshot()) == 0
    assert table.snapshot().counts == {ACCELERATOR_FUNCTION: 0, FPGA_REGION: 0}
    assert table.entry(FPGA_REGION, "default", "x") is None


def test_a_snapshot_without_changes_is_the_same_one() -> None:
    table = table_of(mapping(function("nlb0", "region")))
    assert table.snapshot() is table.snapshot()


def test_namespaces_without_changes_are_shared() -> None:
    table = table_of(
        mapping(function("a", "af", namespace="one")), mapping(function("a", "af", namespace="two"))
    )
    before = table.snapshot()
    table.upsert(mapping(function("b", "af", namespace="two")))
    after = table.snapshot()
    assert after.namespace("one") is before.namespace("one")
    assert set(after.namespace("two").by_name) == {"a", "b"}
    assert set(before.namespace("two").by_name) == {"a"}


def test_an_object_that_goes_leaves_nothing() -> None:
    table = table_of(mapping(function("x", "region")))
    table.remove(ACCELERATOR_FUNCTION, "default", "x")
    table.remove(ACCELERATOR_FUNCTION, "default", "x")
    table.remove(FPGA_REGION, "nowhere", "y")
    assert table.snapshot().namespaces == ()
    check(table, [])


def test_of_two_kinds_with_one_name_neither_serves_until_one_goes() -> None:
    one, other = mapping(function("x", "region")), mapping(region("x"))
    table = table_of(one, other)
    found = table.snapshot().namespace("default")
    assert not found.by_name
    assert "have the same name" in found.rejected["x"]
    assert table.entry(FPGA_REGION, "default", "x") is other
    table.remove(ACCELERATOR_FUNCTION, "default", "x")
    found = table.snapshot().namespace("default")
    assert found.by_name == {"x": other}
    assert not found.rejected
    check(table, [other])


def test_a_refused_object_is_told_until_it_is_right_or_gone() -> None:
    table = table_of(Rejected(FPGA_REGION, "default", "x", "it is wrong"))
    first = table.snapshot()
    assert first.namespace("default").rejected == {"x": "it is wrong"}
    assert list(first.new_reasons(EMPTY_INDEX)) == ["it is wrong"]
    table.upsert(mapping(function("y", "af")))
    assert list(table.snapshot().new_reasons(first)) == []
    table.upsert(Rejected(FPGA_REGION, "default", "x", "still wrong"))
    assert table.snapshot().rejected == 1
    assert list(table.snapshot().new_reasons(first)) == ["still wrong"]
    assert list(table.snapshot().new_reasons(table.snapshot())) == []
    table.upsert(mapping(region("x")))
    found = table.snapshot().namespace("default")
    assert set(found.by_name) == {"x", "y"}
    assert not found.rejected


def test_of_two_refused_objects_the_function_is_told() -> None:
    table = table_of(
        Rejected(FPGA_REGION, "default", "x", "a bad region"),
        Rejected(ACCELERATOR_FUNCTION, "default", "x", "a bad function"),
    )
    assert table.snapshot().namespace("default").rejected == {"x": "a bad function"}


OBJECTS = st.builds(
    lambda mode, name, interface, afu: (
        region(name, interface=interface)
        if mode == "devel"
        else function(name, mode, interface=interface, afu=afu)
    ),
    st.sampled_from(["af", "region", "region", "devel"]),
    st.sampled_from(["a", "b", "c", "d"]),
    st.sampled_from([ARRIA, STRATIX]),
    st.sampled_from([NLB0, NLB3]),
)
ENTRIES: st.SearchStrategy[Entry] = st.one_of(
    OBJECTS.map(mapping),
    st.builds(
        Rejected,
        st.sampled_from(KINDS),
        st.just("default"),
        st.sampled_from(["a", "b", "c", "d"]),
        st.sampled_from(["one reason", "another"]),
    ),
)
STEPS = st.lists(st.tuples(st.sampled_from(["put", "put", "remove", "snapshot"]), ENTRIES))


@settings(deadline=None)
@given(steps=STEPS)
def test_a_table_makes_what_building_anew_would(steps: list[tuple[str, Entry]]) -> None:
    model: dict[Key, Entry] = {}
    table = MappingTable()
    for step, entry in steps:
        key = (entry.kind, entry.namespace, entry.name)
        if step == "put":
            table.upsert(entry)
            model[key] = entry
        elif step == "remove":
            table.remove(*key)
            model.pop(key, None)
        else:
            check(table, model.values())
        assert table.entry(*key) == model.get(key)
    check(table, model.values())
