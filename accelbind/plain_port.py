"""Queries to the plain port of a process: metrics, probes, devices; without a proxy."""

import contextlib
import http.client
from typing import Final

import msgspec

from services.node.table import Table
from services.process.errors import WorldError
from services.process.text import plain

MAX_ANSWER: Final = 32 * 1024 * 1024
ANSWER_SECONDS: Final = 4.0
"""The plugin itself asks the kubelet for at most two seconds."""

_ALL: Final = frozenset({"::", "0.0.0.0"})  # noqa: S104 - a process that listens on all addresses


class NoAnswer(WorldError):
    """Nothing answers on a plain port, or not what should."""


def reachable(host: str) -> str:
    """The address of a process that listens on a host; on all addresses means this machine."""
    return "localhost" if host in _ALL else host


def query(host: str, port: int, path: str, *, seconds: float = ANSWER_SECONDS) -> tuple[int, bytes]:
    """Status and body of the answer to a GET; `seconds` is the time-out of each step.

    Raises:
        NoAnswer: There is none, or it is too long.
    """
    connection = http.client.HTTPConnection(host, port, timeout=seconds)
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


def query_devices(host: str, port: int) -> tuple[int, Table]:
    """Status and devices of the running plugin.

    Raises:
        NoAnswer: There is none, or it is no plugin.
    """
    status, text = query(host, port, "/devices")
    try:
        return status, msgspec.json.decode(text, type=Table)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise NoAnswer(f"what answers on {host}:{port} is not a plugin ({status})") from error
