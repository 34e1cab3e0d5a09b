"""What `accelbind doctor` checks about certificates: the CA bundles, and what is served.

The TLS handshake is that of the API server: the same bundle, the same name. If it fails, a second
one without verification shows what is served instead.
"""

import base64
import binascii
import contextlib
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.x509.oid import ExtensionOID

from accelbind.doctor.cluster import APPLY, Cluster, Json
from accelbind.doctor.model import Line, Unseen, failed, ok, skipped, unseen, warning
from accelbind.doctor.webhooks import Hook, our_hooks
from services.process.errors import InvalidSettings
from services.process.text import plain

CONNECT_SECONDS: Final = 3.0
HTTPS: Final = 443
MAX_ADDRESSES: Final = 8

_RENEW: Final = "see accelbind certs show, and the log of accelbind certs run"
_OVERDUE: Final = 0.25
"""Share of a certificate's life that is left when its renewal, due at a third, is overdue."""


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """Where a webhook is called."""

    host: str
    port: int
    name: str
    """The name that its certificate must have."""

    def __str__(self) -> str:
        shown = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        return shown if self.host == self.name else f"{self.name} at {shown}"


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `--webhook-address`.

    Raises:
        InvalidSettings: It is no address.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidSettings(f"--webhook-address must be HOST:PORT, not {text!r}")
    return host.strip("[]"), int(port)


def check_bundles(cluster: Cluster) -> Iterator[Line]:
    """Whether each CA bundle has a CA that is still valid."""
    hooks = our_hooks(cluster)
    if not hooks:
        yield skipped("there is no webhook configuration of accelbind")
    for hook in hooks:
        text = _bundle(hook)
        if not text:
            continue  # reported by check_rules
        try:
            authorities = x509.load_pem_x509_certificates(text)
        except ValueError as error:
            reason = plain(str(error), 200)
            yield failed(f"{hook.label}: caBundle has no certificates: {reason}", _RENEW)
            continue
        good = [each for each in authorities if _time_left(each) > timedelta()]
        text_found = f"{hook.label}: {len(good)} of {len(authorities)} CAs are valid"
        if good:
            last = max(each.not_valid_after_utc for each in good)
            yield ok(f"{text_found}, until {last:%Y-%m-%d}")
        else:
            yield failed(f"{text_found}: the API server trusts no webhook", _RENEW)


def check_served(cluster: Cluster) -> Iterator[Line]:
    """Whether the API server can trust the webhook at each of its addresses."""
    checked: set[tuple[ServiceAddress, bytes]] = set()
    reported: set[Line] = set()
    for hook in our_hooks(cluster):
        bundle = _bundle(hook)
        try:
            addresses = _addresses(cluster, hook)
        except Unseen as error:
            yield unseen(f"{hook.label}: {error}")
            continue
        if isinstance(addresses, Line):
            if addresses not in reported:
                reported.add(addresses)
                yield addresses
            continue
        for address in addresses:
            if bundle and (address, bundle) not in checked:
                checked.add((address, bundle))
                yield _handshake_line(hook, address, bundle)
    if not checked and not reported:
        yield unseen("no address of a webhook with a bundle is known")


def _bundle(hook: Hook) -> bytes:
    try:
        return base64.b64decode(str(hook.client.get("caBundle") or ""), validate=True)
    except (binascii.Error, ValueError):
        return b"no base64"


# Where the webhook is called ----------------------------------------------------------------------


def _addresses(cluster: Cluster, hook: Hook) -> list[ServiceAddress] | Line:
    """Where the API server calls an entry, or why it can't."""
    service = hook.client.get("service")
    if isinstance(service, dict):
        return _service_addresses(cluster, hook, service)
    url = urlsplit(str(hook.client.get("url")))
    if not url.hostname:
        return failed(f"{hook.label} names neither a Service nor a URL", APPLY)
    host, port = cluster.webhook_address or (url.hostname, url.port or HTTPS)
    return [ServiceAddress(host, port, url.hostname)]


