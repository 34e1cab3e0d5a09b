"""What `accelbind doctor` finds by calling the webhook: does its certificate fit the bundle?

The handshake is what the API server's is: the same bundle, the same name. Where it fails, a second
one that believes anything tells what is served there instead.
"""

import base64
import binascii
import contextlib
import errno
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.x509.oid import ExtensionOID

from accelbind.doctor.cluster import Cluster
from accelbind.doctor.model import Check, Line, Unseen, failed, ok, skipped, unseen, warning
from accelbind.doctor.webhooks import Hook, Webhooks
from services.process.errors import InvalidSettings
from services.process.text import plain

Json: TypeAlias = dict[str, Any]

CONNECT_SECONDS: Final = 3.0
HTTPS: Final = 443
MAX_ADDRESSES: Final = 8

_REFUSED: Final = frozenset({errno.ECONNREFUSED})
_RENEW: Final = "accelbind certs show shows what is stored; see also the log of accelbind certs run"
_OVERDUE: Final = 0.25
"""Part of a certificate's life that is left when its renewal, at a third, is overdue."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a webhook is called.

    Args:
        address: Host and port to connect to.
        name: The name that its certificate must have.
    """

    address: tuple[str, int]
    name: str

    def __str__(self) -> str:
        host, port = self.address
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return shown if host == self.name else f"{self.name} at {shown}"


@dataclass(slots=True)
class Bundles:
    """The bundles of a cluster's webhook configurations, and who they are for.

    Args:
        cluster: The cluster.
        webhooks: Its configurations.
        address: Where the webhook is called, if that is told.
    """

    cluster: Cluster
    webhooks: Webhooks
    address: tuple[str, int] | None = None

    def checks(self) -> list[Check]:
        """All that this module looks at."""
        return [
            Check("cluster.bundles", "Can the bundles be used?", self.bundles),
            Check("cluster.served", "Does the served certificate fit the bundle?", self.served),
        ]

    def bundles(self) -> Iterator[Line]:
        """What is wrong with each bundle by itself."""
        seen = False
        for hook in self.webhooks.ours():
            seen = True
            text = _bundle(hook)
            if not text:
                continue  # told by another check
            try:
                authorities = x509.load_pem_x509_certificates(text)
            except ValueError as error:
                yield failed(
                    f"{hook.label}: its caBundle holds no certificates: {plain(str(error), 200)}",
                    "accelbind certs run sets the right one: see its log",
                )
                continue
            good = [each for each in authorities if _left(each) > timedelta()]
            told = f"{hook.label}: {len(good)} of {len(authorities)} CAs are still good"
            if good:
                last = max(each.not_valid_after_utc for each in good)
                yield ok(f"{told}, until {last:%Y-%m-%d}")
            else:
                yield failed(told, f"the API server trusts nobody: {_RENEW}")
        if not seen:
            yield skipped("there is no webhook configuration of ours")

    def served(self) -> Iterator[Line]:
        """Whether each place where the webhook is called can be trusted."""
        asked: set[tuple[Place, bytes]] = set()
        told: set[Line] = set()
        for hook in self.webhooks.ours():
            bundle = _bundle(hook)
            try:
                places = self._places(hook)
            except Unseen as error:
                yield unseen(f"{hook.label}: {error}")
                continue
            if isinstance(places, Line):
                if places not in told:
                    told.add(places)
                    yield places
                continue
            for place in places:
                if bundle and (place, bundle) not in asked:
                    asked.add((place, bundle))
                    yield _shaken(hook, place, bundle)
        if not asked and not told:
            yield unseen("no place is known where a webhook with a bundle is called")

    def _places(self, hook: Hook) -> list[Place] | Line:
        """Where an entry's webhook is called; a line if that can't work."""
        service = hook.client.get("service")
        if not isinstance(service, dict):
            url = urlsplit(str(hook.client.get("url")))
            if not url.hostname:
                return failed(f"{hook.label} names neither a Service nor a URL", "apply it anew")
            there = self.address or (url.hostname, url.port or HTTPS)
            return [Place(there, url.hostname)]
        name, namespace = str(service.get("name")), str(service.get("namespace"))
        server = f"{name}.{namespace}.svc"
        if self.address:
            return [Place(self.address, server)]
        return self._behind(hook, namespace, name, int(service.get("port") or HTTPS), server)

    def _behind(
        self, hook: Hook, namespace: str, name: str, port: int, server: str
    ) -> list[Place] | Line:
        """The pods behind a Service."""
        found = self.cluster.get(f"/api/v1/namespaces/{namespace}/services/{name}")
        if found is None:
            return failed(
                f"{hook.label} calls the Service {namespace}/{name}, which isn't there",
                "kubectl apply --server-side -k OVERLAY makes it",
            )
        ports = (found.get("spec") or {}).get("ports") or ()
        entry = next((one for one in ports if one.get("port") == port), None)
        if entry is None:
            return failed(f"the Service {namespace}/{name} has no port {port}", "apply it anew")
        slices = self.cluster.items(
            f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
            labelSelector=f"kubernetes.io/service-name={name}",
        )
        places = [*_ready(slices, entry.get("name") or "", server)]
        if not places:
            return failed(
                f"no pod behind the Service {namespace}/{name} is ready: FPGA pods are refused",
                f"kubectl get pods -n {namespace}; see cluster.workloads",
            )
        return places[:MAX_ADDRESSES]


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `--webhook-address`.

    Raises:
        InvalidSettings: It is none.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidSettings(f"--webhook-address wants HOST:PORT, not {text!r}")
    return host.strip("[]"), int(port)


