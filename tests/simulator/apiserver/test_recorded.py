"""What a real 1.36 API server sent, sent by the stand-in: lists and errors byte for byte.

Nothing is copied through: the objects are seeded or made by the requests that made them, and uids,
times and revisions are the recorded ones.
"""

import copy
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from simulator.apiserver.identity import Identity
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
    register,
    watching,
)
from tests.support import require_shared

pytestmark = pytest.mark.anyio


@pytest.fixture
def recorded() -> Path:
    return require_shared("recorded", "kube-apiserver-1.36")


def at(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def serving(tmp_path: Path, recorded: Path) -> ApiServerStandIn:
    api = ApiServerStandIn(tmp_path)
    for item in json.loads((recorded / "list-full.json").read_bytes())["items"]:
        api.seed(item)
    api.store.advance(689)
    return api


async def test_the_full_list_is_reproduced_byte_for_byte(tmp_path: Path, recorded: Path) -> None:
    async with serving(tmp_path, recorded) as api, client_of(api) as http:
        answer = await http.get(f"{CRS}/acceleratorfunctions")
    indented = json.dumps(json.loads(answer.content), indent=2, ensure_ascii=False)
    assert indented.encode() == (recorded / "list-full.json").read_bytes()


async def test_the_first_page_is_reproduced_byte_for_byte(tmp_path: Path, recorded: Path) -> None:
    async with serving(tmp_path, recorded) as api, client_of(api) as http:
        answer = await http.get(f"{CRS}/acceleratorfunctions", params={"limit": "2"})
    # The recording went through `python -m json.tool`: four spaces, where an API server indents
    # by two. The order of keys, the continue token and the counts are the server's.
    indented = json.dumps(json.loads(answer.content), indent=4) + "\n"
    assert indented.encode() == (recorded / "list-page1.json").read_bytes()


async def test_the_recorded_continue_token_leads_to_the_rest(
    tmp_path: Path, recorded: Path
) -> None:
    page = json.loads((recorded / "list-page1.json").read_bytes())
    params = {"limit": "2", "continue": page["metadata"]["continue"]}
    async with serving(tmp_path, recorded) as api, client_of(api) as http:
        rest = (await http.get(f"{CRS}/acceleratorfunctions", params=params)).json()
    full = json.loads((recorded / "list-full.json").read_bytes())
    assert page["items"] + rest["items"] == full["items"]
    assert rest["metadata"] == {"continue": "", "resourceVersion": "689"}


async def test_the_watch_is_reproduced_by_doing_what_was_done(
    tmp_path: Path, recorded: Path
) -> None:
    expected = (recorded / "watch-add-modify-delete-bookmark.jsonl").read_bytes()
    first = json.loads(expected.split(b"\n")[0])["object"]
    clock = [at("2026-11-21T00:30:07Z")]
    options = Options(
        bookmark_interval=0.05, now=lambda: clock[0], new_uid=lambda: str(first["metadata"]["uid"])
    )
    async with ApiServerStandIn(tmp_path, options) as api, client_of(api) as http:
        api.store.advance(689)
        async with watching(
            http,
            f"{CRS}/acceleratorfunctions",
            resourceVersion="689",
            allowWatchBookmarks="true",
            timeoutSeconds="30",
        ) as lines:
            applied = as_applied(first)
            await created(http, FUNCTIONS, applied, fieldManager="kubectl-client-side-apply")
            clock[0] = at("2026-11-21T00:30:08Z")
            name = f"{FUNCTIONS}/{first['metadata']['name']}"
            change = {"spec": {"mode": "region"}}
            by = {"fieldManager": "kubectl-patch"}
            assert (await http.patch(name, json=change, params=by, headers=MERGE)).is_success
            assert (await http.delete(name)).is_success
            got: list[bytes] = []
            while len(got) < 6:
                line = await lines.line()
                event = json.loads(line)
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK" or version == "692":  # earlier ones may come between
                    got.append(line)
    assert events_of(b"".join(got)) == events_of(expected)


def events_of(lines: bytes) -> list[Json]:
    """The events without `managedFields`, which the stand-in doesn't keep."""
    events = [json.loads(line) for line in lines.splitlines()]
    for event in events:
        event["object"]["metadata"].pop("managedFields", None)
    return events


def as_applied(stored: Json) -> Json:
    item = copy.deepcopy(stored)
    annotations = item["metadata"]["annotations"]
    item["metadata"] = {"name": item["metadata"]["name"], "annotations": annotations}
    return item


async def test_the_410_is_reproduced_byte_for_byte(tmp_path: Path, recorded: Path) -> None:
    async with (
        ApiServerStandIn(tmp_path) as api,
        client_of(api) as http,
    ):
        api.store.advance(225)
        api.compact()
        async with watching(http, f"{CRS}/acceleratorfunctions", resourceVersion="1") as lines:
            assert await lines.rest() == (recorded / "watch-too-old-410.txt").read_bytes()


RECORDED_REVIEWS = ["small", "medium", "large-env"]


@pytest.mark.parametrize("name", RECORDED_REVIEWS)
async def test_the_review_is_reproduced_from_the_pod_as_kubectl_sent_it(
    tmp_path: Path, recorded: Path, webhook: FakeWebhook, name: str
) -> None:
    expected = json.loads((recorded / f"admissionreview-{name}.json").read_bytes())
    asked = expected["request"]
    [made] = {entry["time"] for entry in asked["object"]["metadata"].pop("managedFields")}
    options = Options(now=lambda: at(made), new_uid=lambda: str(asked["uid"]))
    async with ApiServerStandIn(tmp_path, options) as api, client_of(api, "recorded") as http:
        user = asked["userInfo"]
        extra = {key: tuple(values) for key, values in user["extra"].items()}
        identity = Identity(user["username"], tuple(user["groups"]), extra)
        api.tokens.allow("recorded", identity)
        await register(http, webhook.config(mutate={}))
        how = {"dryRun": "All", "fieldManager": "kubectl-create", "fieldValidation": "Strict"}
        await created(http, PODS, as_written(asked["object"]), **how)
    assert json.loads(webhook.asked[0].body) == expected


def as_written(item: Json) -> Json:
    """The pod of a review without what the API server put in."""
    written: Json = copy.deepcopy(item)
    del written["status"], written["metadata"]["namespace"]
    spec = written["spec"]
    for name in (
        "tolerations",
        "priority",
        "preemptionPolicy",
        "enableServiceLinks",
        "schedulerName",
        "securityContext",
        "dnsPolicy",
        "terminationGracePeriodSeconds",
        "restartPolicy",
    ):
        del spec[name]
    for container in spec["containers"] + spec.get("initContainers", []):
        for name in ("terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy"):
            del container[name]
        container["resources"].pop("requests", None)
        probe: dict[str, Any] = container.get("livenessProbe", {})
        for name in ("timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
            probe.pop(name, None)
    return written


@pytest.fixture
def recorded_headers(recorded: Path) -> list[str]:
    text = (recorded / "admissionreview-request-headers.txt").read_text()
    return [line for line in text.splitlines() if ": " in line]


async def test_a_webhook_is_called_with_the_recorded_headers(
    tmp_path: Path, webhook: FakeWebhook, recorded_headers: list[str]
) -> None:
    async with ApiServerStandIn(tmp_path) as api, client_of(api) as http:
        await register(http, webhook.config(mutate={}))
        await created(http, PODS, {"metadata": {"name": "p"}, "spec": {"containers": [C]}})
    sent = webhook.asked[0]
    for line in recorded_headers:
        name, _, value = line.partition(": ")
        if name not in ("Host", "Content-Length"):
            assert sent.headers[name.lower()] == value
    assert sent.target == "/mutate?timeout=10s"


C = {"name": "c", "image": "reg/app:1"}
