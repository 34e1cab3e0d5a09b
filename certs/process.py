"""The certificates' process: a round now and then, metrics and probes on a plain port.

Every replica does the same, and none is the leader: `certs.keeper` says why that is fine. What goes
wrong is logged when it begins, changes and ends. SIGTERM ends at once, in the
middle of a round too: each write is whole or isn't, and the next round of anybody goes on.
"""

import asyncio
import contextlib
import random
import time
from typing import Final, NoReturn

import structlog

from certs.clock import ClusterClock
from certs.figures import CertsCollector, State
from certs.keeper import Keeper, Outcome, nobody
from certs.settings import CertsSettings, described
from services.kube.client import ClusterClient
from services.kube.connection import Connection, connector
from services.kube.remedies import asked_to_wait, may_be_ours
from services.process import logging
from services.process.errors import AccelbindError, ClusterError, WorldError
from services.process.http import MetricsServer, build_info, new_registry
from services.process.listening import write_ports
from services.process.retry import Backoff
from services.process.signals import stop_signals

SILENCE_SECONDS: Final = 180.0
"""How long no round may end, well or not, before the process counts as hung."""

log = structlog.get_logger(room="certs")


async def run(settings: CertsSettings) -> None:
    """Keeps certificates until SIGTERM or SIGINT.

    Raises:
        ClusterError: Nothing says how to reach an API server, or what does can't be used.
        WorldError: The port can't be had.
    """
    logging.configure(settings.log_level, settings.log_format)
    process = Process(settings)
    with stop_signals() as stop:
        await process.run_until(stop)
    log.info("stopped")


class Process:
    """The parts of the process, put together.

    Args:
        settings: What it was told.
    """

    def __init__(self, settings: CertsSettings) -> None:
        self._settings = settings
        self._clock = ClusterClock()
        self._connection = Connection(connector(settings.kubeconfig))
        asked = settings.replicas.behind if settings.replicas else nobody
        self._keeper = Keeper(settings.places, settings.rules, self._clock, behind=asked)
        self._backoff = Backoff()
        self._state = State()
        self._problems = Problems()
        self._missing: tuple[str, ...] = ()
        self._behind: tuple[str, ...] = ()
        self._ended = time.monotonic()
        registry = new_registry()
        build_info(registry, "certs")
        registry.register(CertsCollector(self._keeper.counts, lambda: self._state))
        self.metrics = MetricsServer(
            registry, {"/healthz": self._probe_health, "/readyz": self._probe_readiness}
        )

    async def run_until(self, stop: asyncio.Event) -> None:
        """Does round after round until `stop` is set."""
        async with self.metrics:
            await self.metrics.start(self._settings.host, self._settings.metrics_port)
            write_ports(self._settings.ports_file, {"metrics": self.metrics.port})
            log.info("keeping certificates", port=self.metrics.port, **described(self._settings))
            keeping = asyncio.create_task(self._keep())
            stopping = asyncio.create_task(stop.wait())
            try:
                await asyncio.wait({keeping, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if keeping.done():
                    await keeping
                    raise WorldError("keeping certificates has ended by itself")
            finally:
                for task in (keeping, stopping):
                    task.cancel()
                await asyncio.gather(keeping, stopping, return_exceptions=True)
                await self._connection.aclose()

    async def _keep(self) -> NoReturn:
        while True:
            pause = await self._round()
            self._ended = time.monotonic()
            await asyncio.sleep(pause)

    async def _round(self) -> float:
        """One round, whatever comes; returns how long to wait then."""
        async with self._connection.client() as client:
            try:
                return self._succeeded(await self._keeper.round(client))
            except AccelbindError as error:
                return await self._failed(client, error)
            except Exception as error:
                log.exception("a mistake of ours; the next round comes")
                return await self._failed(
                    client, ClusterError(f"a mistake of ours: {error!r:.200}")
                )

    def _succeeded(self, outcome: Outcome) -> float:
        self._backoff.reset()
        state = self._state
        state.ends = {"ca": outcome.trust.authority.certificate.not_valid_after_utc}
        if outcome.serving_ends is not None:
            state.ends["serving"] = outcome.serving_ends
        state.trusted = len(outcome.trust.authorities)
        state.missing = len(outcome.missing)
        state.behind = len(outcome.behind)
        state.offset = self._clock.offset
        state.problem = "; ".join(outcome.problems)
        state.ready = not outcome.problems
        if outcome.problems:
            state.failures += 1
        else:
            state.succeeded = self._clock.now().timestamp()
        self._problems.tell(state.problem)
        self._tell_missing(outcome)
        self._tell_behind(outcome.behind)
        return self._settings.interval.total_seconds() * random.uniform(0.75, 1)  # noqa: S311 - jitter

    async def _failed(self, client: ClusterClient, error: AccelbindError) -> float:
        asked = 0.0
        if isinstance(error, ClusterError):
            asked = asked_to_wait(error)
            if may_be_ours(error):
                with contextlib.suppress(AccelbindError):
                    await self._connection.renew(client)
        self._state.problem = str(error)
        self._state.failures += 1
        self._state.ready = False
        self._problems.tell(str(error))
        return self._backoff.pause(asked)

    def _tell_missing(self, outcome: Outcome) -> None:
        if outcome.missing != self._missing:
            for name in sorted(set(outcome.missing) - set(self._missing)):
                log.info(
                    "there is no such webhook configuration yet: it gets its bundle when it comes",
                    configuration=name,
                )
        self._missing = outcome.missing

    def _tell_behind(self, behind: tuple[str, ...]) -> None:
        if behind and behind != self._behind:
            log.warning(
                "replicas of the webhook still show a certificate of an old CA, which stays in the"
                " bundle for them: look at their logs for 'new certificate not used'",
                replicas=list(behind),
            )
        self._behind = behind

    async def _probe_health(self) -> tuple[int, str]:
        silent = time.monotonic() - self._ended
        if silent > SILENCE_SECONDS + self._settings.interval.total_seconds():
            return 503, f"no round has ended for {silent:.0f} s\n"
        return 200, "ok\n"

    async def _probe_readiness(self) -> tuple[int, str]:
        if self._state.ready:
            return 200, "ok\n"
        return 503, f"{self._state.problem or 'the first round is under way'}\n"


class Problems:
    """Logs what is wrong when it begins, when it changes and when it ends."""

    def __init__(self) -> None:
        self._problem = ""
        self._since = 0.0

    def tell(self, problem: str) -> None:
        """Takes in what is wrong now; empty if nothing is."""
        now = time.monotonic()
        if problem and not self._problem:
            self._since = now
        if problem and problem != self._problem:
            seconds = round(now - self._since)
            log.error("certificates can't be seen to", problem=problem, seconds=seconds)
        elif self._problem and not problem:
            log.info("certificates are seen to again", seconds=round(now - self._since))
        self._problem = problem
