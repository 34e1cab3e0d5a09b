"""Accepting connections one by one, so that TLS handshakes can be counted, timed and given up.

A TLS listener of an event loop keeps connections to itself until their handshake is done. Here each
one is known from the moment when it is accepted, and `loop.connect_accepted_socket` does the rest.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Final

import structlog

from webhook.ledger import EvictionReason
from webhook.limits import ConnectionLimiter, LimitedProtocol

RECEIVE_BUFFER: Final = 64 * 1024
"""Bytes that the kernel keeps of each connection (it doubles the number), and so the most that
comes at once: TLS keeps a buffer of that size until the end of the connection."""
SHUTDOWN_SECONDS: Final = 5.0
"""How long TLS may take to say goodbye."""
MAX_HELLO: Final = 8 * 1024
"""Bytes of a ClientHello, with which TLS begins and of which it would keep 128 KiB. Clients send up
to 2 KiB."""
_HELLO_HEAD: Final = 9
"""Bytes up to the length of a ClientHello (RFC 8446, 4 and 5.1); they come in one piece."""
BATCH: Final = 32
"""Connections that are accepted before others get their turn."""
RETRY_SECONDS: Final = 1.0
"""How long nobody is accepted after that has failed, mostly for want of file descriptors."""

log = structlog.get_logger(room="server")


class Acceptor:
    """Accepts the connections of a listening socket until it is closed.

    Args:
        listener: The socket, which belongs to the acceptor from then on.
        context: TLS.
        create_protocol: Makes the protocol of one connection.
        limiter: Is told of each connection.
    """

    def __init__(
        self,
        listener: socket.socket,
        context: ssl.SSLContext,
        create_protocol: Callable[[], LimitedProtocol],
        limiter: ConnectionLimiter,
    ) -> None:
        self.listener = listener
        self._context = context
        self._create_protocol = create_protocol
        self._limiter = limiter
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._failing = False
        listener.settimeout(0)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        self._loop.add_reader(listener, self._accept)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.listener.getsockname()[1])

    def close(self) -> None:
        """Accepts who has connected, and nobody any more."""
        if self.listener.fileno() < 0:
            return
        self._accept(wait=False)
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self.listener)
        self.listener.close()

    def _accept(self, *, wait: bool = True) -> None:
        for _ in range(BATCH):
            seconds = self._limiter.seconds_until_room(self._loop.time())
            if wait and seconds > 0:
                self._pause(seconds)
                return
            try:
                connected, _address = self.listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:  # that client has gone already
                continue
            except OSError as error:
                self._log_failure(error)
                self._pause(RETRY_SECONDS)
                return
            self._failing = False
            task = self._loop.create_task(self._connect(connected))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _log_failure(self, error: OSError) -> None:
        if not self._failing:
            log.error("can't accept connections", problem=str(error), retry=RETRY_SECONDS)
        self._failing = True

    def _pause(self, seconds: float) -> None:
        """Stops accepting for a while; the listener stays readable, so its reader must go."""
        self._loop.remove_reader(self.listener)
        self._retry = self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._loop.add_reader(self.listener, self._accept)

    async def _connect(self, connected: socket.socket) -> None:
        """Does the TLS handshake; the protocol hears of the connection when it is done."""
        connection, limits = self._create_protocol(), self._limiter.limits
        connection.accept(connected)
        begun = self._loop.time()
        try:
            async with asyncio.timeout(limits.handshake_seconds):
                await self._check_hello(connected)
            await self._loop.connect_accepted_socket(
                lambda: connection,
                connected,
                ssl=self._context,
                ssl_handshake_timeout=limits.handshake_seconds,
                ssl_shutdown_timeout=SHUTDOWN_SECONDS,
            )
        except ssl.SSLError as error:
            self._limiter.count_refused(error, self._loop.time())
        except OSError:
            late = self._loop.time() - begun >= limits.handshake_seconds
            if late and connection in self._limiter.ledger:
                self._limiter.count(EvictionReason.SLOW, connection)
        finally:
            if not connection.secured:
                self._limiter.ledger.close(connection)
                with contextlib.suppress(OSError):
                    connected.close()

    async def _check_hello(self, connected: socket.socket) -> None:
        """Waits for the first bytes, so that clients who send nothing cost no TLS.

        Raises:
            ConnectionAbortedError: They begin no handshake, or one that is too long.
        """
        readable = asyncio.Event()
        self._loop.add_reader(connected, readable.set)
        try:
            await readable.wait()
        finally:
            self._loop.remove_reader(connected)
        head = connected.recv(_HELLO_HEAD, socket.MSG_PEEK)
        if len(head) < _HELLO_HEAD or int.from_bytes(head[6:]) > MAX_HELLO:
            raise ConnectionAbortedError("a ClientHello that is cut off, or too long")
