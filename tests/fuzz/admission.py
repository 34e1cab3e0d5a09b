"""Sends bent AdmissionReviews to a running webhook and judges every answer.

    python -m tests.fuzz.admission SEED NUMBER      # the body of one case, on stdout

Every answer must be a review that echoes the uid (and not one of an internal error), or a 4xx with
a reason; each within a time limit, on connections that are kept. Memory is measured after a warm-up
and at the end.
"""

import asyncio
import base64
import contextlib
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from tests.fuzz.mutations import Case, make_case
from tests.fuzz.report import Report
from tests.webhook.reviews import mapping_yaml
from tests.webhook.running import Webhook

CONNECTIONS = 6
BATCH = 500
ANSWER_SECONDS = 120.0
WARM_UP = 0.2
"""Which part of a run passes before memory is looked at."""
MAPPINGS = {"m.yaml": mapping_yaml() + "---\n" + mapping_yaml("region-nlb0", mode="region")}


class Wrong(Exception):
    """An answer that must not be."""


async def fuzz(webhook: Webhook, *, seed: int, requests: int, seconds: float) -> Report:
    """Run the fuzz; `memory_mib` is by how much the webhook has grown since the warm-up."""
    report, begun, before = Report("tests.fuzz.admission", seed), time.monotonic(), 0.0
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(contextlib.closing(Client(webhook))) for _ in range(CONNECTIONS)
        ]
        for client in clients:
            await client.reconnect()
        for start in range(0, requests, BATCH):
            numbers = iter(range(start, min(start + BATCH, requests)))
            await asyncio.gather(*(_send(client, numbers, report) for client in clients))
            report.seconds = time.monotonic() - begun
            if not before and max(report.inputs / requests, report.seconds / seconds) >= WARM_UP:
                before = resident_mib(webhook.process.pid)
            if report.seconds > seconds or report.is_enough:
                break
    report.memory_mib = resident_mib(webhook.process.pid) - before
    return report


async def _send(client: "Client", numbers: Iterable[int], report: Report) -> None:
    """Send cases over one connection as long as there are any, and judge the answers."""
    for number in numbers:
        case, begun = make_case(report.seed, number), time.monotonic()
        report.inputs += 1
        try:
            answer = await client.ask(case)
            report.slowest = max(report.slowest, time.monotonic() - begun)
            report.outcomes[judge(case, *answer)] += 1
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            report.fail(number, error)
            await client.reconnect()


def judge(case: Case, status: int, answer: bytes) -> str:
    """What an answer says."""
    if 400 <= status < 500:
        if json.loads(answer).get("kind") != "Status":
            raise Wrong(f"a {status} without a reason: {answer[:200]!r}")
        return str(status)
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
        return "patched" if patch else "allowed"
    code = response["status"]["code"]
    if (
        response["allowed"] is not False
        or code not in {400, 403}
        or not response["status"]["message"]
    ):
        raise Wrong(f"denied without a reason, or for one of ours: {answer[:500]!r}")
    return f"denied {code}"


def _echoes(body: bytes, uid: object) -> bool:
    """Whether a uid is that of a body, as another reader of JSON understands it.

    Where that one understands nothing (msgspec passes over what it doesn't need, bad text
    included) or isn't deep enough, the uid must at least stand in the body.
    """
    try:
        text = body.decode("utf-8", "replace").removeprefix("\ufeff")
        return bool(json.loads(text)["request"]["uid"] == uid)
    except (ValueError, TypeError, LookupError, RecursionError):
        return isinstance(uid, str) and uid.encode() in body


class Client:
    """One kept connection over verified TLS."""

    def __init__(self, webhook: Webhook) -> None:
        self._webhook = webhook
        self._reader = asyncio.StreamReader()
        self._writer: asyncio.StreamWriter | None = None

    def close(self) -> None:
        """End the connection."""
        if self._writer is not None:
            self._writer.transport.abort()

    async def reconnect(self) -> None:
        """Connect anew."""
        self.close()
        self._reader, self._writer = await asyncio.open_connection(
            "localhost", self._webhook.port, ssl=self._webhook.context()
        )

    async def ask(self, case: Case) -> tuple[int, bytes]:
        """Send a case and read the answer; the connection must outlive that to a whole request."""
        async with asyncio.timeout(ANSWER_SECONDS):
            assert self._writer is not None
            self._writer.write(_request(case))
            await self._writer.drain()
            head = await self._reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            headers = dict(line.split(b": ", 1) for line in lines[1:] if line)
            answer = await self._reader.readexactly(int(headers[b"content-length"]))
            status = int(lines[0].split(b" ")[1])
            if headers.get(b"connection") == b"close":
                if status not in (413, 415):  # they may come before the request's end
                    raise Wrong("the connection is not kept")
                await self.reconnect()
            return status, answer


def _request(case: Case) -> bytes:
    headers = [("Host", "webhook"), *case.headers]
    headers.append(("Content-Length", str(len(case.body))))
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"POST {case.path}?timeout=10s HTTP/1.1\r\n{lines}\r\n".encode() + case.body


def resident_mib(pid: int) -> float:
    """MiB of memory that a process has."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (kilobytes,) = [int(line.split()[1]) for line in lines if line.startswith("VmRSS")]
    return kilobytes / 1024


if __name__ == "__main__":
    sys.stdout.buffer.write(make_case(int(sys.argv[1]), int(sys.argv[2])).body)
