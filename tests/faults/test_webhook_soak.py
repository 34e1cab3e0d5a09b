"""Everything at once, for long: half the load that there can be, and nothing that stays."""

import asyncio
import contextlib
import json
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from simulator.apiserver.standin import ApiServerStandIn, Options
from tests.faults.webhook_cluster import FUNCTIONS, NAMESPACES, REGIONS, Mappings, Secret
from tests.faults.webhook_history import LAG, History, follows
from tests.faults.webhook_load import FUNCTION, Asked, Failure, Line, Met
from tests.support import REPOSITORY, Soak, clean_environment, eventually_async, soak, soaking
from tests.webhook.running import Webhook, start_webhook

CHANGES = 100
"""Mappings that change a second."""
RESTARTS = 5.0
"""Seconds between two ends of the API server."""
ROTATIONS = 2.0
"""Seconds between two certificates."""
STRICT = soaking()
"""Whether the machine does nothing else: what is late or rare says something of the code then."""
NOTICED = 3.0 if STRICT else 15.0
"""Seconds within which a new certificate is shown: it is looked for once a second, and half of
the machine is busy."""
NOTICED_CHANGES = LAG if STRICT else 12.0
"""The same for a change of a mapping."""
MEASURED = 3.0
GROWTH = 3 if STRICT else 16
"""MiB by which the webhook may be larger at the end than after the first quarter."""
OF_THE_MACHINE = set() if STRICT else {"the event loop hangs"}
"""Errors in the log that may be none of the code's."""
MOST_PROBLEMS = 10
TOLD = 3
"""How often an outage may be told of, by two watches."""


@dataclass
class Seen:
    """What came of the load."""

    asked: int = 0
    refused: int = 0
    certificates: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)

    def note(self, line: Line, history: History, secret: Secret) -> None:
        """Judges one line of the load's."""
        if isinstance(line, Failure):
            self.problems.append(f"failed: {line}")
        elif isinstance(line, Met):
            self._met(line, secret)
        else:
            self.asked += 1
            self.refused += line.refused is not None
            if self.asked % 10 == 0:
                self.latencies.append(line.answered - line.sent)
            if wrong := history.problem(line):
                self.problems.append(f"wrong: {wrong}")

    def _met(self, line: Met, secret: Secret) -> None:
        self.certificates[line.certificate] += 1
        since = secret.shown_from[line.certificate]
        newer = [at for at in secret.shown_from.values() if since < at < line.begun - NOTICED]
        if newer:
            late = line.begun - min(newer)
            self.problems.append(f"old certificate: shown {late:.1f} s after a newer one was there")


@contextlib.asynccontextmanager
async def loading(
    webhook: Webhook, ca: Path, seed: int
) -> AsyncIterator[asyncio.subprocess.Process]:
    counts = {"namespaces": NAMESPACES, "functions": FUNCTIONS, "regions": REGIONS}
    flags = [f"--{name}={value}" for name, value in counts.items()]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.faults.webhook_load", *flags),
        *(f"--port={webhook.port}", f"--ca={ca}", f"--seed={seed}", f"--measure={MEASURED}"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=REPOSITORY,
        env=clean_environment(),
        limit=2**20,
    )
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


