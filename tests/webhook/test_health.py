"""Readiness shows in the log."""

import asyncio

import pytest
from structlog.testing import capture_logs

from webhook.process import log_readiness


def test_readiness_is_logged_when_it_changes() -> None:
    reasons = ["mappings not loaded"] * 2 + [""] * 2 + ["mappings are old"]

    async def scenario() -> None:
        with pytest.raises(IndexError):
            await log_readiness(lambda: reasons.pop(0), interval=0)

    with capture_logs() as logs:
        asyncio.run(scenario())
    assert [(line["event"], line.get("reason")) for line in logs] == [
        ("not ready", "mappings not loaded"),
        ("ready", None),
        ("not ready", "mappings are old"),
    ]
