"""What `accelbind doctor` checks about the served certificate."""

import socket
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

from accelbind.doctor.cluster import APPLY, Cluster, Json, part
from accelbind.doctor.model import Line, Unseen, failed, ok, skipped, unseen, warning
from accelbind.doctor.webhooks import WebhookEntry, our_hooks
from certs.certificates import (
    Certificate,
    bundle_pem,
    read_certificates,
    unusable_certificates,
)
from certs.verification import refusal
from services.process.errors import InvalidSettings
from services.process.text import plain

CONNECT_SECONDS: Final = 3.0
HTTPS: Final = 443
MAX_ADDRESSES: Final = 8

_RENEW: Final = "see accelbind certs show, and the log of accelbind certs run"
_OVERDUE: Final = 0.25
"""Share of a certificate's life that is left when its renewal, due at a third, is overdue."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a webhook is called, and what the API server trusts there."""

    host: str
    port: int
    name: str
    """The name that its certificate must have."""
    bundle: bytes
    label: str = field(compare=False)
    """The first entry of a webhook configuration that calls it."""

    def __str__(self) -> str:
        shown = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        return f"{self.label}: {shown if self.host == self.name else f'{self.name} at {shown}'}"


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `--webhook-address`."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidSettings(f"--webhook-address must be HOST:PORT, not {text!r}")
    return host.strip("[]"), int(port)


def check_served(cluster: Cluster) -> Iterator[Line]:
    """Does the served certificate fit the CA bundle?"""
    hooks = our_hooks(cluster)
    if not hooks:
        yield skipped("there is no webhook configuration of accelbind")
    # Several entries call the same address, or have the same problem.
    for found in dict.fromkeys(one for hook in hooks for one in _targets(cluster, hook)):
        yield from (found,) if isinstance(found, Line) else _handshake_lines(found)


def _targets(cluster: Cluster, hook: WebhookEntry) -> Iterator[Target | Line]:
    """Where the API server calls an entry, or why it can't."""
    called = part(hook.client, "service")
    url = urlsplit(str(hook.client.get("url")))
    name, namespace = str(called.get("name")), str(called.get("namespace"))
    server = f"{name}.{namespace}.svc" if called else url.hostname
    addresses: list[tuple[str, int]] | Line = []
    if not hook.bundle:
        text = f"{hook.label} has no caBundle: the API server does not trust the webhook"
        addresses = failed(text, "accelbind certs run sets it: see its log")
    elif not server:
        addresses = failed(f"{hook.label} names neither a Service nor a URL", APPLY)
    elif cluster.webhook_address:
        addresses = [cluster.webhook_address]
    elif not called:
        addresses = [(server, url.port or HTTPS)]
    else:
        try:
            addresses = _pods_behind(cluster, name, namespace, int(called.get("port") or HTTPS))
        except Unseen as error:
            addresses = unseen(f"{hook.label}: {error}")
    if isinstance(addresses, Line):
        yield addresses
        return
    for host, port in addresses:
        yield Target(host, port, str(server), hook.bundle, hook.label)


def _pods_behind(
    cluster: Cluster, name: str, namespace: str, port: int
) -> list[tuple[str, int]] | Line:
    # Each of its pods, as one of several may serve another certificate than the others.
    service = cluster.get(f"/api/v1/namespaces/{namespace}/services/{name}")
    if service is None:
        return failed(f"there is no Service {namespace}/{name}, which webhooks call", APPLY)
    ports = {
        one.get("port"): one.get("name") or "" for one in part(service, "spec").get("ports", ())
    }
    if port not in ports:
        return failed(f"the Service {namespace}/{name} has no port {port}", APPLY)

    def of_service(endpoints: Json) -> Json | None:
        labels = part(endpoints, "metadata", "labels")
        return endpoints if labels.get("kubernetes.io/service-name") == name else None

    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    addresses = [
        (str(address), int(target.get("port") or HTTPS))
        for endpoint_slice in cluster.items(path, of_service)
        for target in endpoint_slice.get("ports") or ()
        if (target.get("name") or "") == ports[port]
        for endpoint in endpoint_slice.get("endpoints") or ()
        if part(endpoint, "conditions").get("ready") is not False
        for address in endpoint.get("addresses") or ()
    ]
    return addresses[:MAX_ADDRESSES] or failed(
        f"no pod behind the Service {namespace}/{name} is ready: FPGA pods are refused",
        f"kubectl get pods -n {namespace}; see cluster.workloads",
    )


def _handshake_lines(target: Target) -> Iterator[Line]:
    for reason in unusable_certificates(target.bundle):
        yield warning(f"{target}: the caBundle has an unusable entry: {reason}", _RENEW)
    trusted = read_certificates(target.bundle)
    # The handshake of the API server: the same bundle, the same name.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as Go: a CA of the bundle is enough
    try:
        if not trusted:
            yield failed(f"{target}: the caBundle has no usable certificate", _RENEW)
        else:
            context.load_verify_locations(cadata=bundle_pem(trusted).decode())
            yield _served_line(target, _served_certificate(target, context), trusted)
    except ssl.SSLCertVerificationError as error:
        yield failed(
            f"{target}: the bundle does not fit the served certificate:"
            f" {plain(error.verify_message)}",
            f"accelbind certs run sets the bundle, accelbind certs renew the certificate; {_RENEW}",
        )
    except ssl.SSLError as error:
        yield failed(f"{target}: {plain(error.reason or str(error))}", "it is not a webhook")
    except ConnectionRefusedError:
        yield failed(f"{target}: connection refused", "start the webhook; see its log")
    except OSError as error:
        yield unseen(
            f"{target} can't be reached from here: {plain(error.strerror or str(error))}",
            "run the doctor in a pod; or kubectl port-forward, and --webhook-address",
        )


def _served_certificate(target: Target, context: ssl.SSLContext) -> bytes:
    with (
        socket.create_connection((target.host, target.port), timeout=CONNECT_SECONDS) as raw,
        context.wrap_socket(raw, server_hostname=target.name) as secure,
    ):
        return ssl.DER_cert_to_PEM_cert(secure.getpeercert(binary_form=True) or b"").encode()


def _served_line(target: Target, pem: bytes, trusted: Sequence[Certificate]) -> Line:
    now = datetime.now(UTC)
    if not (readable := read_certificates(pem)):
        return warning(f"{target}: the served {', '.join(unusable_certificates(pem))}", _RENEW)
    [served] = readable
    # OpenSSL accepts more than Go does. What an intermediate CA signed was checked by OpenSSL only.
    if any(map(served.is_signed_by, trusted)) and (problem := refusal(served, trusted, now)):
        return failed(f"{target}: API servers refuse the served certificate: {problem}", _RENEW)
    text = f"{target}, valid until {served.ends:%Y-%m-%d %H:%M} UTC"
    if served.ends - now < (served.ends - served.begins) * _OVERDUE:
        return warning(f"{text}: its renewal is overdue", _RENEW)
    return ok(text)
