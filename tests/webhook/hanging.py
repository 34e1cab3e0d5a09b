"""`python -m tests.webhook.hanging webhook …`: accelbind with faults that signals switch on.

SIGUSR1 blocks the event loop for a while, SIGUSR2 lets all mutations fail from then on, SIGHUP
closes the listening socket for reviews behind the server's back.
"""

import asyncio
import os
import signal
import sys
import time
from typing import NoReturn

from accelbind.entry import main
from services.admission import mutate, pod_review
from webhook import process
from webhook.process import Webhook

SECONDS = float(os.environ.get("HANGING_SECONDS", "20"))


def block() -> None:
    """Holds up the event loop."""
    time.sleep(SECONDS)  # the fault


def broken(*_given: object) -> NoReturn:
    """In place of the mutation."""
    raise RuntimeError("the test has broken it")


def break_mutation() -> None:
    """Whoever has imported it gets the broken one."""
    for module in (pod_review, mutate):
        for name in ("mutate", "decide"):
            if hasattr(module, name):
                setattr(module, name, broken)


class Faulty(Webhook):
    """The webhook, with the signals."""

    def close_listener(self) -> None:
        self.server.acceptors[0].close()

    async def serve_until(self, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, block)
        loop.add_signal_handler(signal.SIGUSR2, break_mutation)
        loop.add_signal_handler(signal.SIGHUP, self.close_listener)
        await super().serve_until(stop)


if __name__ == "__main__":
    setattr(process, "Webhook", Faulty)  # noqa: B010 - a class can't be assigned
    sys.exit(main())
