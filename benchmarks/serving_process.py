"""The server that `benchmarks.serving` measures: reviews and fixed bytes from one process.

`/mutate` and `/pods` are the webhook's own. `/constant` is the yardstick: an ASGI application that
reads the whole body and answers bytes that are always the same, behind the same server and TLS.
"""

import argparse
import asyncio
import gc
from pathlib import Path
from typing import Final

import uvloop

from benchmarks.reviews import index
from services.domain.mappings import MappingIndex
from services.domain.mutation import Policy
from services.runtime.certificates import CertificateSource
from services.runtime.lifecycle import stop_signals
from services.runtime.listening import listen
from services.runtime.ports_file import write_ports
from webhook.admission import WHOLE, Gate, Receive, Scope, Send
from webhook.app import Readiness, build_app
from webhook.figures import Figures
from webhook.server import AdmissionServer

CONSTANT: Final = "/constant"
FIXED: Final = b'{"kind":"AdmissionReview"}' + b" " * 900
"""As long as the answer to a small review."""
_HEADERS: Final = [
    (b"content-type", b"application/json"),
    (b"content-length", b"%d" % len(FIXED)),
]
MAX_BODY: Final = 3 * 1024 * 1024


class Fixed:
    """Mappings that stay."""

    def __init__(self, number: int, namespaces: int) -> None:
        self.index: MappingIndex = index(number, namespaces)


async def constant(receive: Receive, send: Send) -> None:
    """Reads the whole body, and answers fixed bytes."""
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message["body"])
        more = message["more_body"]
    if not b"".join(parts):
        raise AssertionError("the benchmark sends bodies")
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": FIXED})


async def serve(folder: Path, mappings: int, namespaces: int) -> None:
    """Serves until SIGTERM, with the certificate in a folder; `ports.json` there says where."""
    certificates = CertificateSource(folder / "tls.crt", folder / "tls.key")
    certificates.load()
    gate = Gate(Fixed(mappings, namespaces), Policy(), Figures(), max_body=MAX_BODY)
    webhook = build_app(gate, Readiness(list))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == CONSTANT:
            scope.pop(WHOLE, None)
            await constant(receive, send)
        else:
            await webhook(scope, receive, send)

    server = AdmissionServer(app, certificates.context)
    listener = listen("127.0.0.1", 0)
    with stop_signals() as stop:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await server.listening.wait()
        gc.collect()
        gc.freeze()
        write_ports(folder / "ports.json", {"admission": listener.getsockname()[1]})
        await stop.wait()
        server.should_exit = True
        await serving


def main() -> None:
    """Runs the process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mappings", type=int, default=10)
    parser.add_argument("--namespaces", type=int, default=1)
    given = parser.parse_args()
    uvloop.run(serve(given.folder, given.mappings, given.namespaces))


if __name__ == "__main__":
    main()
