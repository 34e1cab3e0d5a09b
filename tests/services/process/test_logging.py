import io
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from services.process.logging import configure


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_where_no_person_watches_one_event_a_line() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    structlog.get_logger().info("refused", pod="a\nb", reason="unknown-name", path=Path("/x"))
    (line,) = lines(stream)
    assert line.pop("timestamp")
    assert line == {
        "event": "refused",
        "level": "info",
        "pod": "a\nb",
        "reason": "unknown-name",
        "path": "/x",
    }


@pytest.mark.parametrize(
    ("stream", "format", "variables", "starts"),
    [
        (Terminal, "auto", {}, "\x1b["),
        (Terminal, "auto", {"NO_COLOR": "1"}, "20"),
        (Terminal, "json", {}, "{"),
        (io.StringIO, "console", {}, "20"),
        (io.StringIO, "auto", {}, "{"),
    ],
)
def test_the_format_follows_the_terminal_unless_it_is_set(
    monkeypatch: pytest.MonkeyPatch,
    stream: type[io.StringIO],
    format: str,  # noqa: A002 - as in configure
    variables: dict[str, str],
    starts: str,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    made = stream()
    configure(format=format, stream=made)
    structlog.get_logger().info("refused", pod="a")
    assert made.getvalue().startswith(starts)
    assert "refused" in made.getvalue()
    assert ("\x1b" in made.getvalue()) == (starts == "\x1b[")


def test_libraries_come_out_the_same_way_with_their_exceptions() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    library = logging.getLogger("some.library")
    library.info("chatter")
    library.error("odd %d", "arguments")
    try:
        _ = 1 / 0
    except ZeroDivisionError:
        structlog.get_logger().exception("failed")
        library.exception("%d failed", 3)
    odd, own, theirs = lines(stream)
    assert odd["event"] == "odd %d"
    assert (theirs["event"], theirs["logger"], theirs["level"]) == (
        "3 failed",
        "some.library",
        "error",
    )
    assert "ZeroDivisionError" in str(own["exception"])
    assert "ZeroDivisionError" in str(theirs["exception"])


def test_text_that_the_stream_cannot_encode_is_escaped() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    configure(format="console", stream=stream)
    structlog.get_logger().info("naïve \ud800")
    assert b"na\\xefve \\ud800" in raw.getvalue()


def test_a_full_disk_costs_lines_only() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    stream = io.TextIOWrapper(io.FileIO(full, "w", closefd=False), write_through=True)
    configure(stream=stream)
    structlog.get_logger().info("lost")
    with pytest.raises(OSError, match="No space"):
        os.write(full, b"x")
    os.close(full)
