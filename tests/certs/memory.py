"""Two Secrets and two webhook configurations in memory, a clock that tests set, and reconcilers."""

import asyncio
import base64
import random
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from prometheus_client import CollectorRegistry

from certs.authority import KeyPair, parse_names, utc_now
from certs.certificates import read_certificates
from certs.keeper import CertificateReconciler, ForceRenew, RoundReport
from certs.metrics import CertsMetrics
from certs.policy import CertificatePolicy
from certs.store import CertificateLocations
from services.kube.client import BadStatus, HttpResponse
from services.kube.objects import PLURALS, Configuration, Conflict, NamedObject, Secret
from services.process.errors import ClusterError

NAMESPACE = "accelbind-system"
CA, TLS = "accelbind-ca", "accelbind-webhook-tls"
SERVICE = "accelbind-webhook"
HOST = f"{SERVICE}.{NAMESPACE}.svc"
LOCATIONS = CertificateLocations(NAMESPACE, CA, TLS, SERVICE, ("accelbind",), frozenset({HOST}))
POLICY = CertificatePolicy(
    parse_names([HOST]),
    lifetime=timedelta(days=90),
    authority_lifetime=timedelta(days=3650),
    overlap=timedelta(hours=1),
    settle=timedelta(minutes=1),
)


class Clock:
    """A clock that stands still until a test sets it."""

    def __init__(self) -> None:
        self.time = utc_now()

    def now(self) -> datetime:
        return self.time

    def advance(self, **much: float) -> None:
        self.time += timedelta(**much)


@dataclass(slots=True)
class Stored:
    """An object and its version."""

    data: Any
    version: int = 1


class MemoryStore:
    """A `CertificateStore`: a Secret is its data, a configuration the bundle of its one entry."""

    locations = LOCATIONS

    def __init__(self, clock: Clock, chance: random.Random | None = None) -> None:
        self.clock = clock
        self.offset = timedelta(0)
        """How far the API server's clock is ahead."""
        self.objects = {CA: Stored({}), TLS: Stored({})}
        for plural in PLURALS:
            self.objects[f"{plural}/accelbind"] = Stored(b"")
        self.writes: list[str] = []
        self.conflicts = 0
        self.on_write: Callable[[str], Any] | None = None
        """Awaited before a write; may raise what the API server answers."""
        self.on_read: Callable[[str], Any] | None = None
        self._chance = chance

    async def read_secret(self, name: str) -> Secret:
        item, date = await self._read(name), self.clock.now() + self.offset
        if item is None:
            raise ClusterError(f"Secret {name} does not exist")
        return Secret(NamedObject(name, item, format_datetime(date, usegmt=True)), item["data"])

    async def ensure_secret(self, name: str) -> Secret:
        if name not in self.objects:
            self.objects[name] = Stored({})
        return await self.read_secret(name)

    async def write_secret(
        self, read: Secret, data: Mapping[str, bytes], ours: Collection[str]
    ) -> Secret:
        kept = {key: value for key, value in read.data.items() if key not in ours}
        await self._write(read.object, kept | dict(data))
        return Secret(read.object, kept | dict(data))

    async def read_configuration(self, plural: str, name: str) -> Configuration | None:
        path = f"{plural}/{name}"
        item = await self._read(path)
        if item is None:
            return None
        bundle = base64.b64encode(item["data"]).decode()
        entry = {"name": "pods.accelbind.dev", "clientConfig": {"caBundle": bundle}}
        return Configuration(NamedObject(path, item | {"webhooks": [entry]}, ""), path)

    async def write_bundle(self, read: Configuration, bundle: bytes) -> bool:
        if read.bundles(self.locations.owner) == [bundle]:
            return False
        await self._write(read.object, bundle)
        return True

    async def _read(self, path: str) -> dict[str, Any] | None:
        await self._pass_turns()
        if self.on_read:
            self.on_read(path)
        stored = self.objects.get(path)
        return None if stored is None else {"data": stored.data, "version": stored.version}

    async def _write(self, read: NamedObject, data: Any) -> None:
        await self._pass_turns()
        if self.on_write:
            await self.on_write(read.path)
        if self.objects[read.path].version != read.item["version"]:
            self.conflicts += 1
            raise Conflict(f"{read.path} has changed")
        self.put(read.path, data)
        self.writes.append(read.path)

    async def _pass_turns(self) -> None:
        for _ in range(self._chance.randrange(4) if self._chance else 1):
            await asyncio.sleep(0)

    def put(self, path: str, data: Any) -> None:
        """Write by hand."""
        self.objects[path] = Stored(data, self.objects[path].version + 1)

    def edit(self, name: str, **changes: bytes | None) -> None:
        """Edit a Secret by hand; `_` in a key stands for `.`, and None removes it."""
        named = {key.replace("_", "."): value for key, value in changes.items()}
        data = self.objects[name].data | named
        self.put(name, {key: value for key, value in data.items() if value is not None})

    @contextmanager
    def refusing(self, *, reads: bool) -> Iterator[None]:
        """Answer 403 to writes of configurations, and to reads of them too."""

        def refuse(path: str) -> None:
            if "/" in path:
                raise BadStatus(f"{path}: 403 (its RBAC rules)", HttpResponse(403, b""))

        async def refuse_write(path: str) -> None:
            refuse(path)

        self.on_write = refuse_write
        self.on_read = refuse if reads else None
        try:
            yield
        finally:
            self.on_write = self.on_read = None