def _service_addresses(cluster: Cluster, hook: Hook, called: Json) -> list[ServiceAddress] | Line:
    """The pods behind a Service."""
    name, namespace = str(called.get("name")), str(called.get("namespace"))
    server = f"{name}.{namespace}.svc"
    if cluster.webhook_address:
        return [ServiceAddress(*cluster.webhook_address, server)]
    port = int(called.get("port") or HTTPS)
    service = f"the Service {namespace}/{name}"
    found = cluster.get(f"/api/v1/namespaces/{namespace}/services/{name}")
    if found is None:
        return failed(f"{hook.label} calls {service}, which does not exist", APPLY)
    ports = (found.get("spec") or {}).get("ports") or ()
    entry = next((one for one in ports if one.get("port") == port), None)
    if entry is None:
        return failed(f"{service} has no port {port}", APPLY)
    slices = cluster.items(
        f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
        labelSelector=f"kubernetes.io/service-name={name}",
    )
    addresses = [*_ready(slices, entry.get("name") or "", server)]
    if not addresses:
        return failed(
            f"no pod behind {service} is ready: FPGA pods are refused",
            f"kubectl get pods -n {namespace}; see cluster.workloads",
        )
    return addresses[:MAX_ADDRESSES]


def _ready(slices: list[Json], port_name: str, server: str) -> Iterator[ServiceAddress]:
    for one in slices:
        ports = [
            int(port.get("port") or HTTPS)
            for port in one.get("ports") or ()
            if (port.get("name") or "") == port_name
        ]
        for endpoint in one.get("endpoints") or ():
            if (endpoint.get("conditions") or {}).get("ready") is not False:
                for address in endpoint.get("addresses") or ():
                    yield from (ServiceAddress(str(address), port, server) for port in ports)


# TLS ----------------------------------------------------------------------------------------------


def _handshake_line(hook: Hook, address: ServiceAddress, bundle: bytes) -> Line:
    """The result of a handshake like the API server's."""
    where = f"{hook.label}: {address}"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as Go: a CA of the bundle is enough
    try:
        context.load_verify_locations(cadata=bundle.decode("ascii"))
        return _validity_line(where, _served_certificate(address, context))
    except (ssl.SSLCertVerificationError, UnicodeDecodeError) as error:
        why = getattr(error, "verify_message", "") or "the bundle is not a certificate"
        return failed(
            f"{where}: the bundle does not fit the served certificate: {why}{_served(address)}",
            f"accelbind certs run sets the bundle, accelbind certs renew the certificate; {_RENEW}",
        )
    except ssl.SSLError as error:
        return failed(
            f"{where}: {error.reason or error}",
            "it is not a webhook, or the bundle has no certificates: see cluster.bundles",
        )
    except ConnectionRefusedError:
        return failed(f"{where}: connection refused", "start the webhook; see its log")
    except OSError as error:
        return unseen(
            f"{where} can't be reached from here: {error.strerror or error}",
            "run the doctor in a pod; or kubectl port-forward, and --webhook-address",
        )


def _served_certificate(address: ServiceAddress, context: ssl.SSLContext) -> x509.Certificate:
    with (
        socket.create_connection((address.host, address.port), timeout=CONNECT_SECONDS) as raw,
        context.wrap_socket(raw, server_hostname=address.name) as secure,
    ):
        der = secure.getpeercert(binary_form=True)
    if der is None:
        raise ssl.SSLError(0, "no certificate is served")
    return x509.load_der_x509_certificate(der)


def _validity_line(where: str, served: x509.Certificate) -> Line:
    left = _time_left(served)
    life = served.not_valid_after_utc - served.not_valid_before_utc
    text = f"{where}, valid until {served.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    if left < life * _OVERDUE:
        hours = max(0, left.total_seconds()) / 3600
        period = f"{left.days} days" if left.days > 1 else f"{hours:.0f} h"
        return warning(f"{text}, which is in {period}: its renewal is overdue", _RENEW)
    return ok(text)


def _served(address: ServiceAddress) -> str:
    """What is served, as a clause; empty if that can't be read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent to whoever answers
    with contextlib.suppress(OSError, ValueError):
        served = _served_certificate(address, context)
        until = f"{served.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
        names = plain(", ".join(_names(served)) or "no name", 300)
        issuer = plain(served.issuer.rfc4514_string(), 200)
        return f" (it is for {names}, by {issuer}, until {until})"
    return ""


def _names(served: x509.Certificate) -> Iterator[str]:
    with contextlib.suppress(x509.ExtensionNotFound):
        found = served.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME)
        if isinstance(found.value, x509.SubjectAlternativeName):
            yield from (str(name.value) for name in found.value)


def _time_left(certificate: x509.Certificate) -> timedelta:
    return certificate.not_valid_after_utc - datetime.now(UTC)
