"""Serve the application with uvicorn, within limits."""

import contextlib
import resource
import ssl
from collections.abc import Iterator
from functools import partial
from typing import Final, cast

import uvicorn
from starlette.types import ASGIApp

from webhook.limits import BoundedApp, Connection

MOST_FILES: Final = 1024
"""Open files. With as many connections the process stays below the manifests' memory limit."""
SOCKET_BUFFERS: Final = 16 * 1024
"""Of a connection. Until it closes, TLS keeps buffers as large as what has arrived at once."""


class AdmissionServer(uvicorn.Server):
    """A uvicorn server that its owner drains (`app.draining`) and stops (`should_exit`)."""

    def __init__(self, app: ASGIApp, context: ssl.SSLContext) -> None:
        self.opened: set[Connection] = set()
        self.app = BoundedApp(app)
        super().__init__(
            uvicorn.Config(
                self.app,
                http=cast("type[Connection]", partial(Connection, self.opened)),
                ssl_context_factory=lambda _config, _default: context,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                # Above the 90 s of the API server's client, which does not repeat a POST when its
                # connection is closed at that moment.
                timeout_keep_alive=120,
                timeout_graceful_shutdown=5,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none: the process has its own handlers."""
        yield


def limit_files() -> None:
    """Limit the open files of this process: uvicorn can't limit connections in a handshake."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, MOST_FILES), hard))
