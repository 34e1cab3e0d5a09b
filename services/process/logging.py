"""Structured logging: one event per line, as JSON or for people.

`structlog.get_logger()` gives a logger: `log.warning("port is unhealthy", port=name, reason=code)`.
"""

import logging
import os
import sys
from typing import Any, Final, TextIO

import structlog
from structlog.typing import Processor

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


class _Lines:
    """Writes lines to a stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, message: str) -> None:
        line = message + "\n"
        try:
            self._stream.write(line)
            self._stream.flush()
        except UnicodeError:
            self.msg(message.encode("ascii", "backslashreplace").decode("ascii"))
        except (OSError, ValueError):  # ValueError: the stream is closed
            return  # a full disk or a closed pipe costs the line only, not the process

    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg


class _Forward(logging.Handler):
    """Passes what libraries log with the standard library to structlog, for one format."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except (TypeError, ValueError):  # its arguments don't fit
            message = str(record.msg)
        structlog.get_logger().log(
            record.levelno, message, logger=record.name, exc_info=record.exc_info or None
        )


def configure(
    level: str = "info",
    format: str = "auto",  # noqa: A002 - named as the flag --log-format
    stream: TextIO | None = None,
) -> None:
    """Set up logging for this process; may be called again.

    `console` is for people, in colour on a terminal that supports it, unless NO_COLOR is set;
    `auto` is console on a terminal, else json. The output is standard error by default.
    """
    target = sys.stderr if stream is None else stream
    terminal = target.isatty()
    colours = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    people = format == "console" or (format == "auto" and terminal)
    structlog.configure(
        processors=[*_COMMON, *(_for_people(colors=colours) if people else _for_machines())],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=lambda *_: _Lines(target),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers = [_Forward()]
    # Informational messages of libraries are about their internals: for debugging only.
    root.setLevel(logging.DEBUG if level == "debug" else max(LEVELS[level], logging.WARNING))


_COMMON: Final[tuple[Processor, ...]] = (
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


def _for_people(*, colors: bool) -> list[Processor]:
    return [
        structlog.dev.ConsoleRenderer(
            colors=colors, exception_formatter=structlog.dev.plain_traceback
        )
    ]


def _for_machines() -> list[Processor]:
    return [
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(default=_text),
    ]


def _text(value: Any) -> str:  # noqa: ANN401 - whatever was logged
    return str(value)
