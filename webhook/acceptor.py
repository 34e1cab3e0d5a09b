"""Accept connections one by one, so that TLS handshakes can be counted, timed and closed.

An event loop's TLS listener reports a connection only after its handshake. Here each connection is
counted when it is accepted; `loop.connect_accepted_socket` does the handshake.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Final

import structlog

from webhook.limits import ConnectionLimiter, LimitedProtocol

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
BATCH: Final = 32
"""Connections that are accepted before the event loop does other work."""
RETRY_SECONDS: Final = 1.0
"""Pause after a failure to accept, usually for lack of file descriptors."""

log = structlog.get_logger(room="server")


class Acceptor:
    """Accepts the connections of a listening socket until it is closed.

    Args:
        listener: The socket; the acceptor closes it.
        context: TLS.
        create_protocol: Creates the protocol of one connection.
        limiter: Counts the connections.

    Attributes:
        last_accepted: The loop's time when it accepted a client, 0 before the first one.
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
        self.last_accepted = 0.0
        listener.settimeout(0)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        """Accept the clients that have connected, and stop listening."""
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
            except ConnectionError:  # the client has gone already
                continue
            except OSError as error:
                self._log_failure(error)
                self._pause(RETRY_SECONDS)
                return
            self._failing = False
            self.last_accepted = self._loop.time()
            task = self._loop.create_task(self._connect(connected))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _log_failure(self, error: OSError) -> None:
        if not self._failing:
            log.error("can't accept connections", reason=str(error), retry=RETRY_SECONDS)
        self._failing = True

    def _pause(self, seconds: float) -> None:
        """Stop accepting for a while; the listener stays readable, so its reader must go."""
        self._loop.remove_reader(self.listener)
        self._retry = self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._loop.add_reader(self.listener, self._accept)

    async def _connect(self, connected: socket.socket) -> None:
        """Do the TLS handshake; then the protocol gets the connection."""
        connection = self._create_protocol()
        connection.accept(connected)
        try:
            await self._check_hello(connected)
            await self._loop.connect_accepted_socket(
                lambda: connection,
                connected,
                ssl=self._context,
                ssl_shutdown_timeout=SHUTDOWN_SECONDS,
            )
        except ssl.SSLError as error:
            self._limiter.count_refused(error, self._loop.time())
        except OSError as error:
            log.debug("no TLS connection", reason=str(error))
        finally:
            if not connection.secured:
                self._limiter.ledger.close(connection)
                with contextlib.suppress(OSError):
                    connected.close()

    async def _check_hello(self, connected: socket.socket) -> None:
        """Wait for the first bytes, so that clients that send nothing cost no TLS memory.

        Raises:
            ConnectionAbortedError: They are no ClientHello, or it is too long.
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
