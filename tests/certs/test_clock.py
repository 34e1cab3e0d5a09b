"""Whose time counts."""

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from structlog.testing import capture_logs

from certs.clock import ClusterClock

HERE = datetime(2026, 11, 21, 12, tzinfo=UTC)


def http_date(moment: datetime) -> str:
    return format_datetime(moment, usegmt=True)


def clock() -> ClusterClock:
    return ClusterClock(HERE.timestamp)


@pytest.mark.parametrize("year", [2001, 2040])
def test_the_api_server_s_time_counts_where_it_differs(year: int) -> None:
    made = clock()
    made.hear(http_date(HERE.replace(year=year)))
    assert made.now() == HERE.replace(year=year)
    made.hear(http_date(HERE))
    assert made.now() == HERE


def test_some_seconds_are_no_difference() -> None:
    made = clock()
    made.hear(http_date(HERE.replace(second=4)))
    assert (made.now(), made.offset) == (HERE, 0)


@pytest.mark.parametrize("date", ["", "yesterday", "Sat, 99 Nov 2026 12:00:00 GMT", "0"])
def test_what_is_no_date_is_ignored(date: str) -> None:
    made = clock()
    made.hear(date)
    assert made.now() == HERE


def test_a_difference_is_told_once_and_so_is_its_end() -> None:
    made = clock()
    with capture_logs() as logs:
        for _ in range(3):
            made.hear(http_date(HERE.replace(hour=13)))
        for _ in range(3):
            made.hear(http_date(HERE))
    assert [(line["log_level"], line.get("seconds_behind")) for line in logs] == [
        ("warning", 3600),
        ("info", None),
    ]
