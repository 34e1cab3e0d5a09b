"""Who may ask for reviews, where the settings say so: the API server, by its client certificate.

Probes come without a certificate (the kubelet has none to show), so TLS asks for one and goes on
without; a certificate that isn't from the CAs in `--client-ca` ends the handshake, and everything
but the probes is answered with a 401 or 403 on a connection whose certificate is missing, or is of
somebody else. An API server shows one where the kubeconfig that its AdmissionConfiguration names
has one for this webhook: https://kubernetes.io/docs/reference/access-authn-authz/
extensible-admission-controllers/#authenticate-apiservers
"""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import structlog

from services.process.text import listing, plain
from webhook.admission import Receive, Scope, Send, status_body

App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN: Final = frozenset({"/healthz", "/readyz"})
"""What is answered whoever asks."""
REPEAT_SECONDS: Final = 60.0
"""How often refusals of one kind are logged, at the most."""

_WHERE: Final = (
    "the kubeconfig that the API server's --admission-control-config-file names for this webhook"
)
_SHOWN: Final = 8

log = structlog.get_logger(room="clients")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a connection's requests are refused.

    Attributes:
        status: of HTTP.
        reason: a label of metrics.
        message: what to do.
    """

    status: int
    reason: str
    message: str


class Clients:
    """Tells the API server from others.

    Args:
        names: What it may be called, one of them: common name or DNS name of its certificate. Any
            certificate of the CAs will do where there are none.
        clock: Seconds, from any beginning.

    Attributes:
        refused: How many were refused, by reason: connections whose handshake failed, and requests.
    """

    def __init__(
        self, names: Collection[str], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.refused: dict[str, int] = dict.fromkeys(REASONS, 0)
        self._names = names
        self._clock = clock
        self._told: dict[str, tuple[float, int]] = {}

    def refusal(self, transport: asyncio.Transport) -> Refusal | None:
        """What is wrong with who is at the other end; None if that is the API server."""
        connection: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        # A session that was taken up again knows what was verified when it began, maybe by a CA
        # that has been taken out since.
        resumed = connection is None or connection.session_reused
        shown = None if connection is None or resumed else connection.getpeercert()
        if not shown:
            return _refusal(
                "no-certificate",
                "this webhook answers the API server only, and no client certificate was shown:"
                f" put one into {_WHERE}",
            )
        names = list(_names(shown))
        if self._names and not set(self._names) & set(names):
            others = listing([plain(name) for name in names[:_SHOWN]] or ["nobody"])
            return _refusal(
                "other-name",
                f"this webhook answers {listing(list(self._names), last='or')} only, and the"
                f" client certificate shown is of {others}: put the right one into {_WHERE}, or"
                " name it with --client-name",
            )
        return None

    def guarded(self, app: App, refusal: Refusal) -> App:
        """The application, as a connection with something wrong about it gets to see it."""

        async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["path"] in OPEN:
                await app(scope, receive, send)
                return
            self.count(refusal.reason, refusal.message, client=str(scope.get("client")))
            body = status_body(refusal.status, refusal.message)
            length = (b"content-length", b"%d" % len(body))
            headers = [(b"content-type", b"application/json"), length]
            start = {"type": "http.response.start", "status": refusal.status, "headers": headers}
            await send(start)
            await send({"type": "http.response.body", "body": body})

        return refuse

    def handshake_failed(self, why: str) -> None:
        """Counts a client whose certificate isn't from the CAs."""
        self.count("bad-certificate", f"the client's certificate does not hold: {plain(why)}")

    def count(self, reason: str, problem: str, **values: str) -> None:
        """Counts a refusal, and logs it unless one like it was logged a moment ago."""
        self.refused[reason] += 1
        told, number = self._told.get(reason, (-REPEAT_SECONDS, 0))
        if self._clock() - told >= REPEAT_SECONDS:
            new = self.refused[reason] - number
            log.warning("client refused", reason=reason, problem=problem, times=new, **values)
            self._told[reason] = (self._clock(), self.refused[reason])


REASONS: Final[Mapping[str, str]] = {
    "bad-certificate": "The handshake failed: the certificate shown is not of these CAs.",
    "no-certificate": "None was shown; answered with 401, except for probes.",
    "other-name": "The certificate has none of the names in `--client-name`; answered with 403.",
}
"""Why clients are refused; the keys are metric labels."""
_STATUS: Final[Mapping[str, int]] = {"no-certificate": 401, "other-name": 403}


def _refusal(reason: str, message: str) -> Refusal:
    return Refusal(_STATUS[reason], reason, message)


def _names(certificate: Mapping[str, Any]) -> Iterator[str]:
    """Common names and DNS names of a certificate, as `ssl` spells it."""
    for attributes in certificate.get("subject", ()):
        for kind, value in attributes:
            if kind == "commonName":
                yield value
    for kind, value in certificate.get("subjectAltName", ()):
        if kind == "DNS":
            yield value
