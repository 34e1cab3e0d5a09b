"""Queries to the plain port of the plugin: metrics, probes, devices."""

import contextlib
import http.client
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import msgspec

from plugin.settings import PluginSettings
from services.devices.dra import DRIVER
from services.kubelet.sockets import MAX_SOCKET_PATH, PLUGIN_SOCKET, dra_socket, plugins_folder
from services.node.table import Table
from services.process.errors import ExternalFailure
from services.process.json import UNREADABLE
from services.process.text import plain

MAX_ANSWER: Final = 32 * 1024 * 1024
ANSWER_SECONDS: Final = 4.0
"""Time-out of each step; the plugin itself asks the kubelet for at most two seconds."""
CONNECT_SECONDS: Final = 2.0

_ALL: Final = frozenset({"::", "0.0.0.0"})  # noqa: S104 - a process that listens on all addresses


class NoAnswer(ExternalFailure):
    """Nothing answers on a plain port, or not what should."""


@dataclass(frozen=True, slots=True)
class PlainPort:
    """Where a running plugin answers."""

    host: str
    port: int

    @classmethod
    def of(cls, settings: PluginSettings) -> Self:
        """The port of a plugin with these settings."""
        host = settings.metrics_host
        return cls("localhost" if host in _ALL else host, settings.metrics_port)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of the answer to a GET.

        Raises:
            NoAnswer: There is none, or it is too long.
        """
        # http.client knows no proxies: one of the environment would not reach this node's ports.
        connection = http.client.HTTPConnection(self.host, self.port, timeout=ANSWER_SECONDS)
        with contextlib.closing(connection):
            try:
                connection.request("GET", path)
                answer = connection.getresponse()
                text = answer.read(MAX_ANSWER + 1)
            except (OSError, http.client.HTTPException) as error:
                reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
                raise NoAnswer(plain(reason)) from error
        if len(text) > MAX_ANSWER:
            raise NoAnswer(f"the answer is longer than {MAX_ANSWER} bytes")
        return answer.status, text

    def devices(self) -> tuple[int, Table]:
        """Status and devices of the plugin."""
        status, text = self.get("/devices")
        try:
            return status, msgspec.json.decode(text, type=Table)
        except UNREADABLE as error:
            raise NoAnswer(f"what answers on {self} is not a plugin ({status})") from error


def served_folder(kubelet_dir: Path) -> Path | None:
    """The folder in which a plugin or DRA driver serves the kubelet; None if none does."""
    sockets = [*plugins_folder(kubelet_dir).glob("*.sock"), dra_socket(kubelet_dir, DRIVER)]
    ours = (each for each in sockets if PLUGIN_SOCKET.fullmatch(each.name) or each is sockets[-1])
    return next((each.parent for each in ours if _is_served(each)), None)


def _is_served(path: Path) -> bool:
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:  # nobody can serve there
        return False
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(CONNECT_SECONDS)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError, NotADirectoryError):
            return False  # a plugin that was killed leaves its sockets behind
        except OSError:  # this user may not ask it, or it is too busy to accept
            return True
    return True
