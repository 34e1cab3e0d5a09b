"""The kubelet's work on the API server: its node, pods and events.

Three loops, each of which starts over after an error, with a growing, jittered pause:

- the node is created (or found), and its status follows capacity and allocatable;
- pods bound to the node are listed, then watched; a list that lacks a pod ends it here;
- what became of pods, and the events on them, is written back as it changes.

Decisions about devices are made in `standin`.
"""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import httpx2
import structlog

from services.kube.client import ClusterClient, HttpResponse
from services.process.errors import AskerError, ClusterError
from simulator.kubelet import reports
from simulator.kubelet.reports import GIVEN_ANNOTATION, Json
from simulator.kubelet.standin import KubeletStandIn
from simulator.kubelet.states import Event, PodState

LOG = structlog.get_logger()

NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/pods"
MERGE_PATCH: Final = "application/merge-patch+json"

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 2.0
WATCH_SECONDS: Final = 300
WATCH_GRACE_SECONDS: Final = 15
LAST_WORDS_SECONDS: Final = 1.0
"""How long requests under way may take once all is over."""
LOOK_SECONDS: Final = 5.0
"""How often the node's status is looked at though nothing happened: capacity may expire."""


class NodeAgent:
    """Synchronises a kubelet with an API server."""

    def __init__(self, kubelet: KubeletStandIn, client: ClusterClient) -> None:
        self.registered = asyncio.Event()
        self._kubelet = kubelet
        self._client = client
        self._node = kubelet.node_name
        self._chores: set[asyncio.Task[None]] = set()
        self._asking: set[asyncio.Task[HttpResponse]] = set()
        self._node_written: Json = {}
        self._written: dict[str, tuple[Json, str]] = {}
        self._events_written: dict[str, int] = {}

    async def run(self) -> None:
        """Runs until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._again_and_again("node", self._follow_node))
                group.create_task(self._again_and_again("pods", self._follow_pods))
                group.create_task(self._again_and_again("report", self._report))
        finally:
            for chore in self._chores:
                chore.cancel()
            await asyncio.gather(*self._chores, return_exceptions=True)
            if self._asking:
                await asyncio.wait(self._asking, timeout=LAST_WORDS_SECONDS)
            for asking in self._asking:
                asking.cancel()

    async def _again_and_again(self, what: str, follow: Callable[[], Awaitable[None]]) -> None:
        """Repeat a loop after errors of the API server."""
        pause = FIRST_PAUSE
        while True:
            started = asyncio.get_running_loop().time()
            try:
                await follow()
            except (ClusterError, LookupError, TypeError) as error:  # the latter: odd objects
                LOG.warning("API server failed", node=self._node, loop=what, reason=repr(error))
            lasted = asyncio.get_running_loop().time() - started
            pause = FIRST_PAUSE if lasted > LONGEST_PAUSE else min(pause * 2, LONGEST_PAUSE)
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - jitter

    # The node

    async def _follow_node(self) -> None:
        """Create the node if it is missing, then write its status whenever it changes."""
        await self._create_node()
        self._node_written = {}
        while True:
            version = self._kubelet.version
            await self._write_node_status()
            self.registered.set()
            await self._changed(version, LOOK_SECONDS)

    async def _create_node(self) -> None:
        body = reports.node(self._node)
        answer = await self._query("POST", NODES, body=body)
        if answer.status != httpx2.codes.CONFLICT:
            self._client.expect(answer, f"POST {NODES}")
            LOG.info("node registered", node=self._node)
            return
        patch = {"metadata": {"labels": body["metadata"]["labels"]}}
        await self._patch(f"{NODES}/{self._node}", patch)

    async def _write_node_status(self) -> None:
        status = reports.node_status(self._node, self._kubelet.resources)
        if status == self._node_written:
            return
        found = await self._patch(f"{NODES}/{self._node}/status", {"status": status})
        if not found:
            raise ClusterError(f"node {self._node} was deleted while its kubelet runs")
        self._node_written = status

    async def _changed(self, version: int, seconds: float) -> None:
        """Waits for a change, or so long."""
        try:
            await self._kubelet.until(lambda: self._kubelet.version != version, seconds)
        except TimeoutError:
            return

    # Pods

    async def _follow_pods(self) -> None:
        """Lists the node's pods, then watches them until the watch ends."""
        chosen: dict[str, str | int] = {"fieldSelector": f"spec.nodeName={self._node}"}
        answer = await self._query("GET", PODS, params=chosen)
        listed = _decode(self._client.expect(answer, f"GET {PODS}").body)
        present = {str(each["metadata"]["uid"]) for each in listed["items"]}
        for state in self._kubelet.pods:
            if state.spec.uid not in present:
                await self._end(state)
        for pod in listed["items"]:
            self._take(pod)
        await self._watch_pods(chosen, str(listed["metadata"]["resourceVersion"]))

    async def _watch_pods(self, chosen: dict[str, str | int], version: str) -> None:
        params: dict[str, str | int] = {
            **chosen,
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": WATCH_SECONDS,
        }
        idle = WATCH_SECONDS + WATCH_GRACE_SECONDS
        async with self._client.lines(PODS, params, seconds=idle) as lines:
            async for line in lines:
                event = _decode(line)
                match event["type"]:
                    case "ADDED" | "MODIFIED":
                        self._take(event["object"])
                    case "DELETED":
                        await self._gone(event["object"])
                    case "ERROR":
                        raise ClusterError(f"the watch of pods ended: {event['object']}")

    def _take(self, pod: Json) -> None:
        """Run or end a pod, as its object says."""
        uid = str(pod["metadata"]["uid"])
        state = self._known(uid)
        if pod["metadata"].get("deletionTimestamp"):
            self._chore(self._finish_deletion(pod, state))
        elif state is None and _phase(pod) == "Running":
            self._kubelet.adopt(pod)
        elif state is None and _phase(pod) not in {"Succeeded", "Failed"}:
            self._chore(self._admit(pod))

    async def _admit(self, pod: Json) -> None:
        try:
            await self._kubelet.admit(pod)
        except AskerError as error:
            LOG.warning("pod ignored", pod=pod["metadata"].get("name"), reason=str(error))

    async def _gone(self, pod: Json) -> None:
        state = self._known(str(pod["metadata"]["uid"]))
        if state is not None:
            await self._end(state)

    async def _end(self, state: PodState) -> None:
        await self._kubelet.delete_pod(state)
        self._written.pop(state.spec.uid, None)

    async def _finish_deletion(self, pod: Json, state: PodState | None) -> None:
        """End a pod that is being deleted, then delete it on the API server."""
        if state is not None:
            await self._end(state)
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        try:
            await self._query("DELETE", _pod_path(pod["metadata"]), body=body)
        except ClusterError as error:
            LOG.warning("deletion not reported", pod=pod["metadata"]["name"], reason=str(error))

    def _known(self, uid: str) -> PodState | None:
        return next((each for each in self._kubelet.pods if each.spec.uid == uid), None)

    def _chore(self, work: Awaitable[None]) -> None:
        """Do something in parallel to the watch, which must not wait for plugins."""
        task = asyncio.ensure_future(work)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)

    # Reports about pods

    async def _report(self) -> None:
        """Write the status of pods, and events, whenever something changes."""
        while True:
            version = self._kubelet.version
            for state in self._kubelet.pods:
                await self._report_pod(state)
            events = list(self._kubelet.events)
            for event in events:
                await self._report_event(event)
            kept = {event.key for event in events}
            self._events_written = {k: v for k, v in self._events_written.items() if k in kept}
            await self._changed(version, LOOK_SECONDS)

    async def _report_pod(self, state: PodState) -> None:
        path = _pod_path({"namespace": state.spec.namespace, "name": state.spec.name})
        health = {
            each.spec.name: self._kubelet.device_health(state, each.spec.name) for each in state
        }
        status, given = reports.pod_status(state, health), reports.given(state)
        status_before, given_before = self._written.get(state.spec.uid, ({}, "{}"))
        identity = {"uid": state.spec.uid}
        if given != given_before:
            annotations = {GIVEN_ANNOTATION: given}
            await self._patch(path, {"metadata": identity | {"annotations": annotations}})
        if status != status_before:
            await self._patch(f"{path}/status", {"metadata": identity, "status": status})
        self._written[state.spec.uid] = (status, given)

    async def _report_event(self, event: Event) -> None:
        written = self._events_written.get(event.key, 0)
        if written == event.count:
            return
        path = f"/api/v1/namespaces/{event.pod.namespace}/events"
        count = event.count
        if written:
            await self._patch(f"{path}/{reports.event_name(event)}", reports.event_again(event))
        else:
            body = reports.event_object(event, self._node)
            answer = await self._query("POST", path, body=body)
            if answer.status != httpx2.codes.NOT_FOUND:  # its namespace may be gone
                self._client.expect(answer, f"POST {path}")
        self._events_written[event.key] = count

    async def _query(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        body: Json | None = None,
        content_type: str = "application/json",
    ) -> HttpResponse:
        """Send a request to the API server; a cancelled caller lets it finish.

        So a write is not broken off half-way, nor a connection in its handshake (whose socket
        Python 3.11 would leave open).
        """
        request = self._client.request(
            method, path, params=params, body=body, content_type=content_type
        )
        asking = asyncio.create_task(request)
        self._asking.add(asking)
        asking.add_done_callback(self._done_asking)
        return await asyncio.shield(asking)

    def _done_asking(self, asking: asyncio.Task[HttpResponse]) -> None:
        self._asking.discard(asking)
        if not asking.cancelled():
            asking.exception()  # whoever still waits gets it; nobody else needs to hear of it

    async def _patch(self, path: str, patch: Json) -> bool:
        """Patches an object; gives whether it is there, and still the same one."""
        answer = await self._query("PATCH", path, body=patch, content_type=MERGE_PATCH)
        if answer.status in {httpx2.codes.NOT_FOUND, httpx2.codes.CONFLICT}:
            return False
        self._client.expect(answer, f"PATCH {path}")
        return True


def _decode(body: bytes) -> dict[str, Any]:
    """An object of the API."""
    try:
        decoded = json.loads(body)
    except ValueError as error:
        raise ClusterError(f"the API server's answer is no JSON: {error}") from error
    if not isinstance(decoded, dict):
        raise ClusterError("the API server's answer is no object")
    return decoded


def _phase(pod: Json) -> str:
    return str((pod.get("status") or {}).get("phase") or "")


def _pod_path(metadata: Json) -> str:
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
