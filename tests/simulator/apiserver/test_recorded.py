"""What a real 1.36 API server sent, and what the stand-in sends: the same values.

Nothing is copied through: the objects are made by the requests that made them. Uids, times, users
and `managedFields` differ, and so does the form of continue tokens.
"""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from simulator.apiserver.standin import ApiServerStandIn, Options
from tests.simulator.apiserver.support import (
    CRS,
    FUNCTIONS,
    MERGE,
    PODS,
    FakeWebhook,
    Json,
    client_of,
    created,
    pod,
    register,
)
from tests.support import require_shared

pytestmark = pytest.mark.anyio
ALL = f"{CRS}/acceleratorfunctions"
FILLED_IN = (
    *("tolerations", "priority", "preemptionPolicy", "enableServiceLinks", "schedulerName"),
    *("securityContext", "dnsPolicy", "terminationGracePeriodSeconds", "restartPolicy"),
)
"""What the API server adds to a pod's spec."""


@pytest.fixture
def recorded() -> Path:
    return require_shared("recorded", "kube-apiserver-1.36")


def loaded(file: Path) -> Json:
    found: Json = json.loads(file.read_bytes())
    return found


async def test_a_list_and_its_pages_are_as_recorded(tmp_path: Path, recorded: Path) -> None:
    full, page = loaded(recorded / "list-full.json"), loaded(recorded / "list-page1.json")
    async with ApiServerStandIn(tmp_path) as api, client_of(api) as http:
        for item in sorted(full["items"], key=lambda one: int(one["metadata"]["resourceVersion"])):
            api.store.advance(int(item["metadata"]["resourceVersion"]) - 1)
            api.put(item)
        api.store.advance(int(full["metadata"]["resourceVersion"]))
        assert (await http.get(ALL)).json() == full
        first = (await http.get(ALL, params={"limit": "2"})).json()
        query = {"limit": "2", "continue": first["metadata"].pop("continue")}
        rest = (await http.get(ALL, params=query)).json()
    assert page["metadata"].pop("continue")
    assert first == page
    assert page["items"] + rest["items"] == full["items"]
    assert rest["metadata"] == full["metadata"]


async def test_the_watch_of_a_creation_a_change_and_a_deletion_is_as_recorded(
    tmp_path: Path, recorded: Path
) -> None:
    lines = (recorded / "watch-add-modify-delete-bookmark.jsonl").read_bytes().splitlines()
    expected = [without_chance(json.loads(line)) for line in lines]
    options = Options(bookmark_interval=0.05)
    async with ApiServerStandIn(tmp_path, options) as api, client_of(api) as http:
        api.store.advance(689)
        query = {"watch": "1", "resourceVersion": "689", "allowWatchBookmarks": "true"}
        async with http.stream("GET", ALL, params=query) as watch:
            events = watch.aiter_lines()
            stored = expected[0]["object"]
            name, annotations = (stored["metadata"][key] for key in ("name", "annotations"))
            metadata = {"name": name, "annotations": annotations}
            await created(http, FUNCTIONS, stored | {"metadata": metadata})
            change = {"spec": {"mode": "region"}}
            patched = await http.patch(f"{FUNCTIONS}/{name}", json=change, headers=MERGE)
            assert patched.is_success
            assert (await http.delete(f"{FUNCTIONS}/{name}")).is_success
            got: list[Json] = []
            while len(got) < 6:
                event = without_chance(json.loads(await anext(events)))
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK" or version == "692":  # earlier ones may come between
                    got.append(event)
    assert got == expected


def without_chance(event: Json) -> Json:
    for name in ("managedFields", "uid", "creationTimestamp"):
        event["object"]["metadata"].pop(name, None)
    return event


async def test_the_410_is_as_recorded(tmp_path: Path, recorded: Path) -> None:
    async with ApiServerStandIn(tmp_path) as api, client_of(api) as http:
        api.store.advance(225)
        api.compact()
        watch = await http.get(ALL, params={"watch": "1", "resourceVersion": "1"})
    assert watch.json() == loaded(recorded / "watch-too-old-410.txt")


@pytest.mark.parametrize("name", ["small", "medium", "large-env"])
async def test_the_review_of_a_pod_as_kubectl_sent_it_is_as_recorded(
    tmp_path: Path, recorded: Path, webhook: FakeWebhook, name: str
) -> None:
    expected = loaded(recorded / f"admissionreview-{name}.json")
    for chance in ("uid", "userInfo"):
        del expected["request"][chance]
    item = expected["request"]["object"]
    del item["metadata"]["managedFields"]
    async with ApiServerStandIn(tmp_path) as api, client_of(api) as http:
        await register(http, webhook)
        how = {"dryRun": "All", "fieldManager": "kubectl-create", "fieldValidation": "Strict"}
        await created(http, PODS, as_written(item), **how)
    sent = json.loads(webhook.asked[0].body)
    for chance in ("uid", "userInfo"):
        assert sent["request"].pop(chance)
    assert sent == expected


def as_written(item: Json) -> Json:
    """The pod of a review without what the API server added."""
    written: Json = copy.deepcopy(item)
    del written["status"], written["metadata"]["namespace"]
    spec = written["spec"]
    for name in FILLED_IN:
        del spec[name]
    for container in spec["containers"] + spec.get("initContainers", []):
        for name in ("terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy"):
            del container[name]
        container["resources"].pop("requests", None)
        probe: dict[str, Any] = container.get("livenessProbe", {})
        for name in ("timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
            probe.pop(name, None)
    return written


async def test_a_webhook_is_called_with_the_recorded_headers(
    tmp_path: Path, webhook: FakeWebhook, recorded: Path
) -> None:
    async with ApiServerStandIn(tmp_path) as api, client_of(api) as http:
        await register(http, webhook)
        await created(http, PODS, pod())
    sent = webhook.asked[0]
    for line in (recorded / "admissionreview-request-headers.txt").read_text().splitlines():
        name, colon, value = line.partition(": ")
        if colon and name not in ("Host", "Content-Length"):
            assert sent.headers[name.lower()] == value
    assert sent.target == "/mutate?timeout=10s"
