"""Two Secrets and two webhook configurations in memory, a clock that tests set, and reconcilers."""

import asyncio
import json
import random
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from certs.authority import KeyPair, utc_now
from certs.certificates import Certificate, convert, read_certificates
from certs.keeper import CertificateReconciler, RoundReport
from certs.settings import CertsSettings
from services.kube.client import ClusterClient, HttpResponse
from services.kube.objects import PLURALS

NAMESPACE = "accelbind-system"
CA, TLS = "accelbind-ca", "accelbind-webhook-tls"
HOST = f"accelbind-webhook.{NAMESPACE}.svc"
SETTINGS = CertsSettings(namespace=NAMESPACE)
HOSTS = SETTINGS.names
"""What the serving certificate is for."""


class Clock:
    """A clock that stands still until a test sets it."""

    def __init__(self) -> None:
        self.time = utc_now()

    def now(self) -> datetime:
        return self.time

    def advance(self, **much: float) -> None:
        self.time += timedelta(**much)


class MemoryApi(ClusterClient):
    """An API server's Secrets and configurations, by name; a configuration has one entry.

    A Secret is its data, and a configuration the bundle of its entry.
    """

    def __init__(self, clock: Clock, chance: random.Random | None = None) -> None:
        self.server = "memory"
        self.clock = clock
        self.objects: dict[str, Any] = {CA: {}, TLS: {}}
        for plural in PLURALS:
            self.objects[f"{plural}/accelbind"] = b""
        self.versions: Counter[str] = Counter()
        self.writes: list[str] = []
        self.conflicts = 0
        self.on_write: Callable[[str], Awaitable[int | None]] | None = None
        """Awaited before a write; may return the status of a refusal."""
        self.lose_answers = False
        """Whether writes succeed without an answer."""
        self.unreadable = False
        """Whether configurations can't be read."""
        self._chance = chance

    async def request(
        self, method: str, path: str, *, body: Any = None, **_: object
    ) -> HttpResponse:
        for _turn in range(self._chance.randrange(4) if self._chance else 1):
            await asyncio.sleep(0)
        name = path.rpartition("/secrets/" if "/secrets/" in path else "/v1/")[2]
        if method == "GET":
            if self.unreadable and "/" in name:
                return HttpResponse(403, b"")
            return self._answer(name) if name in self.objects else HttpResponse(404, b"")
        if self.on_write and (refused := await self.on_write(name)):
            return HttpResponse(refused, b"")
        if method == "PUT":
            if body["metadata"]["resourceVersion"] != str(self.versions[name] + 1):
                self.conflicts += 1
                return HttpResponse(409, b"")
            self.writes.append(name)
            if "webhooks" in body:
                self.put(name, b64decode(body["webhooks"][0]["clientConfig"]["caBundle"]))
            else:
                self.put(name, {key: b64decode(value) for key, value in body["data"].items()})
        else:
            self.put(name, {})
        return HttpResponse(504, b"") if self.lose_answers else self._answer(name)

    def _answer(self, name: str) -> HttpResponse:
        item: dict[str, Any] = {"metadata": {"resourceVersion": str(self.versions[name] + 1)}}
        stored = self.objects[name]
        if isinstance(stored, bytes):
            config = {"caBundle": b64encode(stored).decode()}
            item["webhooks"] = [{"name": "pods.accelbind.dev", "clientConfig": config}]
        else:
            item["data"] = {key: b64encode(value).decode() for key, value in stored.items()}
        return HttpResponse(200, json.dumps(item).encode())

    def put(self, path: str, data: Any) -> None:
        """Write by hand."""
        self.objects[path] = data
        self.versions[path] += 1

    def edit(self, name: str, **changes: bytes | None) -> None:
        """Edit a Secret by hand; `_` in a key stands for `.`, and None removes it."""
        named = {key.replace("_", "."): value for key, value in changes.items()}
        data = self.objects[name] | named
        self.put(name, {key: value for key, value in data.items() if value is not None})

    @contextmanager
    def refusing(self, *, reads: bool) -> Iterator[None]:
        """Answer 403 to writes of configurations, and to reads of them too."""

        async def refuse(path: str) -> int | None:
            return 403 if "/" in path else None

        self.on_write, self.unreadable = refuse, reads
        try:
            yield
        finally:
            self.on_write, self.unreadable = None, False


class Cluster:
    """An API server, a clock and a policy; reconcilers are replicas of `certs run`."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self.clock = Clock()
        self.store = MemoryApi(self.clock, chance)
        self.settings = SETTINGS

    def replica(self) -> "Replica":
        return Replica(CertificateReconciler(self.settings, self.clock.now), self.store)

    def replace_ca(self) -> None:
        """Request a new CA."""
        self.store.edit(CA, ca_key=None)

    def change_settings(self, **changes: Any) -> None:
        self.settings = self.settings.model_copy(update=changes)

    def edit_bundles(self, bundle: bytes) -> None:
        for plural in PLURALS:
            self.store.put(f"{plural}/accelbind", bundle)

    @property
    def bundle(self) -> list[Certificate]:
        """The CAs that both configurations agree on."""
        [held] = {self.store.objects[f"{plural}/accelbind"] for plural in PLURALS}
        return list(read_certificates(held))

    @property
    def serving(self) -> Certificate:
        [certificate] = read_certificates(self.secret(TLS)["tls.crt"])
        return certificate

    def secret(self, name: str) -> dict[str, bytes]:
        data: dict[str, bytes] = self.store.objects[name]
        return data

    def edit_pair(self, pair: KeyPair) -> None:
        self.store.edit(TLS, tls_crt=pair.certificate.pem, tls_key=pair.key_pem)

    def edit_authority(self, pair: KeyPair) -> None:
        self.store.edit(CA, ca_crt=pair.certificate.pem, ca_key=pair.key_pem)


@dataclass(frozen=True, slots=True)
class Replica:
    """A reconciler and its API server."""

    reconciler: CertificateReconciler
    store: MemoryApi

    async def run_once(self, **after: float) -> RoundReport:
        """Do a round when some time has passed, such as `minutes=2`."""
        self.store.clock.advance(**after)
        return await self.reconciler.run_once(self.store)


def rebuilt(pair: KeyPair, name: str) -> KeyPair:
    """The same CA as another tool would have made it, by the name of its subject."""
    certificate = pair.certificate.parsed
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(pair.key.public_key())
        .serial_number(certificate.serial_number)
        .not_valid_before(certificate.not_valid_before_utc)
        .not_valid_after(certificate.not_valid_after_utc)
    )
    for extension in certificate.extensions:
        builder = builder.add_extension(extension.value, critical=extension.critical)
    return KeyPair(convert(builder.sign(pair.key, hashes.SHA256())), pair.key)


def encrypted_key() -> bytes:
    """A key that only its owner can read, as PEM."""
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
