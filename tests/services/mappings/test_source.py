"""Objects of an API server as an index: what serves, what doesn't, and when it is handed out."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from services.kube.connection import connector
from services.mappings.index import MappingIndex
from services.mappings.model import ACCELERATOR_FUNCTION, FPGA_REGION
from services.mappings.source import ApiServerSource, ProblemLog
from services.process.errors import ClusterError
from tests.faults.apiserver import FUNCTIONS, REGIONS, FaultyApiServer, encode
from tests.services.kube.following import (
    ARRIA,
    NLB0,
    FakeTime,
    following,
    mode_of,
    names,
    put_function,
    put_region,
    until,
    until_watching,
    watched,
    write_kubeconfig,
)

pytestmark = pytest.mark.anyio


async def test_mappings_of_both_kinds_and_all_namespaces_serve(tmp_path: Path) -> None:
    async with FaultyApiServer().running() as server:
        put_function(server, "nlb0")
        put_function(server, "nlb0", "team")
        put_region(server, "arria", "team")
        async with following(server, tmp_path) as source:
            await until(lambda: source.loaded)
            assert names(source, "default") == {"nlb0"}
            assert names(source, "team") == {"nlb0", "arria"}
            assert source.index.namespace("default").functions == {(ARRIA, NLB0): 1}
            assert source.index.counts == {ACCELERATOR_FUNCTION: 2, FPGA_REGION: 1}
            assert source.rejected == 0
            assert source.error == ""


async def test_changes_are_followed(tmp_path: Path) -> None:
    async with FaultyApiServer().running() as server, following(server, tmp_path) as source:
        await until_watching(server, source)
        before = source.index
        put_function(server, "nlb0")
        await until(lambda: names(source) == {"nlb0"})
        server.put(FUNCTIONS, "default", "nlb0", interfaceId=ARRIA, afuId=NLB0, mode="af")
        await until(lambda: mode_of(source, "nlb0") == "af")
        put_region(server, "arria")
        await until(lambda: names(source) == {"nlb0", "arria"})
        server.delete(FUNCTIONS, "default", "nlb0")
        await until(lambda: names(source) == {"arria"})
        assert len(before) == 0, "an index never changes"


async def test_nothing_serves_before_both_kinds_are_listed(tmp_path: Path) -> None:
    async with FaultyApiServer().running() as server:
        put_function(server, "x")
        put_function(server, "y")
        put_region(server, "x")

        def regions(request: object) -> bool:
            return getattr(request, "plural", "") == REGIONS

        async with following(server, tmp_path) as source:
            with server.answering(403, "forbidden", matches=regions):
                await until(lambda: server.open_watches == 1)
                put_function(server, "z")
                await until(
                    lambda: len(source.stores[ACCELERATOR_FUNCTION].entries["default"]) == 3
                )
                assert not source.loaded
                assert source.index.counts[ACCELERATOR_FUNCTION] == 0, (
                    "what is counted is what serves"
                )
                assert len(source.index) == 0
                assert "forbidden" in source.error
            await until(lambda: source.loaded)
            assert names(source) == {"y", "z"}


async def test_what_can_not_be_used_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with FaultyApiServer().running() as server:
        server.put(FUNCTIONS, "default", "bad-id", interfaceId="xyz", afuId=NLB0, mode="af")
        server.put(FUNCTIONS, "default", "bad-mode", interfaceId=ARRIA, afuId=NLB0, mode="afoo")
        server.put(REGIONS, "default", f"region-{ARRIA}", interfaceId=ARRIA)
        put_function(server, "good")
        with capture_logs() as logs:
            async with following(server, tmp_path) as source:
                await until_watching(server, source)
                rejected = source.index.namespace("default").rejected
                assert names(source) == {"good"}
                assert "is not 8 to 32 hex digits" in rejected["bad-id"]
                assert 'must be af or region, not "afoo"' in rejected["bad-mode"]
                assert "the form of a physical name" in rejected[f"region-{ARRIA}"]
                assert source.rejected == 3
                server.compact()
                server.cut_watches()
                await until(lambda: server.open_watches == 2, "listed again after the gap")
        told = [entry["reason"] for entry in logs if entry["event"] == "mapping can't be used"]
        assert sorted(told) == sorted(rejected.values()), "each is told once, however often listed"


async def test_objects_that_can_not_be_read_do_not_stand_in_the_way(tmp_path: Path) -> None:
    async with FaultyApiServer().running() as server:
        put_function(server, "good")
        odd = [b'{"metadata":{"name":5}}', b'{"metadata":{"name":"x"}}', b"7"]
        odd.append(encode(FUNCTIONS, "", "nowhere", 1, {}))
        server.fill(FUNCTIONS, [(("odd", str(n)), data) for n, data in enumerate(odd)])
        with capture_logs() as logs:
            async with following(server, tmp_path) as source:
                await until(lambda: source.loaded)
                assert names(source) == {"good"}
    assert [entry["number"] for entry in logs if "objects without" in entry["event"]] == [4]


async def test_specs_of_any_shape_are_refused_and_nothing_else(tmp_path: Path) -> None:
    specs = [b"null", b"[]", b'"text"', b"5", b'{"interfaceId":{"a":[1e400]}}', b'{"mode":1}']
    specs += [b'{"mode":' + b"[" * 5000 + b"]" * 5000 + b"}"]
    async with FaultyApiServer().running() as server:
        for number, spec in enumerate(specs):
            data = encode(FUNCTIONS, "default", f"odd-{number}", 1, {}).replace(b"{}", spec)
            server.fill(FUNCTIONS, [(("default", f"odd-{number}"), data)])
        async with following(server, tmp_path) as source:
            await until(lambda: source.loaded)
            rejected = source.index.namespace("default").rejected
            assert set(rejected) == {f"odd-{number}" for number in range(len(specs))}
            put_function(server, "good")
            await until(lambda: names(source) == {"good"})


async def test_annotations_of_any_shape_keep_nothing_from_serving(tmp_path: Path) -> None:
    notes: dict[bytes, str | None] = {
        b'{"accelbind.dev/deprecated":"use y"}': "use y",
        b'{"a":{"b":1},"accelbind.dev/deprecated":"true","c":[]}': "",
        b'{"accelbind.dev/deprecated":5}': "",
        b'{"accelbind.dev/deprecated":null}': None,
        b'["accelbind.dev/deprecated"]': None,
        b"null": None,
        b"[" * 5000 + b"]" * 5000: None,
    }
    spec = {"interfaceId": ARRIA, "afuId": NLB0, "mode": "af"}
    async with FaultyApiServer().running() as server:
        for number, annotations in enumerate(notes):
            name = f"f{number}"
            data = encode(FUNCTIONS, "default", name, 1, spec)
            data = data.replace(b'"metadata": {', b'"metadata": {"annotations":%b,' % annotations)
            assert annotations in data
            server.fill(FUNCTIONS, [(("default", name), data)])
        async with following(server, tmp_path) as source:
            await until(lambda: source.loaded)
            served = source.index.namespace("default").by_name
            told = {int(name[1:]): mapping.deprecated for name, mapping in served.items()}
            assert told == dict(enumerate(notes.values()))


async def test_a_list_that_is_the_same_again_makes_no_new_mappings(tmp_path: Path) -> None:
    async with FaultyApiServer().running() as server:
        put_function(server, "x")
        async with following(server, tmp_path) as source:
            await until_watching(server, source)
            before = source.index.namespace("default")
            server.compact()
            server.cut_watches()
            put_function(server, "y", "team")
            await until(lambda: names(source, "team") == {"y"})
            assert source.index.namespace("default") is before


async def test_a_change_that_says_nothing_new_makes_no_new_index(tmp_path: Path) -> None:
    async with FaultyApiServer().running() as server:
        put_function(server, "x")
        async with following(server, tmp_path) as source:
            await until_watching(server, source)
            before = source.index
            put_function(server, "x")
            server.bookmark()
            server.put(FUNCTIONS, "default", "x", interfaceId=ARRIA, afuId=NLB0, mode="region")
            server.end_watches()
            await until(lambda: watched(server)[-1] == str(server.revision))
            assert source.index is before


async def test_many_changes_at_once_are_few_indexes(tmp_path: Path) -> None:
    made: list[MappingIndex] = []

    class Counting(ApiServerSource):
        def _swap(self, index: MappingIndex) -> None:
            made.append(index)
            super()._swap(index)

    async with FaultyApiServer().running() as server:
        kubeconfig = write_kubeconfig(tmp_path, server.url)
        source = Counting(connector(kubeconfig), interval=0.05)
        task = asyncio.create_task(source.follow())
        await until_watching(server, source)
        made.clear()
        for number in range(5000):
            put_function(server, f"f{number % 500}", afu=f"{number:032x}")
        await until(lambda: (ARRIA, f"{4999:032x}") in source.index.namespace("default").functions)
        assert len(source.index) == 500
        assert len(made) < 500
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_age_is_that_of_the_kind_that_is_silent(tmp_path: Path) -> None:
    time = FakeTime(until=2000)
    async with FaultyApiServer().running() as server:
        source = ApiServerSource(
            connector(write_kubeconfig(tmp_path, server.url)), timing=time.timing()
        )
        time.now += 5
        assert source.age == 5
        async with following(server, tmp_path, timing=time.timing()) as source:
            await until_watching(server, source)
            assert source.age == 0
            time.now += 30
            put_function(server, "x")
            await until(lambda: names(source) == {"x"})
            assert source.age == 30
            server.bookmark()
            await until(lambda: source.age == 0)


async def test_a_kubeconfig_that_is_no_good_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="not found"):
        ApiServerSource(connector(tmp_path / "nowhere"))


def test_problems_are_logged_at_a_bounded_rate() -> None:
    time = FakeTime()
    problems = ProblemLog(time.clock, most=2, window=60.0)
    with capture_logs() as logs:
        for number in range(5):
            problems.log(f"problem {number}")
        for text in ("later", "much later"):
            time.now += 60
            problems.log(text)
    assert [entry.get("reason", entry.get("number")) for entry in logs] == [
        "problem 0",
        "problem 1",
        3,
        "later",
        "much later",
    ]
