from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.webhook.reviews import mapping_yaml
from tests.webhook.running import Webhook, start_webhook

Starter = Callable[..., Webhook]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    """Start a webhook of a test's own."""
    started: list[Webhook] = []

    def starter(*arguments: str | Path, mappings: dict[str, str] | None = None) -> Webhook:
        folder = tmp_path / f"webhook-{len(started)}"
        folder.mkdir()
        files = {"m.yaml": mapping_yaml()} if mappings is None else mappings
        started.append(start_webhook(folder, *arguments, mappings=files))
        return started[-1]

    yield starter
    for one in started:
        one.process.kill()
