"""The kubelet's work on the API server: its node, pods and events.

Three loops, each of which starts over after an error. Devices are decided on in `device_manager`.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import httpx2
import structlog

from services.kube.client import ClusterClient
from services.process.errors import ClusterError, InvalidInput
from services.process.retry import Backoff
from simulator.kubelet import reports
from simulator.kubelet.pods import Event, PodState
from simulator.kubelet.reports import GIVEN_ANNOTATION, Json
from simulator.kubelet.standin import KubeletStandIn

LOG = structlog.get_logger()

NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/pods"
MERGE_PATCH: Final = "application/merge-patch+json"

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 2.0
WATCH_SECONDS: Final = 300
WATCH_GRACE_SECONDS: Final = 15


class NodeAgent:
    def __init__(self, kubelet: KubeletStandIn, client: ClusterClient) -> None:
        self.registered = asyncio.Event()
        self._kubelet = kubelet
        self._client = client
        self._node = kubelet.node_name
        self._tasks: set[asyncio.Task[None]] = set()
        self._node_written: Json = {}
        self._written: dict[str, tuple[Json, str]] = {}
        self._events_written: set[str] = set()

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._repeat("node", self._follow_node))
                group.create_task(self._repeat("pods", self._follow_pods))
                group.create_task(self._repeat("report", self._report))
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _repeat(self, what: str, follow: Callable[[], Awaitable[None]]) -> None:
        backoff, clock = Backoff(FIRST_PAUSE, LONGEST_PAUSE), asyncio.get_running_loop().time
        while True:
            started = clock()
            try:
                await follow()
            except (ClusterError, LookupError, TypeError, ValueError) as error:
                LOG.warning("API server failed", node=self._node, loop=what, reason=repr(error))
            if clock() - started > LONGEST_PAUSE:
                backoff.reset()
            await asyncio.sleep(backoff.pause())

    async def _changed(self, version: int) -> None:
        journal = self._kubelet.journal
        await journal.until(lambda: journal.version != version)

    # The node

    async def _follow_node(self) -> None:
        """Create the node if it is missing, then write its status whenever it changes."""
        body = reports.node(self._node)
        answer = await self._client.request("POST", NODES, body=body)
        if answer.status == httpx2.codes.CONFLICT:
            patch = {"metadata": {"labels": body["metadata"]["labels"]}}
            await self._patch(f"{NODES}/{self._node}", patch)
        else:
            self._client.expect(answer, f"POST {NODES}")
        self._node_written = {}
        while True:
            version = self._kubelet.journal.version
            kubelet = self._kubelet
            status = reports.node_status(self._node, kubelet.capacity, kubelet.allocatable)
            if status != self._node_written:
                if not await self._patch(f"{NODES}/{self._node}/status", {"status": status}):
                    raise ClusterError(f"node {self._node} was deleted while its kubelet runs")
                self._node_written = status
            self.registered.set()
            await self._changed(version)

    # Pods

    async def _follow_pods(self) -> None:
        """List the node's pods, then watch them until the watch ends."""
        params: dict[str, str | int] = {"fieldSelector": f"spec.nodeName={self._node}"}
        answer = await self._client.request("GET", PODS, params=params)
        listed = json.loads(self._client.expect(answer, f"GET {PODS}").body)
        # What was deleted while nothing was watched.
        present = {str(each["metadata"]["uid"]) for each in listed["items"]}
        for state in self._kubelet.pods:
            if state.spec.uid not in present:
                self._start(self._end(state))
        for pod in listed["items"]:
            self._sync(pod)
        params |= {"watch": "1", "resourceVersion": str(listed["metadata"]["resourceVersion"])}
        params |= {"allowWatchBookmarks": "true", "timeoutSeconds": WATCH_SECONDS}
        idle = WATCH_SECONDS + WATCH_GRACE_SECONDS
        async with self._client.lines(PODS, params, seconds=idle) as lines:
            async for line in lines:
                event = json.loads(line)
                match event["type"]:
                    case "ADDED" | "MODIFIED":
                        self._sync(event["object"])
                    case "DELETED":
                        if (gone := self._known(event["object"])) is not None:
                            self._start(self._end(gone))
                    case "ERROR":
                        raise ClusterError(f"the watch of pods ended: {event['object']}")

    def _sync(self, pod: Json) -> None:
        """Run or end a pod, as its object says, in parallel to the watch."""
        state, phase = self._known(pod), str((pod.get("status") or {}).get("phase") or "")
        if pod["metadata"].get("deletionTimestamp"):
            self._start(self._finish_deletion(pod, state))
        elif state is None and phase not in {"Succeeded", "Failed"}:
            self._start(self._admit(pod))

    def _known(self, pod: Json) -> PodState | None:
        uid = str(pod["metadata"]["uid"])
        return next((each for each in self._kubelet.pods if each.spec.uid == uid), None)

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _admit(self, pod: Json) -> None:
        try:
            await self._kubelet.admit(pod)
        except InvalidInput as error:
            LOG.warning("pod ignored", pod=pod["metadata"].get("name"), reason=str(error))

    async def _end(self, state: PodState) -> None:
        await self._kubelet.delete_pod(state)
        self._written.pop(state.spec.uid, None)

    async def _finish_deletion(self, pod: Json, state: PodState | None) -> None:
        """End a pod that is being deleted, then delete it on the API server."""
        if state is not None:
            await self._end(state)
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        while True:
            try:
                await self._client.request("DELETE", _pod_path(pod["metadata"]), body=body)
            except ClusterError as error:
                LOG.warning("deletion failed", pod=pod["metadata"]["name"], reason=str(error))
                await asyncio.sleep(LONGEST_PAUSE)
            else:
                return

    # Reports about pods

    async def _report(self) -> None:
        while True:
            version = self._kubelet.journal.version
            for state in self._kubelet.pods:
                await self._report_pod(state)
            events = list(self._kubelet.events)
            for event in events:
                await self._report_event(event)
            self._events_written &= {event.key for event in events}
            await self._changed(version)

    async def _report_pod(self, state: PodState) -> None:
        path = _pod_path({"namespace": state.spec.namespace, "name": state.spec.name})
        status = reports.pod_status(state)
        given = reports.given(state)
        status_before, given_before = self._written.get(state.spec.uid, ({}, "{}"))
        identity = {"uid": state.spec.uid}
        if given != given_before:
            annotations = {GIVEN_ANNOTATION: given}
            await self._patch(path, {"metadata": identity | {"annotations": annotations}})
        if status != status_before:
            await self._patch(f"{path}/status", {"metadata": identity, "status": status})
        self._written[state.spec.uid] = (status, given)

    async def _report_event(self, event: Event) -> None:
        if event.key in self._events_written:
            return
        path = f"/api/v1/namespaces/{event.pod.namespace}/events"
        answer = await self._client.request(
            "POST", path, body=reports.event_object(event, self._node)
        )
        if answer.status != httpx2.codes.NOT_FOUND:  # its namespace may be gone
            self._client.expect(answer, f"POST {path}")
        self._events_written.add(event.key)

    async def _patch(self, path: str, patch: Json) -> bool:
        """Patch an object; returns whether it is there, and still the same one."""
        answer = await self._client.request("PATCH", path, body=patch, content_type=MERGE_PATCH)
        if answer.status in {httpx2.codes.NOT_FOUND, httpx2.codes.CONFLICT}:
            return False
        self._client.expect(answer, f"PATCH {path}")
        return True


def _pod_path(metadata: Mapping[str, Any]) -> str:
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