class Cluster:
    """A store, a clock and a policy; reconcilers are replicas of `certs run`."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self.clock = Clock()
        self.store = MemoryStore(self.clock, chance)
        self.policy = POLICY

    def replica(self, force: ForceRenew | None = None) -> "Replica":
        registry = CollectorRegistry()
        reconciler = CertificateReconciler(
            self.policy, CertsMetrics(registry), force, self.clock.now
        )
        return Replica(reconciler, registry, self.store)

    def change_policy(self, **changes: Any) -> None:
        self.policy = replace(self.policy, **changes)

    def edit_bundles(self, bundle: bytes) -> None:
        for plural in PLURALS:
            self.store.put(f"{plural}/accelbind", bundle)

    @property
    def bundle(self) -> list[x509.Certificate]:
        """The CAs that both configurations agree on."""
        [held] = {self.store.objects[f"{plural}/accelbind"].data for plural in PLURALS}
        return list(read_certificates(held))

    @property
    def serving(self) -> x509.Certificate:
        [certificate] = read_certificates(self.secret(TLS)["tls.crt"])
        return certificate

    def secret(self, name: str) -> dict[str, bytes]:
        data: dict[str, bytes] = self.store.objects[name].data
        return data

    def edit_pair(self, pair: KeyPair) -> None:
        self.store.edit(TLS, tls_crt=pair.certificate_pem, tls_key=pair.key_pem)

    def edit_authority(self, pair: KeyPair) -> None:
        self.store.edit(CA, ca_crt=pair.certificate_pem, ca_key=pair.key_pem)


@dataclass(frozen=True, slots=True)
class Replica:
    """A reconciler, its metrics and its store."""

    reconciler: CertificateReconciler
    registry: CollectorRegistry
    store: MemoryStore

    async def run_once(self, **after: float) -> RoundReport:
        """Do a round when some time has passed, such as `minutes=2`."""
        self.store.clock.advance(**after)
        return await self.reconciler.run_once(self.store)

    def issued(self, certificate: str) -> float | None:
        """How many certificates of a kind it created and wrote."""
        name = "accelbind_certs_issued_total"
        return self.registry.get_sample_value(name, {"certificate": certificate})


def rebuilt(pair: KeyPair, *, without: type[x509.ExtensionType]) -> KeyPair:
    """The same CA without one of its extensions."""
    certificate = pair.certificate
    builder = (
        x509.CertificateBuilder()
        .subject_name(certificate.subject)
        .issuer_name(certificate.issuer)
        .public_key(pair.key.public_key())
        .serial_number(certificate.serial_number)
        .not_valid_before(certificate.not_valid_before_utc)
        .not_valid_after(certificate.not_valid_after_utc)
    )
    for extension in certificate.extensions:
        if not isinstance(extension.value, without):
            builder = builder.add_extension(extension.value, critical=extension.critical)
    return KeyPair(builder.sign(pair.key, hashes.SHA256()), pair.key)


def private_key_pem(key: PrivateKeyTypes, *, password: bytes = b"") -> bytes:
    """A key of any kind as PEM, encrypted if there is a password."""
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password:
        encryption = serialization.BestAvailableEncryption(password)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )
