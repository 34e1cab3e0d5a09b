"""Sends bent AdmissionReviews to a running webhook and judges every answer.

    python -m tests.fuzz.admission --requests 100000 --seed 7
    python -m tests.fuzz.admission --seed 7 --show 4711      # the body of one case, on stdout

Every answer must be a review that echoes the uid (and not one of an internal error), or a 4xx with
a reason; each within a time limit, on connections that are kept. Some patches are applied and sent
again: a second pass must be empty. Memory is looked at after a warm-up and at the end.
"""

import argparse
import asyncio
import base64
import contextlib
import itertools
import json
import math
import ssl
import sys
import tempfile
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import jsonpatch
import jsonpointer

from tests.fuzz.mutations import Case, Seeds, make_case
from tests.webhook.reviews import mapping_yaml
from tests.webhook.running import Webhook, start_webhook

CONNECTIONS = 6
BATCH = 500
ANSWER_SECONDS = 120.0
WARM_UP = 0.2
"""Which part of a run passes before memory is looked at."""
SECOND_PASSES = 0.1
"""Which part of the patched reviews is sent again, patched."""
MAX_FAILURES = 10
MAPPINGS = {"m.yaml": mapping_yaml() + "---\n" + mapping_yaml("region-nlb0", mode="region")}


@dataclass
class Report:
    """What came out of a run."""

    seed: int
    latencies: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    second_passes: int = 0
    resident_before: int = 0
    resident_after: int = 0
    seconds: float = 0.0

    def fail(self, number: int, error: Exception) -> None:
        """Keeps what was wrong with a case, and how to have it again."""
        self.failures.append(f"--seed {self.seed} --show {number}: {error!r:.500}")

    @property
    def requests(self) -> int:
        """How many were answered."""
        return len(self.latencies)

    @property
    def growth(self) -> int:
        """Bytes by which the process has grown since the warm-up."""
        return self.resident_after - self.resident_before

    def latency(self, part: float) -> float:
        """The latency, in seconds, that a part of the requests stays below."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0

    def __str__(self) -> str:
        latencies = ", ".join(
            f"{name} {self.latency(part) * 1e3:.1f} ms"
            for name, part in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0))
        )
        outcomes = ", ".join(f"{number} {name}" for name, number in self.outcomes.most_common())
        return (
            f"fuzz --seed {self.seed}: {self.requests} requests in {self.seconds:.0f} s\n"
            f"  {outcomes}\n"
            f"  {latencies}; {self.second_passes} second passes\n"
            f"  resident {self.resident_before >> 10} KiB after the warm-up,"
            f" {self.resident_after >> 10} KiB at the end; {len(self.failures)} failures"
        )


class Wrong(Exception):
    """An answer that must not be."""


async def fuzz(webhook: Webhook, *, seed: int, requests: int, seconds: float = math.inf) -> Report:
    """Runs the fuzz against a webhook.

    Batch by batch: cases are made and answers judged while nothing is under way, so that the
    latencies are the webhook's and not ours.
    """
    report, seeds, begun = Report(seed), Seeds(), time.monotonic()
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(contextlib.closing(Client(webhook))) for _ in range(CONNECTIONS)
        ]
        for client in clients:
            await client.reconnect()
        for start in range(0, requests, BATCH):
            numbers = range(start, min(start + BATCH, requests))
            waiting = deque((number, make_case(seeds, seed, number)) for number in numbers)
            answered = await asyncio.gather(*(_send(client, waiting, report) for client in clients))
            for exchange in itertools.chain.from_iterable(answered):
                await _judge(exchange, clients[0], report)
            report.seconds = time.monotonic() - begun
            done = max((start + BATCH) / requests, report.seconds / seconds)
            if done >= WARM_UP and not report.resident_before:
                report.resident_before = resident(webhook.process.pid)
            if report.seconds > seconds or len(report.failures) >= MAX_FAILURES:
                break
        report.resident_after = resident(webhook.process.pid)
    return report


Exchange: TypeAlias = tuple[int, Case, int, bytes]


async def _send(
    client: "Client", waiting: "deque[tuple[int, Case]]", report: Report
) -> list[Exchange]:
    """Sends cases over one connection as long as there are any."""
    exchanges = []
    while waiting:
        number, case = waiting.popleft()
        begun = time.perf_counter()
        try:
            status, answer = await client.ask(case)
        except (Wrong, OSError, EOFError, TimeoutError, asyncio.LimitOverrunError) as error:
            report.fail(number, error)
            await client.reconnect()
        else:
            report.latencies.append(time.perf_counter() - begun)
            exchanges.append((number, case, status, answer))
    return exchanges


async def _judge(exchange: Exchange, client: "Client", report: Report) -> None:
    number, case, status, answer = exchange
    try:
        outcome, patch = judge(case, status, answer)
        report.outcomes[outcome] += 1
        if patch and number % int(1 / SECOND_PASSES) == 0:
            await _pass_again(client, case, patch)
            report.second_passes += 1
    except (Wrong, ValueError, LookupError, TypeError, RecursionError, OSError, EOFError) as error:
        report.fail(number, error)


def judge(case: Case, status: int, answer: bytes) -> tuple[str, list[dict[str, Any]]]:
    """What an answer says, and its patch."""
    if 400 <= status < 500:
        if json.loads(answer).get("kind") != "Status":
            raise Wrong(f"a {status} without a reason: {answer[:200]!r}")
        return str(status), []
    if status != 200:
        raise Wrong(f"status {status}: {answer[:200]!r}")
    review = json.loads(answer)
    response = review["response"]
    if (review["kind"], review["apiVersion"]) != ("AdmissionReview", "admission.k8s.io/v1"):
        raise Wrong(f"no review: {answer[:200]!r}")
    if not _echoes(case.body, response["uid"]):
        raise Wrong(f"another uid: {response['uid']!r:.100}")
    if response["allowed"] is True:
        patch = json.loads(base64.b64decode(response.get("patch", "W10="), validate=True))
        return ("patched" if patch else "allowed"), patch
    code = response["status"]["code"]
    if (
        response["allowed"] is not False
        or code not in {400, 403}
        or not response["status"]["message"]
    ):
        raise Wrong(f"denied without a reason, or for one of ours: {answer[:500]!r}")
    return f"denied {code}", []


def _echoes(body: bytes, uid: object) -> bool:
    """Whether a uid is that of a body, as another reader of JSON understands it.

    Where that one understands nothing (msgspec passes over what it doesn't need, bad text
    included) or isn't deep enough, the uid must at least stand in the body.
    """
    try:
        text = _flat(body).decode("utf-8", "replace").removeprefix("\ufeff")
        return bool(json.loads(text)["request"]["uid"] == uid)
    except (ValueError, TypeError, LookupError, RecursionError):
        return isinstance(uid, str) and uid.encode() in body


def _flat(body: bytes) -> bytes:
    """Without what Python's reader is not deep enough for; it never holds the uid."""
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        body = body.replace(opening * 900, b"").replace(closing * 900, b"")
    return body


async def _pass_again(client: "Client", case: Case, patch: list[dict[str, Any]]) -> None:
    """Applies a patch and sends the pod again: nothing may be left to do.

    A 400 is fine: only the second pass may need the part that is broken, and what JSON can't say
    (lone surrogates, numbers beyond all bounds) comes out of our own reader in another way.
    """
    try:
        review = json.loads(case.body)
    except (ValueError, RecursionError):
        return  # JSON for msgspec, which passes over what it doesn't need, but for nobody else
    try:
        review["request"]["object"] = jsonpatch.apply_patch(review["request"]["object"], patch)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
        raise Wrong(f"the patch can't be applied: {error}") from error
    second = Case(case.path, json.dumps(review).encode())
    outcome, patch = judge(second, *await client.ask(second))
    if outcome not in {"allowed", "denied 400", "400"} or patch:
        raise Wrong(f"the second pass is not empty: {outcome}, {patch!r:.300}")


class Client:
    """One kept connection over verified TLS."""

    def __init__(self, webhook: Webhook) -> None:
        self._webhook = webhook
        self._reader = asyncio.StreamReader()
        self._writer: asyncio.StreamWriter | None = None

    def close(self) -> None:
        """Ends the connection."""
        if self._writer is not None:
            self._writer.transport.abort()

    async def reconnect(self) -> None:
        """Connects anew."""
        self.close()
        tls: ssl.SSLContext = self._webhook.context()
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", self._webhook.port, ssl=tls, server_hostname="localhost"
        )

    async def ask(self, case: Case) -> tuple[int, bytes]:
        """Sends a case and reads the answer; the connection must outlive it."""
        async with asyncio.timeout(ANSWER_SECONDS):
            assert self._writer is not None
            self._writer.write(_request(case))
            await self._writer.drain()
            head = await self._reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            headers = dict(line.split(b": ", 1) for line in lines[1:] if line)
            if headers.get(b"connection") == b"close":
                raise Wrong("the connection is not kept")
            answer = await self._reader.readexactly(int(headers[b"content-length"]))
            return int(lines[0].split(b" ")[1]), answer


def _request(case: Case) -> bytes:
    headers = [("Host", "webhook"), *case.headers]
    content = case.body
    if case.chunked:
        headers.append(("Transfer-Encoding", "chunked"))
        pieces = [content[at : at + 5000] for at in range(0, len(content), 5000)]
        content = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    else:
        headers.append(("Content-Length", str(len(content))))
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"POST {case.path}?timeout=10s HTTP/1.1\r\n{lines}\r\n".encode() + content


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (kilobytes,) = [int(line.split()[1]) for line in lines if line.startswith("VmRSS")]
    return kilobytes * 1024


def main() -> int:
    """The command line; 1 if an answer was wrong."""
    parser = argparse.ArgumentParser(description="Fuzzes a webhook that it starts.")
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, metavar="NUMBER", help="print the body of one case")
    arguments = parser.parse_args()
    if arguments.show is not None:
        case = make_case(Seeds(), arguments.seed, arguments.show)
        sys.stderr.write(f"{case.path} {case.headers} chunked={case.chunked}\n")
        sys.stdout.buffer.write(case.body)
        return 0
    with tempfile.TemporaryDirectory(prefix="ab-fuzz-") as folder:
        webhook = start_webhook(Path(folder), "--log-level", "warning", mappings=MAPPINGS)
        with webhook.process:
            report = asyncio.run(fuzz(webhook, seed=arguments.seed, requests=arguments.requests))
    print("\n".join([str(report), *report.failures]))  # noqa: T201 - its job
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
