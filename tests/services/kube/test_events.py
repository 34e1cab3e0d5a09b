"""Events as they arrive at an API server, or don't."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from services.kube import events
from services.kube.client import ClusterClient
from services.kube.events import EventRecord, EventRecorder, ObjectReference, node_reference
from services.node.metrics import NodeMetrics
from services.process.retry import Backoff
from simulator.apiserver.standin import ApiServerStandIn
from tests.support import background, eventually_async

NODE = node_reference("n1")


class Recorder:
    """A recorder whose outcomes are counted."""

    def __init__(self, api: ApiServerStandIn, burst: int, seconds: float) -> None:
        self.registry = CollectorRegistry()
        self.now = 1_800_000_000.0
        self.connection = ClusterClient(api.access)
        self.recorder = EventRecorder(
            self.connection,
            component="accelbind-plugin",
            host="n1",
            results=NodeMetrics(self.registry).events,
            backoff=Backoff(0.01, 0.05),
            burst=burst,
            seconds=seconds,
            clock=lambda: self.now,
        )

    def record(
        self, subject: str = "port", reason: str = "Bad", message: str = "it is bad", **values: Any
    ) -> None:
        about = values.pop("about", NODE)
        self.recorder.record(EventRecord(about, subject, reason, message, **values))

    def count(self, outcome: str) -> float:
        labels = {"outcome": outcome}
        return self.registry.get_sample_value("accelbind_events_total", labels) or 0

    async def until(self, **counts: int) -> None:
        await eventually_async(
            lambda: all(self.count(key) == count for key, count in counts.items()), what=f"{counts}"
        )


@asynccontextmanager
async def writing(
    api: ApiServerStandIn, *, burst: int = 1000, seconds: float = 0.001
) -> AsyncIterator[Recorder]:
    made = Recorder(api, burst, seconds)
    async with made.connection, background(made.recorder.write_forever()):
        yield made


def written(api: ApiServerStandIn) -> list[dict[str, Any]]:
    return api.objects("Event")


async def test_an_event_is_what_kubectl_describe_shows_of_a_node(api: ApiServerStandIn) -> None:
    async with writing(api) as made:
        made.record(message="dfl-port.0 is Unhealthy: afu_id is empty")
        await made.until(created=1)
    [event] = written(api)
    assert event["metadata"]["namespace"] == "default"
    for key in ("metadata", "managedFields"):
        event.pop(key, None)
    assert event == {
        "kind": "Event",
        "apiVersion": "v1",
        "involvedObject": {"kind": "Node", "name": "n1", "uid": "n1", "apiVersion": "v1"},
        "reason": "Bad",
        "message": "dfl-port.0 is Unhealthy: afu_id is empty",
        "source": {"component": "accelbind-plugin", "host": "n1"},
        "firstTimestamp": "2027-01-15T08:00:00Z",
        "lastTimestamp": "2027-01-15T08:00:00Z",
        "count": 1,
        "type": "Warning",
        "reportingComponent": "accelbind-plugin",
        "reportingInstance": "n1",
    }


async def test_the_same_is_not_written_again_for_ten_minutes(api: ApiServerStandIn) -> None:
    async with writing(api, burst=6, seconds=3600) as made:
        made.record()
        await made.until(created=1)
        for repeats, seconds in enumerate((60, 539), 1):
            made.now += seconds
            made.record()
            await made.until(created=1, repeated=repeats)
        made.now += 1
        made.record()
        await made.until(created=2)
        made.record(message="it is worse")
        made.record("other", reason="Good", message="well", warning=False)
        made.record("third", about=node_reference("n2"))
        await made.until(created=5, repeated=2)
        made.now -= 3600  # a clock that is set back delays nothing
        made.record()
        await made.until(created=6)
    times = [each["firstTimestamp"] for each in written(api) if each["message"] == "it is bad"]
    at = ["2027-01-15T07:10:00Z", "2027-01-15T08:00:00Z", *["2027-01-15T08:10:00Z"] * 2]
    assert sorted(times) == at


async def test_the_memory_of_events_is_bounded(
    api: ApiServerStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MAX_WRITTEN", 2)
    async with writing(api) as made:
        for created, message in enumerate(("a", "b", "c", "a"), 1):
            made.record(message=message)
            await made.until(created=created)
        made.record(message="a")
        await made.until(created=4, repeated=1)


async def test_a_repeated_state_is_written_later_and_is_the_newest_then(
    api: ApiServerStandIn,
) -> None:
    async with writing(api, burst=5, seconds=3600) as made:
        for created, message in enumerate(("bad", "good"), 1):
            made.record(message=message)
            await made.until(created=created)
        made.now += events.QUIET_SECONDS - 0.1
        made.record(message="bad")  # waits
        made.record("other")
        await made.until(created=3)
        made.record(message="good")  # replaces what waits
        await made.until(created=3, superseded=1, repeated=1)
        made.record(message="bad")
        made.record("another", message="so that it waits again")
        await made.until(created=4)
        assert [each["message"] for each in written(api)].count("bad") == 1
        made.now += 1
        await made.until(created=5)
    assert [each["message"] for each in written(api)].count("bad") == 2


async def test_more_than_may_wait_is_dropped_and_counted(
    api: ApiServerStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MAX_WAITING", 3)
    async with writing(api) as made:
        async with api.away():
            for number in range(10):
                made.record(f"port.{number}", message=f"{number}")
            assert made.count("dropped") == 7
        await made.until(created=3)
    assert {event["message"] for event in written(api)} == {"7", "8", "9"}


async def test_what_waits_beyond_a_burst_is_counted_and_named_in_one_event(
    api: ApiServerStandIn,
) -> None:
    pod = ObjectReference("Pod", "p", namespace="default", uid="u")
    async with writing(api, burst=2, seconds=0.5) as made:
        for number in range(30):
            made.record(f"port.{number}", message=f"port.{number} is bad")
        made.record("port.x", reason="Good", message="port.x is well", warning=False)
        made.record("of a pod", about=pod)
        await made.until(created=5, merged=27)
    found = [each["message"] for each in written(api)]
    [merged] = [each for each in found if "more" in each]
    assert merged.startswith("port.2 is bad; and 27 more: port.3, port.4, ")
    assert merged.endswith("port.22 and 7 more")
    assert {"port.0 is bad", "port.1 is bad", "port.x is well", "it is bad"} < {*found}


async def test_an_event_that_the_api_server_refuses_is_dropped_and_logged_once(
    api: ApiServerStandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    async with writing(api) as made:
        with api.faults.failing(403):
            for refused in (1, 2):
                made.record()
                await made.until(refused=refused)
        made.record()
        await made.until(created=1)
    lines = capsys.readouterr().out.splitlines()
    [warning] = [line for line in lines if "[warning" in line]
    assert "Events can't be written now" in warning
    assert "RBAC" in warning
    assert sum("Events can be written again" in line for line in lines) == 1


@pytest.mark.parametrize("code", [429, 503, 409])
async def test_an_event_that_may_succeed_later_is_retried(api: ApiServerStandIn, code: int) -> None:
    async with writing(api) as made:
        with api.faults.failing(code, count=3):
            made.record()
            await made.until(created=1)
    assert len(written(api)) == 1