@dataclass
class Run:
    """One soak.

    Attributes:
        rate: the most requests a second, measured first.
        sent: how many a second were sent then.
        resident: KiB of the webhook's memory, a second each.
    """

    mappings: Mappings
    secret: Secret
    history: History = field(default_factory=History)
    seen: Seen = field(default_factory=Seen)
    rate: float = 0.0
    sent: float = 0.0
    resident: list[int] = field(default_factory=list)

    async def judge(self, lines: asyncio.StreamReader) -> None:
        """Judges what the load writes down, until enough is wrong."""
        decoder = msgspec.json.Decoder(Line)
        async for line in lines:
            self.seen.note(decoder.decode(line), self.history, self.secret)
            if len(self.seen.problems) >= MOST_PROBLEMS:
                return

    async def go(self, webhook: Webhook, length: Soak) -> None:
        """Measures, then lets everything change."""
        ca = self.secret.path / "ca" / "ca.crt"
        async with loading(webhook, ca, length.seed) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            judging = asyncio.create_task(self.judge(process.stdout))
            self.rate = float(await asyncio.wait_for(process.stderr.readline(), 60))
            before, begun = self.seen.asked, time.monotonic()
            faults = [
                asyncio.create_task(self.mappings.churn(CHANGES)),
                asyncio.create_task(self.mappings.restart(RESTARTS)),
                asyncio.create_task(self.secret.rotate(ROTATIONS)),
            ]
            while time.monotonic() < begun + length.seconds and not judging.done():
                self.resident.append(resident_of(webhook))
                webhook.process.assert_running()
                assert not any(fault.done() for fault in faults)
                await asyncio.wait([judging], timeout=1)
            self.sent = (self.seen.asked - before) / (time.monotonic() - begun)
            for fault in faults:
                fault.cancel()
            await asyncio.gather(*faults, return_exceptions=True)
        await judging

    def report(self, lines: list[dict[str, object]]) -> str:
        """Checks what must hold of the run as a whole, and tells what it was."""
        seen, history = self.seen, self.history
        quarter = max(1, len(self.resident) // 4)
        after = statistics.median(self.resident[quarter : 2 * quarter]) / 1024
        end = statistics.median(self.resident[-quarter:]) / 1024
        errors = [line for line in lines if line["level"] in {"error", "critical"}]
        assert [line for line in errors if line["event"] not in OF_THE_MACHINE] == []
        told = sum(str(line["event"]).startswith("mappings are not kept") for line in lines)
        assert told <= TOLD * self.mappings.restarts
        recovered = self.mappings.recovered
        assert len(recovered) >= (self.mappings.restarts / 2 if STRICT else 1)
        assert 0 < seen.refused < seen.asked
        assert history.exact > (seen.asked / 5 if STRICT else 0)
        assert len(seen.certificates) > (self.secret.number / 3 if STRICT else 1)
        assert end < after + GROWTH, self.resident
        latencies = sorted(seen.latencies)
        median = 1000 * statistics.median(latencies)
        p99 = 1000 * latencies[len(latencies) * 99 // 100]
        return (
            f"{seen.asked} answers ({seen.refused} refusals), all right, {history.exact} of them"
            f" without an excuse; {self.sent:.0f}/s of at most {self.rate:.0f}/s;"
            f" {self.mappings.changes} changes of mappings, {self.mappings.restarts} outages, told"
            f" {told} times, watched again in {statistics.median(recovered):.2f} s"
            f" ({max(recovered):.2f} at worst); {self.secret.number} certificates,"
            f" {len(seen.certificates)} of them seen; median {median:.2f}, p99 {p99:.2f} ms;"
            f" {after:.1f} MiB resident after a quarter, {end:.1f} at the end"
        )


async def soaked(
    folder: Path, length: Soak, webhook_of: Callable[[Path, Path], Webhook]
) -> tuple[Run, Webhook]:
    chance = random.Random(length.seed)  # noqa: S311 - no secret
    secret = Secret(folder / "secret", chance)
    secret.path.mkdir()
    secret.renew()
    async with ApiServerStandIn(folder, Options(schedule=False)) as api:
        mappings = Mappings(api, History(NOTICED_CHANGES), chance)
        mappings.begin()
        run = Run(mappings, secret, mappings.history)
        webhook = webhook_of(api.kubeconfig_path, secret.path)
        await eventually_async(lambda: asyncio.to_thread(ready, webhook))
        await run.go(webhook, length)
    return run, webhook


def ready(webhook: Webhook) -> bool:
    return webhook.plain("/readyz").status == 200


def resident_of(webhook: Webhook) -> int:
    """KiB of memory."""
    status = Path(f"/proc/{webhook.process.pid}/status").read_text().splitlines()
    (resident,) = [int(line.split()[1]) for line in status if line.startswith("VmRSS")]
    return resident


@pytest.mark.long
@pytest.mark.timeout(0)
def test_no_answer_fails_or_is_wrong_while_everything_changes(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    length = soak(short=10, full=600)
    figure(f"seed {length.seed}")
    started: list[Webhook] = []

    def webhook_of(kubeconfig: Path, secret: Path) -> Webhook:
        pair = ("--tls-cert", secret / "tls.crt", "--tls-key", secret / "tls.key")
        folder = tmp_path / "webhook"
        folder.mkdir()
        flags = ("--kubeconfig", kubeconfig, "--log-level", "warning")
        started.append(start_webhook(folder, *pair, *flags, mappings=None))
        return started[-1]

    try:
        run, webhook = asyncio.run(soaked(tmp_path, length, webhook_of))
        assert run.seen.problems == [], "\n".join(run.seen.problems)
        figure(run.report([json.loads(line) for line in webhook.process.stderr.splitlines()]))
        assert webhook.process.terminate() == 0
    finally:
        for webhook in started:
            webhook.process.kill()


STATE = {"nlb-0": {"interfaceId": "ab" * 16, "afuId": "cd" * 16, "mode": "af"}}


def admitted(sent: float, answered: float) -> Asked:
    resource = "fpga.intel.com/af-aba.cdc.q6urq6urq6urq6urq6urq83Nzc3Nzc3Nzc3Nzc3Nzc0"
    given = ((resource, 2, ()),)
    return Asked(sent, answered, "ns0", FUNCTION, ("nlb-0",), (2,), None, given)


def test_the_judge_knows_a_right_answer_from_a_wrong_one() -> None:
    right = admitted(1, 2)
    assert follows(right, STATE)
    assert not follows(right, {})
    assert not follows(right, {"nlb-0": STATE["nlb-0"] | {"mode": "region"}})
    refused = Asked(1, 2, "ns0", FUNCTION, ("nlb-0",), (1,), ("nlb-0",))
    assert follows(refused, {})
    assert not follows(refused, STATE)


def test_the_judge_knows_what_was_valid_when() -> None:
    history = History()
    history.became(0, "ns0", FUNCTION, {})
    history.became(100, "ns0", FUNCTION, STATE)
    history.became(110, "ns0", FUNCTION, {})
    assert history.problem(admitted(98, 99))  # not yet
    assert history.problem(admitted(99, 101)) == ""
    assert history.problem(admitted(111, 112)) == ""  # within the lag
    assert history.problem(admitted(113, 114))  # too late
    history.went(110)
    assert history.problem(admitted(119, 119.1)) == ""  # it is away
    history.came(120)
    assert history.problem(admitted(121, 121.1)) == ""  # it was, a moment ago
    assert history.problem(admitted(130, 131))


def test_the_judge_knows_that_time_does_not_go_back() -> None:
    history = History()
    history.became(0, "ns0", FUNCTION, STATE)
    history.became(100, "ns0", FUNCTION, {})
    refused = Asked(100.1, 100.2, "ns0", FUNCTION, ("nlb-0",), (1,), ("nlb-0",))
    assert history.problem(refused) == ""
    assert history.problem(admitted(100.15, 100.25)) == ""  # under way at the same time
    assert "after a newer one was seen" in history.problem(admitted(100.3, 100.4))
