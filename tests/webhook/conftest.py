from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.webhook.running import Webhook, start_webhook

Starter = Callable[..., Webhook]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    """Start a webhook of a test's own."""
    started: list[Webhook] = []

    def starter(*arguments: str | Path) -> Webhook:
        started.append(start_webhook(tmp_path, *arguments))
        return started[-1]

    yield starter
    for one in started:
        one.process.kill()
