"""How the process starts badly and ends well."""

import concurrent.futures
import contextlib
import http.client
import json
import signal
import socket
import ssl
import threading
from pathlib import Path

import pytest

from certs.folder import issue
from tests.support import Processes, eventually
from tests.webhook.conftest import Starter
from tests.webhook.reviews import body, mapping_yaml, patch_of
from tests.webhook.running import HEADERS, Webhook


def files(folder: Path) -> list[str | Path]:
    issue(folder / "tls", ["localhost"])
    (folder / "mappings").mkdir()
    certificate, key = folder / "tls" / "tls.crt", folder / "tls" / "tls.key"
    tls: list[str | Path] = ["--tls-cert", certificate, "--tls-key", key]
    return [*tls, "--mappings", folder / "mappings", "--port", "0", "--metrics-port", "0"]


def failure(processes: Processes, *arguments: str | Path) -> tuple[int, str]:
    process = processes.accelbind("webhook", "--log-level", "error", *arguments)
    code = process.wait()
    (line,) = process.stderr.splitlines()
    return code, line


def test_a_missing_certificate_is_told_with_how_to_make_one(processes: Processes) -> None:
    code, line = failure(processes)
    assert code == 2
    assert line.startswith("error: --tls-cert is required")
    assert "accelbind certs issue" in line


def test_files_that_are_no_certificate_are_told(processes: Processes, tmp_path: Path) -> None:
    arguments = files(tmp_path)
    (tmp_path / "tls" / "tls.crt").write_text("nonsense")
    code, line = failure(processes, *arguments)
    assert code == 1
    assert "are not a certificate and its unencrypted key" in line


def test_a_missing_folder_of_mappings_is_told(processes: Processes, tmp_path: Path) -> None:
    arguments = files(tmp_path)
    (tmp_path / "mappings").rmdir()
    code, line = failure(processes, *arguments)
    assert code == 1
    assert line == f"error: the folder of mappings {tmp_path}/mappings: No such file or directory"


@pytest.mark.parametrize("flag", ["--port", "--metrics-port"])
def test_a_port_that_is_taken_is_told(processes: Processes, tmp_path: Path, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        hosts = ("--host", "127.0.0.1", "--metrics-host", "127.0.0.1")
        code, line = failure(processes, *files(tmp_path), *hosts, flag, port)
    assert code == 1
    assert line == f"error: can't listen on 127.0.0.1:{port}: Address already in use"


def test_a_ports_file_that_cannot_be_written_is_told(processes: Processes, tmp_path: Path) -> None:
    missing = tmp_path / "none" / "ports.json"
    code, line = failure(processes, *files(tmp_path), "--ports-file", missing)
    assert code == 1
    assert line.startswith(f"error: can't write the ports file {missing}")


def test_the_settings_that_count_are_printed(processes: Processes) -> None:
    flags = ("--tls-cert", "a", "--tls-key", "b", "--mappings", "c", "--max-units", "8")
    process = processes.accelbind("webhook", *flags, "--print-config", env={"ACCELBIND_PORT": "1"})
    assert process.wait() == 0
    lines = {line.split(":")[0]: line for line in process.stdout.splitlines()}
    assert lines["max-units"].split() == ["max-units:", "8", "#", "--max-units"]
    assert lines["port"].split() == ["port:", "1", "#", "ACCELBIND_PORT"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(start: Starter, number: signal.Signals) -> None:
    webhook = start()
    idle = webhook.connect()
    idle.request("GET", "/healthz")
    assert idle.getresponse().read() == b"ok\n"
    webhook.process.popen.send_signal(number)
    assert webhook.process.wait(60) == 0
    idle.close()
    assert [line["level"] for line in webhook.events("stopped")] == ["info"]
    assert webhook.process.leftovers() == []


def test_it_is_not_ready_first_and_serves_on_meanwhile(start: Starter) -> None:
    webhook = start("--drain-seconds", "300")
    webhook.process.popen.send_signal(signal.SIGTERM)
    assert eventually(lambda: webhook.plain("/readyz").status == 503)
    assert webhook.plain("/readyz").text == "stopping\n"
    assert webhook.get("/readyz").status == 503
    assert webhook.get("/healthz").status == 200
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
        secured.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert secured.recv(12) == b"HTTP/1.1 200"
        assert webhook.process.terminate(25) == 0


def accepts(webhook: Webhook) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("localhost", webhook.port)):
        return True
    return False


# A socket that is reset within its handshake is left to the garbage collector by Python's ssl.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_under_load_no_request_that_got_a_connection_goes_unanswered(start: Starter) -> None:
    webhook = start("--drain-seconds", "0.3")
    warm = threading.Event()
    context = webhook.context()

    def client(number: int) -> int:
        """Reviews until no connection is to be had; how many were answered."""
        answered = 0
        while True:
            connection = http.client.HTTPSConnection(
                "localhost", webhook.port, timeout=20, context=context
            )
            try:
                connection.connect()
            except (OSError, ssl.SSLError):
                return answered
            while connection.sock is not None:
                uid = f"{number}-{answered}"
                connection.request("POST", "/mutate", body(uid=uid), HEADERS)
                found = connection.getresponse()
                assert patch_of(found.read(), uid)
                answered += 1
                if answered == 50:
                    warm.set()
            connection.close()

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        clients = [pool.submit(client, number) for number in range(6)]
        assert warm.wait(60)
        code = webhook.process.terminate(60)
        answered = [one.result(60) for one in clients]
    assert code == 0
    assert min(answered) > 0
    assert webhook.events("requests left unanswered at the end") == []


def test_the_ports_file_names_both_ports(start: Starter) -> None:
    webhook = start(mappings={"m.yaml": mapping_yaml()})
    ports = json.loads((webhook.folder / "ports.json").read_text())
    assert ports == {"admission": webhook.port, "metrics": webhook.metrics_port}
