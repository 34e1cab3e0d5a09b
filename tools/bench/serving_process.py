"""The server that `tools.bench.serving` measures: reviews and fixed bytes from one process.

`/mutate` and `/pods` belong to the webhook. `/plain` is an ASGI application with the same server
code and TLS. It reads the whole body and answers fixed bytes.
"""

import asyncio
import gc
import sys
from pathlib import Path
from typing import Final

import structlog
import uvloop
from starlette.types import Receive, Scope, Send

from services.admission.mutate import Policy
from services.mappings.index import MappingIndex
from services.process.listening import listen, write_ports
from services.process.signals import stop_signals
from services.process.tls import CertificateSource
from tools.bench.reviews import index
from webhook.app import AdmissionHandler, create_app
from webhook.metrics import AdmissionMetrics
from webhook.server import SOCKET_BUFFERS, AdmissionServer

PLAIN: Final = "/plain"
FIXED: Final = b'{"kind":"AdmissionReview"}' + b" " * 900
"""As long as the answer to a small review."""
MAX_BODY: Final = 3 * 1024 * 1024


class Fixed:
    loaded = True

    def __init__(self, number: int) -> None:
        self.index: MappingIndex = index(number)


async def plain(receive: Receive, send: Send) -> None:
    """Read the whole body, and answer fixed bytes."""
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message["body"])
        more = message["more_body"]
    if not b"".join(parts):
        raise AssertionError("the benchmark sends bodies")
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(FIXED))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": FIXED})


async def serve(folder: Path, number: int) -> None:
    """Serve until SIGTERM with the certificate in a folder; write `ports.json` there."""
    certificates = CertificateSource(folder / "tls.crt", folder / "tls.key")
    certificates.load()
    mappings = Fixed(number)
    handler = AdmissionHandler(mappings, Policy(), AdmissionMetrics(), max_body=MAX_BODY)
    webhook = create_app(handler)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == PLAIN:
            await plain(receive, send)
        else:
            await webhook(scope, receive, send)

    server = AdmissionServer(app, certificates.context)
    listener = listen("127.0.0.1", 0, buffers=SOCKET_BUFFERS)
    with stop_signals() as stop:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        gc.collect()
        gc.freeze()
        write_ports(folder / "ports.json", {"admission": listener.getsockname()[1]})
        await stop.wait()
        server.should_exit = True
        await serving


def main() -> None:
    """Run the process; its arguments are the folder and the number of mappings."""
    folder, mappings = sys.argv[1:]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    uvloop.run(serve(Path(folder), int(mappings)))


if __name__ == "__main__":
    main()
