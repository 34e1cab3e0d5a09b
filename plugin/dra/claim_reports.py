"""Reports the devices of claims in their status, where `kubectl describe resourceclaim` shows them.

    committed, or the health of a device changes ──► due ── written, or refused ──► reported
                                                     ├── failed ──► pause ──► due
                                                     └── forbidden ──► ten minutes ──► due, in turn

What was reported is kept in memory. Of the claims of an earlier process, the API server knows it.
Claims are prepared without any of this, also where the account may not write it.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NoReturn, TypeAlias

import msgspec
import structlog

from plugin.dra.book import ClaimBook, ClaimEntry
from plugin.dra.claims import ClaimRef
from plugin.dra.publisher import MANAGER
from services.containers.pod_source import ApiServerPods
from services.devices.dra import API_VERSION, CARD, DRIVER, DraDevice
from services.kube.client import (
    FORBIDDEN,
    NOT_FOUND,
    BadStatus,
    ClusterClient,
    Conflict,
    requested_pause,
    segment,
    will_pass,
)
from services.node.state import NodeState
from services.node.table import GONE
from services.process.errors import ClusterError
from services.process.json import UNREADABLE
from services.process.outage import Outage
from services.process.problem import Problem
from services.process.retry import Backoff

SPACING: Final = 0.5
"""Seconds between two rounds, at least."""

MAX_HEALTH: Final = 1000
"""Bytes of a device's message; the kubelet cuts it at 1024."""

FORBIDDEN_SECONDS: Final = 600.0
"""Between two attempts to report a claim that the account may not report."""

Reports: TypeAlias = list[dict[str, Any]]
"""The devices of a claim as its status has them, without times."""

log = structlog.get_logger(component="dra")


@dataclass(slots=True)
class _Reported:
    """What the status of a claim has of its devices; None if that is unknown."""

    devices: Reports | None
    forbidden_until: float = 0.0
    """When a claim that may not be reported is tried again."""


class ClaimReports:
    """Writes `status.devices` of the claims in a book; `pool` is the node's name."""

    def __init__(
        self, connection: ClusterClient, book: ClaimBook, state: NodeState, *, pool: str
    ) -> None:
        self._client = connection
        self._source = ApiServerPods(connection)
        self._book = book
        self._state = state
        self._pool = pool
        self._due = state.steps.follow()
        self._backoff = Backoff()
        self._pause: float | None = None
        self._reported: dict[str, _Reported] | None = None
        """By UID; None before the first round."""
        self._outage = Outage(
            log,
            "the status of claims can't be written",
            "the status of claims is written again",
            level="info",
        )

    async def run_forever(self) -> NoReturn:
        """Report after each scan, until cancelled."""
        await self._due.run_forever(self.run_once, interval=lambda: self._pause, spacing=SPACING)

    async def run_once(self) -> None:
        """Report the claims whose devices or health have changed."""
        entries = [each for each in self._book.entries() if each.is_committed]
        problems = problems_of(self._state.ledger.by_name, entries)
        now, is_first, known = time.monotonic(), self._reported is None, self._reported or {}
        # An earlier process may have reported those of the first round.
        self._reported = known = {
            each.claim.uid: known.get(each.claim.uid) or _Reported(None if is_first else [])
            for each in entries
        }
        for entry in entries:
            reported = known[entry.claim.uid]
            if reported.forbidden_until > now:
                continue
            reports = device_reports(entry, problems, pool=self._pool)
            try:
                if reported.devices is None:
                    reported.devices = await self._read(entry.claim)
                if reports != reported.devices:
                    await self._write(entry.claim, reports)
                    self._outage.ended()
            except ClusterError as error:
                self._outage.failed(str(error))
                if will_pass(error):
                    self._pause = self._backoff.pause(requested_pause(error))
                    return
                if isinstance(error, BadStatus) and error.status == FORBIDDEN:
                    reported.devices = reported.devices or []
                    reported.forbidden_until = now + FORBIDDEN_SECONDS
                    continue
            reported.devices = reports
            self._backoff.reset()
        forbidden = [t for each in known.values() if (t := each.forbidden_until) > now]
        self._pause = max(min(forbidden) - time.monotonic(), 0.0) if forbidden else None

    async def _read(self, claim: ClaimRef) -> Reports:
        """What is in the status of a claim."""
        body = await self._source.get_claim(claim.namespace, claim.name)
        try:
            status = msgspec.json.decode(body or b"{}", type=_Claim).status
        except UNREADABLE:
            return []
        ours = [each for each in status.devices or () if each.get("driver") == DRIVER]
        return [without_times(each) for each in ours]

    async def _write(self, claim: ClaimRef, reports: Reports) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        devices = [
            each | {"conditions": [one | {"lastTransitionTime": now} for one in each["conditions"]]}
            for each in reports
        ]
        namespace = f"/apis/{API_VERSION}/namespaces/{segment(claim.namespace)}"
        path = f"{namespace}/resourceclaims/{segment(claim.name)}/status"
        # Server-side apply keeps the entries of other drivers.
        answer = await self._client.request(
            "PATCH",
            path,
            params={"fieldManager": MANAGER, "force": "true"},
            body={
                "apiVersion": API_VERSION,
                "kind": "ResourceClaim",
                "metadata": {
                    "name": claim.name,
                    "namespace": claim.namespace,
                    "uid": claim.uid,
                },
                "status": {"devices": devices},
            },
            content_type="application/apply-patch+yaml",
        )
        if answer.status == NOT_FOUND:
            return
        try:
            self._client.expect(answer, f"PATCH {path}")
        except Conflict:  # another claim has its name by now
            return


