"""An API server whose mappings never rest, which goes away and comes back, and a Secret's folder.

The API server stand-in runs in this process, so that what it holds and when is known exactly. To
its clients it dies and is born again: its port refuses, every connection is gone, and what comes
back keeps its store (as etcd would), at a version that may have jumped, and may have forgotten what
was before (410).
"""

import asyncio
import hashlib
import random
import shutil
import ssl
import time
from dataclasses import dataclass, field
from pathlib import Path

from certs.folder import issue
from simulator.apiserver.standin import ApiServerStandIn
from tests.faults.webhook_history import History, Spec
from tests.faults.webhook_load import FUNCTION, REGION

NAMESPACES = 4
FUNCTIONS = 8
REGIONS = 4
KINDS = {FUNCTION: ("AcceleratorFunction", FUNCTIONS), REGION: ("FpgaRegion", REGIONS)}
STEADY = 0.2
"""Seconds that watches must be open to count: one that begins too early is ended at once."""
INTERFACES = ("ce48969398f05f33946d560708be108a", "bfac4d851ee856fe8c95865ce1bbaa2d")
AFUS = ("d8424dc4a4a3c413f89e433683f9040b", "f7df405cbd7acf7222f144b0b93acd18", "1" * 32)


@dataclass
class Mappings:
    """Mappings that come, change and go, and their history."""

    api: ApiServerStandIn
    history: History
    chance: random.Random
    _back: float = 0.0
    _watched: float = 0.0
    held: dict[tuple[str, str], dict[str, Spec]] = field(default_factory=dict)
    changes: int = 0
    restarts: int = 0
    recovered: list[float] = field(default_factory=list)
    """Seconds from the API server's return until both kinds were watched again."""

    def begin(self) -> None:
        """Makes half of them."""
        for number in range(NAMESPACES):
            for kind, (_, most) in KINDS.items():
                place = (f"ns{number}", kind)
                self.held[place] = {}
                self.history.became(time.monotonic(), *place, {})
                for name in range(0, most, 2):
                    self._put(place, f"{kind}-{name}")

    async def churn(self, rate: float) -> None:
        """Changes so many of them a second, for ever."""
        due = time.monotonic()
        while True:
            due += 1 / rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))  # in step
            self.change()

    def change(self) -> None:
        """Changes one."""
        kind = FUNCTION if self.chance.random() < 0.8 else REGION
        place = (f"ns{self.chance.randrange(NAMESPACES)}", kind)
        name = f"{kind}-{self.chance.randrange(KINDS[kind][1])}"
        if name in self.held[place] and self.chance.random() < 0.5:
            at = time.monotonic()
            del self.held[place][name]
            self.api.drop(KINDS[kind][0], name, place[0])
            self.history.became(at, *place, self.held[place])
        else:
            self._put(place, name)
        self.changes += 1

    def _put(self, place: tuple[str, str], name: str) -> None:
        namespace, kind = place
        spec = {"interfaceId": self.chance.choice(INTERFACES)}
        if kind == FUNCTION:
            spec |= {
                "afuId": self.chance.choice(AFUS),
                "mode": self.chance.choice(("af", "region")),
            }
        at = time.monotonic()
        self.held[place][name] = spec
        self.api.put(
            {
                "apiVersion": "fpga.intel.com/v2",
                "kind": KINDS[kind][0],
                "metadata": {"name": name, "namespace": namespace},
                "spec": spec,
            }
        )
        self.history.became(at, *place, self.held[place])

    async def restart(self, interval: float) -> None:
        """Ends and starts the API server again and again."""
        due = time.monotonic()
        while True:
            due += interval * (0.8 + 0.4 * self.chance.random())
            while time.monotonic() < due:
                await asyncio.sleep(0.02)  # till the next end
                self._look()
            self.history.went(time.monotonic())
            self.restarts += 1
            async with self.api.away():
                await asyncio.sleep(self.chance.uniform(0.05, 1.0))  # the outage
                if self.chance.random() < 0.5:
                    self.api.store.advance(self.api.store.revision + self.chance.randrange(10_000))
                if self.chance.random() < 0.5:
                    self.api.compact()
            self._back = time.monotonic()

    def _look(self) -> None:
        """Notes when both kinds are watched again, and have been for a moment."""
        now = time.monotonic()
        if len(self.api.watches) < len(KINDS):
            self._watched = now
        elif self._back and now > self._watched + STEADY:
            self.recovered.append(self._watched - self._back)
            self.history.came(self._watched)
            self._back = 0.0


@dataclass
class Secret:
    """A folder as the kubelet mounts a Secret, whose certificate is renewed all the time.

    Attributes:
        path: the folder.
        shown_from: each certificate, by its hash, and when it was there to be shown.
    """

    path: Path
    chance: random.Random
    shown_from: dict[str, float] = field(default_factory=dict)
    number: int = 0

    def renew(self) -> None:
        """Swaps the whole pair behind a symlink; sometimes half of one comes first."""
        ca, fresh = self.path / "ca", self.path / f"..{self.number}"
        issue(ca, ["localhost"], days=30)
        fresh.mkdir()
        shutil.copy(ca / "tls.crt", fresh)
        if self.number and self.chance.random() < 0.3:
            shutil.copy(self.path / "..data" / "tls.key", fresh)
            self._swap(fresh)
            time.sleep(1.2)  # longer than the webhook takes to notice
        shutil.copy(ca / "tls.key", fresh)
        certificate = ssl.PEM_cert_to_DER_cert((fresh / "tls.crt").read_text())
        self.shown_from[hashlib.sha256(certificate).hexdigest()] = time.monotonic()
        self._swap(fresh)
        self.number += 1

    def _swap(self, fresh: Path) -> None:
        link = self.path / "..data_tmp"
        link.symlink_to(fresh.name)
        link.replace(self.path / "..data")
        for name in ("tls.crt", "tls.key"):
            if not (self.path / name).is_symlink():
                (self.path / name).symlink_to(f"..data/{name}")
        for old in self.path.glob("..[0-9]*"):
            if old.name != fresh.name:
                shutil.rmtree(old)

    async def rotate(self, interval: float) -> None:
        """Renews it again and again."""
        while True:
            await asyncio.sleep(interval)  # till the next one
            await asyncio.to_thread(self.renew)