def _bundle(hook: Hook) -> bytes:
    try:
        return base64.b64decode(str(hook.client.get("caBundle") or ""), validate=True)
    except (binascii.Error, ValueError):
        return b"no base64"


def _ready(slices: list[Json], port_name: str, server: str) -> Iterator[Place]:
    for one in slices:
        numbers = [
            port.get("port")
            for port in one.get("ports") or ()
            if (port.get("name") or "") == port_name
        ]
        for endpoint in one.get("endpoints") or ():
            if (endpoint.get("conditions") or {}).get("ready") is False:
                continue
            for address in endpoint.get("addresses") or ():
                for number in numbers:
                    yield Place((str(address), int(number or HTTPS)), server)


def _shaken(hook: Hook, place: Place, bundle: bytes) -> Line:
    """What comes of a handshake as the API server's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as Go: a CA of the bundle is enough
    try:
        context.load_verify_locations(cadata=bundle.decode("ascii"))
        return _judged(hook, place, _peer(place, context))
    except (ssl.SSLCertVerificationError, UnicodeDecodeError) as error:
        why = getattr(error, "verify_message", "") or "the bundle holds something else"
        return failed(
            f"{hook.label}: {place} serves a certificate that the bundle doesn't fit: {why}"
            f"{_instead(place)}",
            f"accelbind certs run sets the bundle, accelbind certs renew replaces the certificate:"
            f" {_RENEW}",
        )
    except ssl.SSLError as error:
        return failed(
            f"{hook.label}: {place}: {error.reason or error}",
            "that is no webhook, or the bundle holds no certificates: see cluster.bundles",
        )
    except OSError as error:
        why = str(error.strerror or error)
        if error.errno in _REFUSED:
            return failed(
                f"{hook.label}: nobody can be reached on {place}: {why}",
                "start the webhook; its log tells why it ended",
            )
        return unseen(
            f"{hook.label}: {place} can't be reached from here: {why}",
            "look from a node or a pod; or kubectl port-forward, and --webhook-address",
        )


def _peer(place: Place, context: ssl.SSLContext) -> x509.Certificate:
    """The certificate that is served."""
    with (
        socket.create_connection(place.address, timeout=CONNECT_SECONDS) as plain_socket,
        context.wrap_socket(plain_socket, server_hostname=place.name) as secure,
    ):
        der = secure.getpeercert(binary_form=True)
    if der is None:
        raise ssl.SSLError(0, "no certificate is served")
    return x509.load_der_x509_certificate(der)


def _judged(hook: Hook, place: Place, served: x509.Certificate) -> Line:
    left = _left(served)
    life = served.not_valid_after_utc - served.not_valid_before_utc
    told = f"{hook.label}: {place}, good until {served.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    if left < life * _OVERDUE:
        return warning(f"{told}, which is {_days(left)} from now: its renewal is overdue", _RENEW)
    return ok(told)


def _instead(place: Place) -> str:
    """What is served there, as a clause; empty if that can't be told."""
    anything = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anything.check_hostname = False
    anything.verify_mode = ssl.CERT_NONE  # it only looks: nothing is said to who answers
    with contextlib.suppress(OSError, ValueError):
        served = _peer(place, anything)
        until = f"{served.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
        names = ", ".join(_names(served)) or "no name"
        return f" (it is for {plain(names, 300)}, by {_text(served.issuer)}, until {until})"
    return ""


def _names(served: x509.Certificate) -> Iterator[str]:
    with contextlib.suppress(x509.ExtensionNotFound):
        found = served.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME)
        if isinstance(found.value, x509.SubjectAlternativeName):
            yield from (str(name.value) for name in found.value)


def _text(name: x509.Name) -> str:
    return plain(name.rfc4514_string(), 200)


def _left(certificate: x509.Certificate) -> timedelta:
    return certificate.not_valid_after_utc - datetime.now(UTC)


def _days(left: timedelta) -> str:
    return f"{left.days} days" if left.days > 1 else f"{max(0, left.total_seconds()) / 3600:.0f} h"
