"""Reports the devices of claims in their status, where `kubectl describe resourceclaim` shows them.

    committed, or the health of a device changes ──► due ── written, or refused ──► reported
                                                     └── failed ──► pause ──► due

A digest of what was written is in the claim's entry, so a driver that was restarted writes nothing.
Claims are prepared without any of this, also where the account may not write it.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

import msgspec
import structlog

from plugin.dra.book import ClaimBook, ClaimEntry
from plugin.dra.driver import MAX_HEALTH, problems_of
from plugin.dra.publisher import MANAGER
from services.devices.dra import API_VERSION, CARD, DRIVER
from services.kube.client import (
    NOT_FOUND,
    ClusterClient,
    Conflict,
    requested_pause,
    segment,
    will_pass,
)
from services.node.state import NodeState
from services.process.errors import AccelbindError, ClusterError
from services.process.outage import Outage
from services.process.problem import Problem
from services.process.retry import Backoff

SPACING: Final = 0.5
"""Seconds between two rounds, at least."""

log = structlog.get_logger(component="dra")


class ClaimReports:
    """Writes `status.devices` of the claims in a book; `pool` is the node's name."""

    def __init__(
        self, connection: ClusterClient, book: ClaimBook, state: NodeState, *, pool: str
    ) -> None:
        self._client = connection
        self._book = book
        self._state = state
        self._pool = pool
        self._due = state.follow()
        self._backoff = Backoff()
        self._pause: float | None = None
        self._refused: dict[str, str] = {}
        """The digests of what the API server refused for good, by UID."""
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
        problems = problems_of(self._state.by_name, entries)
        uids = {each.claim.uid for each in entries}
        self._refused = {uid: each for uid, each in self._refused.items() if uid in uids}
        self._pause = None
        for entry in entries:
            devices = device_reports(entry, problems, pool=self._pool)
            digest = hashlib.sha256(msgspec.json.encode(devices)).hexdigest()[:16]
            uid = entry.claim.uid
            if digest in (entry.reported, self._refused.get(uid)):
                continue
            try:
                await self._write(entry, devices)
                self._book.note_reported(uid, digest)
            except AccelbindError as error:
                self._outage.failed(str(error))
                if not isinstance(error, ClusterError) or will_pass(error):
                    self._pause = self._backoff.pause(requested_pause(error))
                    return
                self._refused[uid] = digest
            else:
                self._outage.ended()
                self._backoff.reset()

    async def _write(self, entry: ClaimEntry, devices: Sequence[dict[str, Any]]) -> None:
        claim, now = entry.claim, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for device in devices:
            device["conditions"][0]["lastTransitionTime"] = now
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


def device_reports(
    entry: ClaimEntry, problems: Mapping[str, Sequence[Problem]], *, pool: str
) -> list[dict[str, Any]]:
    """The devices of a claim for its status, without times.

    `problems` are why devices are not healthy, by name.
    """
    reports: dict[tuple[str, str], dict[str, Any]] = {}
    for want in entry.wants:
        attributes = want.attributes or ({},) * len(want.devices)
        for (device, share), known in zip(want.parts(), attributes, strict=True):
            reasons = "; ".join(f"{each.code}: {each.text}" for each in problems[device])
            condition = {
                "type": "Ready",
                "status": "False" if reasons else "True",
                "reason": "Unhealthy" if reasons else "Prepared",
                "message": reasons[:MAX_HEALTH],
            }
            data = {
                "type": known.get("type"),
                CARD: known.get(CARD),
                "function": ",".join(want.functions),
                "shares": share.amount,
            }
            report: dict[str, Any] = {"driver": DRIVER, "pool": pool, "device": device}
            report |= {"shareID": share.id} if share.id else {}
            report["conditions"] = [condition]
            report["data"] = {name: value for name, value in data.items() if value}
            # A device that two requests have, one of them to watch it, is there once.
            reports.setdefault((device, share.id), report)
    return [*reports.values()]
