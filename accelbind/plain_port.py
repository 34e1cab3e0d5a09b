"""Asking a process of ours on its plain port: metrics, probes, devices; without a proxy."""

import contextlib
import http.client
from typing import Final

from services.process.errors import WorldError
from services.process.text import plain

MAX_ANSWER: Final = 32 * 1024 * 1024

_ALL: Final = frozenset({"::", "0.0.0.0"})  # noqa: S104 - a process that listens on all addresses


class NoAnswer(WorldError):
    """Nothing answers on a plain port, or at too great length."""


def reachable(host: str) -> str:
    """Where to ask a process that listens on a host: on all addresses means this machine."""
    return "localhost" if host in _ALL else host


def ask(host: str, port: int, path: str, *, seconds: float) -> tuple[int, bytes]:
    """Status and body of what answers.

    Args:
        host: A name or an address.
        port: The plain port.
        path: Such as `/readyz`.
        seconds: How long to wait for each step.

    Raises:
        NoAnswer: Nothing does, or at too great length.
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
        raise NoAnswer("it goes on and on")
    return answer.status, text
