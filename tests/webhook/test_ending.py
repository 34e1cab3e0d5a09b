"""How the process starts badly and ends well."""

import contextlib
import http.client
import signal
import socket

from tests.support import eventually
from tests.webhook.conftest import Starter
from tests.webhook.reviews import body, patch_of
from tests.webhook.running import Webhook


def test_it_is_not_ready_first_and_serves_on_meanwhile(start: Starter) -> None:
    webhook = start("--drain-seconds", "300")
    webhook.process.popen.send_signal(signal.SIGTERM)
    assert eventually(lambda: webhook.plain("/readyz").status == 503)
    assert webhook.plain("/readyz").text == "stopping\n"
    assert webhook.plain("/healthz").status == 200
    answer = webhook.ask("/mutate", body())
    assert answer.headers["connection"] == "close"
    assert patch_of(answer.body)


def test_a_request_that_has_begun_is_answered(start: Starter) -> None:
    webhook = start()
    content = body()
    with webhook.raw() as secured:
        length = f"Content-Length: {len(content)}\r\nContent-Type: application/json"
        secured.sendall(f"POST /mutate HTTP/1.1\r\nHost: x\r\n{length}\r\n\r\n".encode())
        secured.sendall(content[:100])
        webhook.process.popen.send_signal(signal.SIGTERM)
        eventually(lambda: not accepts(webhook))
        secured.sendall(content[100:])
        answer = http.client.HTTPResponse(secured)
        answer.begin()
        assert answer.status == 200
        assert patch_of(answer.read())
        assert answer.getheader("connection") == "close"
    assert webhook.process.wait(60) == 0


def test_a_peer_that_never_says_goodbye_does_not_hold_up_the_end(start: Starter) -> None:
    webhook = start()
    with webhook.raw() as secured:
        secured.sendall(b"GET /mutate HTTP/1.1\r\nHost: x\r\n\r\n")
        assert secured.recv(12) == b"HTTP/1.1 405"
        assert webhook.process.terminate(60) == 0


def accepts(webhook: Webhook) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("localhost", webhook.port)):
        return True
    return False
