"""When to look at the cards: told by the kernel, by watched folders, or by neither.

The kernel's uevents come first. Folders are watched as well where uevents may say nothing of the
cards: below a root that isn't the host's, without a netlink socket, and in a user namespace of its
own. Whatever there is, a burst is one look; whatever there isn't, the caller's timer is left.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from services.devices.hardware.coalescing import WINDOW_SECONDS, Coalescer
from services.devices.hardware.uevents import follow_uevents, sees_all_users
from services.process.folder_watch import follow_folders

log = structlog.get_logger(room="card-events")


async def follow_card_events(
    root: Path, look: Callable[[], None], *, window: float = WINDOW_SECONDS
) -> None:
    """Calls for a look at the cards whenever some may have come or gone, until cancelled.

    Args:
        root: Folder below which `sys/` and `dev/` are.
        look: Called in the event loop; it should only note that a look is due.
        window: Seconds between two calls at least.
    """
    coalescer = Coalescer(look, window=window)
    heard = sees_all_users()
    if not heard:
        log.info("the kernel sends no uevents here (hostUsers: false), folders are watched")
    try:
        async with asyncio.TaskGroup() as group:
            told = group.create_task(follow_uevents(coalescer.signal), name="uevents")
            if root == Path("/") and heard:
                await told  # it only ends where there are none to be had
            await follow_folders(root, coalescer.signal)
    finally:
        coalescer.close()
