"""The webhook as a real process, and a client that speaks to it over verified TLS."""

import contextlib
import http.client
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from accelbind.devices.source import PlainPort
from certs.folder import issue
from tests.services.building import function
from tests.support import Process, accelbind_command
from tests.webhook.reviews import NAME
from webhook.settings import WebhookSettings

HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "gzip"}


@dataclass(frozen=True)
class Webhook:
    """A running webhook."""

    process: Process
    folder: Path
    port: int
    metrics_port: int

    @property
    def tls(self) -> Path:
        """The folder that it reads its certificate from."""
        return self.folder / "tls"

    def context(self) -> ssl.SSLContext:
        """TLS that trusts its CA and nobody else."""
        return ssl.create_default_context(cafile=self.tls / "ca.crt")

    def connect(self, *shown: Path) -> http.client.HTTPSConnection:
        """A connection over TLS, with a certificate of the client and its key if given."""
        context = self.context()
        if shown:
            context.load_cert_chain(shown[0], shown[1])
        return http.client.HTTPSConnection("localhost", self.port, timeout=60, context=context)

    def ask(self, path: str, body: bytes, *shown: Path) -> bytes:
        """The answer to a request on a connection of its own."""
        with contextlib.closing(self.connect(*shown)) as connection:
            connection.request("POST", path, body, HEADERS)
            return connection.getresponse().read()

    def plain(self, path: str) -> tuple[int, str]:
        """A GET on the port for metrics and probes."""
        status, text = PlainPort("localhost", self.metrics_port).get(path)
        return status, text.decode()

    def metric(self, name: str) -> float:
        """A sample of `/metrics`, by its name with labels; 0 where it isn't there."""
        for line in self.plain("/metrics")[1].splitlines():
            if line.startswith(f"{name} "):
                return float(line.removeprefix(f"{name} "))
        return 0.0


def settings(folder: Path, **given: Any) -> WebhookSettings:
    """Settings of a webhook in this process, with a certificate of its own."""
    issued = issue(folder / "tls", ["localhost"])
    files = {"tls_cert": issued.certificate, "tls_key": issued.key}
    ports = {"host": "127.0.0.1", "port": 0, "metrics_port": 0, "drain_seconds": 0}
    return WebhookSettings.model_validate({**files, **ports, **given})


def start_webhook(folder: Path, *arguments: str | Path) -> Webhook:
    """Start the webhook with a certificate and a mapping of its own, in a fresh folder."""
    issue(folder / "tls", ["localhost", "127.0.0.1"])
    flags: list[str | Path] = [
        *("--tls-cert", folder / "tls" / "tls.crt", "--tls-key", folder / "tls" / "tls.key"),
        *("--ports-file", folder / "ports.json"),
        *("--port", "0", "--metrics-port", "0", "--drain-seconds", "0"),
        *("--mappings", folder / "mappings"),
    ]
    (folder / "mappings").mkdir()
    (folder / "mappings" / "m.yaml").write_text(yaml.safe_dump(function(NAME, "af")))
    command = accelbind_command("webhook", *flags, *arguments)
    process = Process(command, folder=folder, name="webhook")
    try:
        ports = process.ports(folder / "ports.json")
    except BaseException:
        process.kill()
        raise
    return Webhook(process, folder, ports["admission"], ports["metrics"])
