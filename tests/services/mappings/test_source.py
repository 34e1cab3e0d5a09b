"""Objects of an API server as an index: what serves, what doesn't, and when it is handed out."""

import json
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from services.containers.pod_source import ApiServerPods
from services.kube import lists
from services.kube.client import ClusterClient, is_outage
from services.kube.reflector import Item, ObjectMetadata, Objects, Store
from services.mappings.index import EMPTY_INDEX, MappingIndex, NamespaceMappings, build_index
from services.mappings.kinds import ACCELERATOR_FUNCTION, TABLE
from services.mappings.model import MappingEntry, read_entry
from services.mappings.source import indexed, read_item
from services.names import function_name
from services.process.errors import ClusterError
from simulator.apiserver.http_server import Request
from simulator.apiserver.resources import ACCELERATORS, REGIONS
from tests.services.building import (
    ARRIA,
    NLB0,
    NLB3,
    STRATIX,
    Object,
    accelerator,
    function,
    region,
)
from tests.services.kube.following import MappingServer, following, names, until, until_watching


async def test_nothing_serves_before_both_kinds_are_listed(tmp_path: Path) -> None:
    async with MappingServer(tmp_path) as server:
        server.put_function("x")
        server.put_function("y")
        server.put_region("x")
        async with following(server) as source:
            with server.faults.failing(
                403, "forbidden", matches=lambda request: request.path.endswith(REGIONS.plural)
            ):
                await until(lambda: server.watches)
                server.put_function("z")
                await until(
                    lambda: len(source.stores[ACCELERATOR_FUNCTION].objects["default"]) == 3
                )
                assert not source.loaded
                assert len(source.index) == 0
                assert "forbidden" in source.error
            await until(lambda: source.loaded)
            assert names(source) == {"y", "z"}


async def test_mappings_that_can_not_be_used_are_refused_with_the_reason(tmp_path: Path) -> None:
    async with MappingServer(tmp_path) as server:
        server.put(function("bad-id", "af", interface="xyz"))
        server.put(function("bad-mode", "afoo"))
        server.put(region(f"region-{ARRIA}"))
        server.put_function("good")
        with capture_logs() as logs:
            async with following(server) as source:
                await until_watching(server, source)
                rejected = source.index.namespace("default").rejected
                assert names(source) == {"good"}
                assert "is not 8 to 32 hex digits" in rejected["bad-id"]
                assert 'must be af or region, not "afoo"' in rejected["bad-mode"]
                assert "the form of a physical name" in rejected[f"region-{ARRIA}"]
                assert source.rejected == 3
                before = source.index
                server.cut_watches()
                await until(lambda: server.list_count() == 2)
                await until_watching(server, source)
                assert source.index is before, "a list that is the same again changes nothing"
                server.put_function("good")
                server.put_function("y", "team")
                await until(lambda: names(source, "team") == {"y"})
                assert source.index.namespace("default") is before.namespace("default")
        logged = next(entry for entry in logs if entry["event"] == "mapping can't be used")
        assert logged["log_level"] == "warning"
        assert logged["mappings"] == 3
        assert logged["reason"].removeprefix("3 of them, first: ") in rejected.values()


async def test_a_kind_is_empty_until_it_is_installed_and_kept_when_it_goes_missing(
    tmp_path: Path,
) -> None:
    def of_accelerators(request: Request) -> bool:
        return request.path.endswith(ACCELERATORS.plural)

    async with MappingServer(tmp_path) as server:
        server.put_function("nlb0")
        with ExitStack() as missing:
            missing.enter_context(server.faults.failing(404, matches=of_accelerators))
            async with following(server) as source:
                await until(lambda: source.loaded)
                assert names(source) == {"nlb0"}
                assert (source.error, source.watch_failures["Accelerator"]) == ("", 0)
                missing.close()
                server.put(accelerator("gpu", "nvidia.com/gpu", namespace="default"))
                await until(lambda: source.index.namespace("default").accelerators.by_name)
                await until_watching(server, source)
                with server.faults.failing(404, matches=of_accelerators):
                    server.cut_watches()
                    await until(lambda: source.watch_failures["Accelerator"] > 2)
                    assert {*source.index.namespace("default").accelerators.by_name} == {"gpu"}


# The mappings of one namespace


async def read(server: MappingServer) -> NamespaceMappings:
    async with ClusterClient(server.access) as client:
        return await ApiServerPods(client).mappings("team")


async def test_both_kinds_are_read_page_by_page_and_bad_objects_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lists, "PAGE", 1)
    async with MappingServer(tmp_path) as server:
        server.put_function("a", "team")
        server.put_function("b", "team", mode="af")
        server.put_function("c", "elsewhere")
        server.put_region("r", "team")
        server.put(function("bad", "af", afu="xyz", namespace="team"))
        found = await read(server)
    assert sorted(found.by_name) == ["a", "b", "r"]
    assert found.namespace == "team"
    assert found.functions.keys() == {(ARRIA, NLB0)}
    assert function_name(ARRIA, NLB0) in found.modes
    assert "afuId" in found.rejected["bad"]


@pytest.mark.parametrize(
    ("status", "text"), [(404, "definitions of fpga.intel.com installed"), (403, "answers 403")]
)
async def test_an_api_server_that_refuses_is_an_error(
    tmp_path: Path, status: int, text: str
) -> None:
    async with MappingServer(tmp_path) as server:
        with server.faults.failing(status), pytest.raises(ClusterError, match=text) as raised:
            await read(server)
    assert not is_outage(raised.value)


# The stores of all kinds against the index of the same objects, built anew


def item(obj: Object) -> Item:
    metadata = ObjectMetadata(obj["metadata"]["name"], obj["metadata"].get("namespace", "default"))
    return Item(metadata, msgspec.Raw(json.dumps(obj["spec"]).encode()))


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
    model: dict[tuple[str, str, str], Object] = {}
    stores = {kind: Store(partial(read_item, kind), lambda: None) for kind in TABLE}
    index = EMPTY_INDEX
    for step, chosen in steps:
        objects = chosen
        if step == "list":
            model = {key: obj for key, obj in model.items() if key[0] != ACCELERATOR_FUNCTION}
            objects = [obj for obj in chosen if obj["kind"] == ACCELERATOR_FUNCTION]
            relist(stores[ACCELERATOR_FUNCTION], objects)
        else:
            getattr(stores[objects[0]["kind"]], step)(item(objects[0]))
        for obj in objects:
            key = (obj["kind"], "default", obj["metadata"]["name"])
            model.pop(key, None)
            if step != "remove":
                model[key] = obj
        index = indexed(index, stores.values())
        entries = [read_entry(model[key]) for key in sorted(model)]
        assert as_if_built(index) == as_if_built(build_index(each for each in entries if each))
