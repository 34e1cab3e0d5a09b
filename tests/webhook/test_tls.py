"""Which versions and cipher suites of TLS the webhook speaks."""

import asyncio
import contextlib
import socket
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from certs.folder import issue
from tests.webhook.asgi import Bench
from tests.webhook.test_server import serving


@contextlib.contextmanager
def lenient_server(folder: Path) -> Iterator[int]:
    """A server that speaks whatever OpenSSL can: what we refuse is no fault of the client's."""
    issue(folder, ["localhost"])
    context = lenient(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    plain, _ = listener.accept()
                    with contextlib.suppress(OSError), context.wrap_socket(plain, server_side=True):
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(60)


def lenient(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    if protocol == ssl.PROTOCOL_TLS_CLIENT:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context


def spoken(port: int, change: Callable[[ssl.SSLContext], None]) -> str:
    """The suite that a client and a server agree on; empty if they don't."""
    context = lenient(ssl.PROTOCOL_TLS_CLIENT)
    change(context)
    with (
        contextlib.suppress(ssl.SSLError, ConnectionError),
        socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
        context.wrap_socket(plain) as secured,
    ):
        suite = secured.cipher()
        return suite[0] if suite else ""
    return ""


def version(newest: ssl.TLSVersion) -> Callable[[ssl.SSLContext], None]:
    def change(context: ssl.SSLContext) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.maximum_version = newest

    return change


def suites(names: str) -> Callable[[ssl.SSLContext], None]:
    def change(context: ssl.SSLContext) -> None:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(f"{names}:@SECLEVEL=0")

    return change


OLD = [version(ssl.TLSVersion.TLSv1), version(ssl.TLSVersion.TLSv1_1)]
WEAK = [suites("ECDHE-ECDSA-AES128-SHA"), suites("ECDHE-ECDSA-AES256-SHA384")]
MODERN = [
    version(ssl.TLSVersion.TLSv1_3),
    suites("ECDHE-ECDSA-AES128-GCM-SHA256"),
    suites("ECDHE-ECDSA-CHACHA20-POLY1305"),
]


def test_old_versions_and_weak_suites_are_not_spoken(tmp_path: Path) -> None:
    async def scenario(lenient_port: int) -> None:
        async with serving(tmp_path, Bench().app) as server:
            ports = (lenient_port, server.acceptors[0].port)
            for change in OLD + WEAK + MODERN:
                both = [asyncio.to_thread(spoken, port, change) for port in ports]
                others, ours = await asyncio.gather(*both)
                assert others
                assert bool(ours) is (change in MODERN)

    with lenient_server(tmp_path / "lenient") as port:
        asyncio.run(scenario(port))
