import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.devices.hardware import events as card_events
from services.devices.hardware.events import follow_card_events
from simulator.cards import CardSpec, Rack
from tests.support import eventually_async

pytestmark = pytest.mark.anyio

Notify = Callable[[], None]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def looks() -> list[str]:
    return []


@asynccontextmanager
async def following(root: Path, looks: list[str], window: float = 0.0) -> AsyncIterator[None]:
    task = asyncio.create_task(
        follow_card_events(root, lambda: looks.append("look"), window=window)
    )
    yield
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class Parts:
    """What is followed, in place of uevents and folders."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, deaf: bool = False, all_users: bool = True
    ) -> None:
        self.running: list[str] = []
        self.notify: Notify | None = None
        self._deaf = deaf
        monkeypatch.setattr(card_events, "follow_uevents", self.uevents)
        monkeypatch.setattr(card_events, "follow_folders", self.folders)
        monkeypatch.setattr(card_events, "sees_all_users", lambda: all_users)

    async def uevents(self, notify: Notify) -> None:
        if self._deaf:
            return
        self.notify = notify
        self.running.append("uevents")
        await asyncio.Event().wait()

    async def folders(self, root: Path, notify: Notify) -> None:
        assert root.is_absolute()
        self.notify = notify
        self.running.append("folders")
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("root", "kernel", "followed"),
    [
        ("/", {}, {"uevents"}),
        ("/", {"deaf": True}, {"folders"}),
        ("/", {"all_users": False}, {"uevents", "folders"}),
        ("/host", {}, {"uevents", "folders"}),
        ("/host", {"deaf": True}, {"folders"}),
    ],
)
async def test_folders_are_watched_where_uevents_may_say_nothing(
    monkeypatch: pytest.MonkeyPatch,
    looks: list[str],
    root: str,
    kernel: dict[str, bool],
    followed: set[str],
) -> None:
    parts = Parts(monkeypatch, **kernel)
    async with following(Path(root), looks):
        await eventually_async(lambda: set(parts.running) == followed)
    assert set(parts.running) == followed


async def test_a_burst_is_one_look_at_once_and_one_when_it_is_over(
    monkeypatch: pytest.MonkeyPatch, looks: list[str]
) -> None:
    parts = Parts(monkeypatch)
    async with following(Path("/"), looks, window=0.05):
        await eventually_async(lambda: parts.notify is not None)
        assert parts.notify
        for _ in range(100):
            parts.notify()
        assert looks == ["look"]
        await eventually_async(lambda: len(looks) == 2)
        parts.notify()
    assert looks == ["look"] * 2


async def test_a_card_below_a_root_of_its_own_is_looked_for_at_once(
    tmp_path: Path, looks: list[str]
) -> None:
    rack = Rack(tmp_path)
    async with following(tmp_path, looks):
        await eventually_async(lambda: len(looks) >= 1)
        before = len(looks)
        rack.add_card(CardSpec())
        await eventually_async(lambda: len(looks) > before)
    assert len(looks) > before
