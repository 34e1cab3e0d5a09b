"""Which replicas of the webhook still show a certificate of an old CA: each is asked, by TLS.

A headless Service has a DNS record of every replica, ready or not, and whoever may reach the
webhook may shake hands with it: so it takes no right at the API server to know what each serves.

A replica is behind if a client that trusts the new CA refuses it, and one that trusts the old ones
doesn't. Of who doesn't answer nothing is known, and API servers can't reach it either: it holds
nothing up.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from cryptography import x509

from certs.reading import bundle_pem
from certs.trust import Trust

ANSWER_SECONDS: Final = 5.0

log = structlog.get_logger(room="certs")


@dataclass(frozen=True, slots=True)
class Replicas:
    """Where all replicas of the webhook are.

    Attributes:
        host: A name with an address for each, or the address of the only one.
        port: Of their TLS.
    """

    host: str
    port: int

    async def behind(self, trust: Trust) -> tuple[str, ...]:
        """The addresses of those that show a certificate of an old CA.

        Args:
            trust: The CA that signs now, and the old ones.
        """
        asked = await asyncio.gather(
            *[self._is_behind(address, trust) for address in await self._addresses()]
        )
        return tuple(address for address in asked if address)

    async def _addresses(self) -> list[str]:
        look_up = asyncio.get_running_loop().getaddrinfo
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                found = await look_up(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:  # TimeoutError is one
            log.warning(
                "the webhook's replicas can't be found, so not asked what they serve",
                replicas=self.host,
                error=str(error) or "no answer",
            )
            return []
        return sorted({str(address[0]) for *_, address in found})

    async def _is_behind(self, address: str, trust: Trust) -> str:
        """Its address if it is, else nothing."""
        if await self._trusted(address, (trust.authority.certificate,)) is not False:
            return ""
        return address if await self._trusted(address, trust.old) else ""

    async def _trusted(self, address: str, authorities: Sequence[x509.Certificate]) -> bool | None:
        """Whether a client that trusts these takes what is shown; None if there is no answer."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False  # whose certificate it is counts here, not for which names
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as Go: any CA in the bundle will do
        context.load_verify_locations(cadata=bundle_pem(authorities).decode())
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                _, writer = await asyncio.open_connection(address, self.port, ssl=context)
        except ssl.SSLCertVerificationError:
            return False
        except OSError:  # TimeoutError and ssl.SSLError are some
            return None
        writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                await writer.wait_closed()
        return True
