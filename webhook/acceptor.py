"""Accept connections one by one, so that TLS handshakes can be counted, timed and closed.

An event loop's TLS listener reports a connection only after its handshake. Here each connection is
counted when it is accepted; `loop.connect_accepted_socket` does the handshake.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Final, NoReturn

import structlog

from services.process.text import plain
from webhook.connections import ConnectionLimiter
from webhook.limits import LimitedProtocol

RECEIVE_BUFFER: Final = 64 * 1024
"""The kernel's receive buffer of a connection (it doubles the number), and so the most data that
arrives at once: TLS keeps a buffer of that size until the connection closes."""
SHUTDOWN_SECONDS: Final = 5.0
"""Time for closing TLS."""
MAX_HELLO: Final = 8 * 1024
"""Bytes of a ClientHello, the first message of TLS. Clients send up to 2 KiB; OpenSSL would keep
128 KiB."""
_HELLO_HEAD: Final = 9
"""Bytes up to the length of a ClientHello (RFC 8446, 4 and 5.1); they arrive in one piece."""
RETRY_SECONDS: Final = 1.0
"""Pause after a failure to accept, usually for lack of file descriptors."""
REFUSAL_LOG_SECONDS: Final = 60.0
"""Shortest time between two log lines about refused clients."""
_NO_CERTIFICATE: Final = "no-certificate"
_BAD_CERTIFICATE: Final = "bad-certificate"

CLIENT_REFUSALS: Final = {
    _BAD_CERTIFICATE: "The handshake failed: the client's certificate is not of these CAs.",
    _NO_CERTIFICATE: "The handshake failed: the client has no certificate.",
}
"""Why clients are refused where `--client-ca` is set; the keys are metric labels."""

log = structlog.get_logger(room="server")


class Acceptor:
    """Accepts the connections of listening sockets.

    Args:
        context: TLS.
        limiter: Counts the connections.
        create_protocol: Creates the protocol of one connection, of its socket and address.

    Attributes:
        last_accepted: When it accepted a client, by the limiter's clock; 0 before the first one.
        refused: Clients without a valid certificate, by reason.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        limiter: ConnectionLimiter,
        create_protocol: Callable[[socket.socket, str], LimitedProtocol],
    ) -> None:
        self.last_accepted = 0.0
        self.refused = dict.fromkeys(CLIENT_REFUSALS, 0)
        self._context = context
        self._limiter = limiter
        self._create_protocol = create_protocol
        self._handshakes: set[asyncio.Task[None]] = set()
        self._refusal_logged = -REFUSAL_LOG_SECONDS

    async def accept_forever(self, listener: socket.socket) -> NoReturn:
        """Accept clients until cancelled; wait while all others are too young to be pushed out."""
        listener.settimeout(0)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        failing = False
        while True:
            await _wait_readable(listener)
            if (seconds := self._limiter.seconds_until_room()) > 0:
                await asyncio.sleep(seconds)
                continue
            try:
                self.accept(listener)
                failing = False
            except OSError as error:
                if not failing:
                    problem = str(error)
                    log.error("can't accept connections", problem=problem, retry=RETRY_SECONDS)  # noqa: TRY400 - a known cause
                failing = True
                await asyncio.sleep(RETRY_SECONDS)

    def accept(self, listener: socket.socket) -> bool:
        """Accept a client that has connected, if there is one; its handshake is a task."""
        try:
            connected, (client, *_) = listener.accept()
        except (BlockingIOError, InterruptedError):
            return False
        except ConnectionError:  # the client has gone already
            return True
        self.last_accepted = self._limiter.clock()
        protocol = self._create_protocol(connected, client)
        task = asyncio.create_task(self._connect(protocol, connected))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)
        return True

    def count_refused(self, error: ssl.SSLError) -> None:
        """Count a client without a valid certificate; log at most one a minute."""
        if isinstance(error, ssl.SSLCertVerificationError):
            reason, problem = _BAD_CERTIFICATE, error.verify_message
        elif getattr(error, "reason", "") == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
            reason, problem = _NO_CERTIFICATE, "the client showed no certificate"
        else:
            return
        self.refused[reason] += 1
        now = self._limiter.clock()
        if now - self._refusal_logged >= REFUSAL_LOG_SECONDS:
            self._refusal_logged = now
            log.warning(
                "client refused: its certificate must be of a CA in --client-ca",
                reason=reason,
                problem=plain(problem),
                refused=dict(self.refused),
            )

    async def _connect(self, protocol: LimitedProtocol, connected: socket.socket) -> None:
        """Do the TLS handshake; then the protocol gets the connection."""
        try:
            await _check_hello(connected)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol,
                connected,
                ssl=self._context,
                ssl_shutdown_timeout=SHUTDOWN_SECONDS,
            )
        except ssl.SSLError as error:
            self.count_refused(error)
        except OSError as error:
            log.debug("no TLS connection", problem=str(error))
        finally:
            if not protocol.connection.secured:
                self._limiter.close(protocol.connection)
                with contextlib.suppress(OSError):
                    connected.close()


async def _check_hello(connected: socket.socket) -> None:
    """Wait for the first bytes, so that clients that send nothing cost no TLS memory.

    Raises:
        ConnectionAbortedError: They are no ClientHello, or it is too long.
    """
    await _wait_readable(connected)
    head = connected.recv(_HELLO_HEAD, socket.MSG_PEEK)
    if len(head) < _HELLO_HEAD or int.from_bytes(head[6:]) > MAX_HELLO:
        raise ConnectionAbortedError("a ClientHello that is cut off, or too long")


async def _wait_readable(waited: socket.socket) -> None:
    readable = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(waited, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(waited)
