"""The cluster's API for a suite that asks one thing after the other, or several from threads."""

import subprocess
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx2

from services.process.errors import ClusterError
from simulator.client import Client, Json, Refused
from tests.support import accelbind_command, clean_environment, eventually

__all__ = ["Api", "Json", "Place", "Refused", "accelbind", "place_of", "until"]

T = TypeVar("T")

MERGE = "application/merge-patch+json"
BUSY = 429
POLL_SECONDS = 0.2
COMMAND_SECONDS = 300
TRIES = 5
REPEATABLE = ("GET", "DELETE")
OUTAGE_PAUSE = 4.0
"""Seconds between two tries where nothing answers: some kubelets restart with their API server."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where objects of a kind are."""

    api_version: str
    kind: str
    namespace: str = ""

    @property
    def path(self) -> str:
        root = "/apis" if "/" in self.api_version else "/api"
        within = f"/namespaces/{self.namespace}" if self.namespace else ""
        kind = self.kind.lower()
        plural = (
            f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}{'es' * kind.endswith('s') or 's'}"
        )
        return f"{root}/{self.api_version}{within}/{plural}"


def place_of(item: Json) -> Place:
    namespace = item["metadata"].get("namespace", "")
    return Place(item["apiVersion"], item["kind"], namespace)


def until(attempt: Callable[[], T], *, seconds: float, what: str) -> T:
    """The result of a function once its assertions hold and the API server answers it."""

    def result() -> tuple[T]:
        try:
            return (attempt(),)
        except ClusterError as error:
            raise AssertionError(str(error)) from error

    return eventually(result, seconds, POLL_SECONDS, what)[0]


def accelbind(*arguments: str, codes: Collection[int] = (0,)) -> str:
    """What an `accelbind` command prints that ends with one of some exit codes."""
    done = subprocess.run(
        accelbind_command(*arguments),
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    assert done.returncode in codes, f"accelbind {' '.join(arguments)}: {done.stderr}"
    return done.stdout


class Api(Client):
    """A client that asks an API server again that is too busy, or has gone silent."""

    _has_answered = False

    def _send(self, method: str, path: str, **given: Any) -> httpx2.Response:
        left = TRIES
        while True:
            left -= 1
            try:
                answer = super()._send(method, path, **given)
            except ClusterError:
                if not (left and self._has_answered and method in REPEATABLE):
                    raise
                time.sleep(OUTAGE_PAUSE)  # for it to come back
                continue
            self._has_answered = True
            if answer.status_code != BUSY or not left:
                return answer
            time.sleep(int(answer.headers.get("Retry-After", 1)))  # as it asks us to

    def serves(self, api_version: str, plural: str) -> bool:
        root = "/apis" if "/" in api_version else "/api"
        found = self._found(f"{root}/{api_version}") or {"resources": ()}
        return plural in {each["name"] for each in found["resources"]}

    def create(self, item: Json, *, dry_run: bool = False) -> Json:
        """Create an object; with `dry_run` only what would come of it."""
        params = {"dryRun": "All"} if dry_run else {}
        return self.ask("POST", place_of(item).path, params=params, body=item)

    def _found(self, path: str, **params: str) -> Json | None:
        try:
            return self.ask("GET", path, params=params)
        except Refused as error:
            if error.code == 404:
                return None
            raise

    def find(self, place: Place, name: str) -> Json | None:
        return self._found(f"{place.path}/{name}")

    def get(self, place: Place, name: str) -> Json:
        return self.ask("GET", f"{place.path}/{name}")

    def list(self, place: Place, **params: str) -> list[Json]:
        """Objects of a kind; none of one that isn't served."""
        items: list[Json] = (self._found(place.path, **params) or {}).get("items") or []
        return items

    def patch(self, place: Place, name: str, change: Json) -> Json:
        return self.ask("PATCH", f"{place.path}/{name}", body=change, content_type=MERGE)

    def delete(self, place: Place, name: str, *, grace: int | None = None) -> None:
        """Delete an object, if it is there."""
        options: Json = {"propagationPolicy": "Background"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        try:
            self.ask("DELETE", f"{place.path}/{name}", body=options)
        except Refused as error:
            if error.code not in (404, 409):
                raise