class _Status(msgspec.Struct):
    devices: list[dict[str, Any]] | None = None


class _Claim(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


def without_times(report: dict[str, Any]) -> dict[str, Any]:
    """A device in the status of a claim without the times of its conditions."""
    times = {"lastTransitionTime"}
    conditions = report.get("conditions") or ()
    kept = [{key: one[key] for key in one.keys() - times} for one in conditions]
    return report | {"conditions": kept}


def problems_of(
    devices: Mapping[str, DraDevice], entries: Iterable[ClaimEntry]
) -> dict[str, tuple[Problem, ...]]:
    """Why each device that is here, or that a claim has, isn't healthy; empty if it is."""
    problems = {name: each.device.reasons for name, each in devices.items()}
    for entry in entries:
        for part in entry.parts():
            if part.device in devices:
                continue
            # Without news of a device, a kubelet shows it as healthy for 30 s, then as unknown.
            text = f"{entry.claim} has {part.device}, and the node no longer has it"
            # Its device type may have another name now: the hardware is what counts.
            here = (each.device for each in devices.values())
            same = (each.reasons for each in here if not each.claims.isdisjoint(part.claims))
            problems[part.device] = next(same, (Problem(GONE, text),))
    return problems


def device_reports(
    entry: ClaimEntry, problems: Mapping[str, Sequence[Problem]], *, pool: str
) -> Reports:
    """The devices of a claim for its status, without times.

    `problems` are why devices are not healthy, by name.
    """
    reports: dict[tuple[str, str], dict[str, Any]] = {}
    for want in entry.wants:
        for part in want.parts():
            reasons = "; ".join(f"{each.code}: {each.text}" for each in problems[part.device])
            condition = {
                "type": "Ready",
                "status": "False" if reasons else "True",
                "reason": "Unhealthy" if reasons else "Prepared",
                "message": reasons[:MAX_HEALTH],
            }
            data = {
                "type": part.attributes.get("type"),
                CARD: part.attributes.get(CARD),
                "function": ",".join(want.functions),
                "shares": part.share.amount,
            }
            report: dict[str, Any] = {"driver": DRIVER, "pool": pool, "device": part.device}
            report |= {"shareID": part.share.id} if part.share.id else {}
            report["conditions"] = [condition]
            report["data"] = {name: value for name, value in data.items() if value}
            # A device that two requests have, one of them to watch it, is there once.
            reports.setdefault((part.device, part.share.id), report)
    return [*reports.values()]
