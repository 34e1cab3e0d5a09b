"""The server that `tools.bench.serving` measures: reviews and fixed bytes from one process.

On the port `admission`, `/mutate` and `/pods` are the webhook's own. There are three yardsticks.
All are behind the same server code and TLS, and read the whole body to answer fixed bytes:

- `/plain`, an ASGI application as frameworks have it, whose answer is two messages, and two writes;
- `/constant`, one whose answer is one write, as the webhook's is: the least an application takes;
- the port `bare`, where a gate answers them on the short way of `webhook.direct`: what is left over
  it is what a review costs beyond being received and answered.
"""

import asyncio
import gc
import sys
from pathlib import Path
from typing import Any, Final, cast

import structlog
import uvloop
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from services.admission.mutate import Policy
from services.mappings.model import MappingIndex
from services.process.listening import listen, write_ports
from services.process.signals import stop_signals
from services.process.tls import CertificateSource
from tools.bench.reviews import index
from webhook.admission import Gate, Receive, Scope, Send
from webhook.app import Readiness, build_app
from webhook.figures import Figures
from webhook.server import AdmissionServer

PLAIN: Final = "/plain"
CONSTANT: Final = "/constant"
FIXED: Final = b'{"kind":"AdmissionReview"}' + b" " * 900
"""As long as the answer to a small review."""
_WHOLE: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
    % (len(FIXED), FIXED)
)
MAX_BODY: Final = 3 * 1024 * 1024


class Fixed:
    """Mappings that stay."""

    loaded = True

    def __init__(self, number: int, namespaces: int) -> None:
        self.index: MappingIndex = index(number, namespaces)


class FixedGate(Gate):
    """A gate that reads whole bodies, and answers fixed bytes."""

    def reply(self, endpoint: str, body: bytes) -> tuple[int, bytes]:  # noqa: ARG002 - a gate's
        """The same answer, whatever came."""
        if not body:
            raise AssertionError("the benchmark sends bodies")
        return 200, FIXED


async def whole(receive: Receive) -> None:
    """Reads the whole body."""
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message["body"])
        more = message["more_body"]
    if not b"".join(parts):
        raise AssertionError("the benchmark sends bodies")


async def plain(receive: Receive, send: Send) -> None:
    """Reads the whole body, and answers fixed bytes."""
    await whole(receive)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(FIXED))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": FIXED})


async def constant(receive: Receive, send: Send) -> None:
    """The same in one write."""
    await whole(receive)
    # ASGI takes an answer in two messages, which uvicorn writes one by one. That would make the
    # yardstick dearer than what it measures, so this one knows whom it is talking to.
    cycle: RequestResponseCycle = cast("Any", send).__self__
    cycle.response_started = cycle.response_complete = True
    cycle.transport.write(_WHOLE)
    cycle.message_event.set()
    cycle.on_response()


async def serve(folder: Path, number: int, namespaces: int) -> None:
    """Serves until SIGTERM, with the certificate in a folder; `ports.json` there says where."""
    certificates = CertificateSource(folder / "tls.crt", folder / "tls.key")
    certificates.load()
    mappings = Fixed(number, namespaces)
    gate = Gate(mappings, Policy(), Figures(), max_body=MAX_BODY)
    bare = FixedGate(mappings, Policy(), Figures(), max_body=MAX_BODY)
    webhook = build_app(gate, Readiness(list))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == CONSTANT:
            await constant(receive, send)
        elif scope["path"] == PLAIN:
            await plain(receive, send)
        else:
            await webhook(scope, receive, send)

    servers = {
        "admission": AdmissionServer(app, certificates.context, gate=gate),
        "bare": AdmissionServer(app, certificates.context, gate=bare),
    }
    listeners = {name: listen("127.0.0.1", 0) for name in servers}
    with stop_signals() as stop:
        serving = [
            asyncio.create_task(server.serve(sockets=[listeners[name]]))
            for name, server in servers.items()
        ]
        for server in servers.values():
            await server.listening.wait()
        gc.collect()
        gc.freeze()
        ports = {name: listener.getsockname()[1] for name, listener in listeners.items()}
        write_ports(folder / "ports.json", ports)
        await stop.wait()
        for server in servers.values():
            server.should_exit = True
        await asyncio.gather(*serving)


def main() -> None:
    """Runs the process, as its arguments say: folder, mappings, namespaces."""
    folder, mappings, namespaces = sys.argv[1:]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    uvloop.run(serve(Path(folder), int(mappings), int(namespaces)))


if __name__ == "__main__":
    main()
