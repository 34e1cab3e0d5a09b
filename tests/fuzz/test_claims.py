"""Hostile claims against the driver; `make soak` has it refuse 100 000 of them."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from plugin.dra.book import ClaimBook
from plugin.dra.claims import FROM_CLAIM
from plugin.dra.driver import MAX_ERROR, ClaimService
from plugin.dra.metrics import DraMetrics
from services.containers.permission import Enforce
from services.containers.pod_source import ApiServerPods
from services.kubelet import dra_pb2 as pb
from services.mappings.index import NamespaceMappings, build_index
from services.mappings.model import parse
from simulator.cards import NLB3
from tests.fuzz.claims import make_claim
from tests.plugin.dra.support import Known, claim, config, mapping, preparation, region, result
from tests.plugin.dra.test_wants import DEVICES, OTHER
from tests.support import soak, soaking

NUMBER = 100_000 if soaking() else 200
SHOWN = 10
MOST_SECONDS = 2.0
"""Of the processor, for the answer to one claim."""

ELSEWHERE = mapping("elsewhere")
ELSEWHERE["spec"]["interfaceId"] = OTHER
THEIRS = mapping("theirs")
THEIRS["metadata"]["namespace"] = "other"
MAPPINGS = build_index(
    map(
        parse,
        (
            mapping("nlb0"),
            mapping("nlb3", NLB3),
            region("clash"),
            mapping("clash"),
            ELSEWHERE,
            THEIRS,
        ),
    )
)


class Api(ApiServerPods):
    """Answers with one claim."""

    def __init__(self) -> None:
        self.claim = b""

    async def get_claim(self, namespace: str, name: str) -> bytes | None:
        assert (namespace, name) == ("ns", "c")
        return self.claim

    async def get_pod(self, namespace: str, name: str) -> bytes | None:
        raise AssertionError(f"no claim is for pod {namespace}/{name}")

    async def mappings(self, namespace: str) -> NamespaceMappings:
        return MAPPINGS.namespace(namespace)


class Untouched:
    """Regions and CDI files that nobody may touch: an ioctl would begin here."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} is called for a claim that is to be refused")


UNTOUCHED: Any = Untouched()


class Node:
    """A driver whose API server has hostile claims."""

    def __init__(self, folder: Path) -> None:
        self.api = Api()
        self.book = ClaimBook(folder / "claims")
        prepares = preparation(
            self.book, UNTOUCHED, UNTOUCHED, self.api, devices=DEVICES, enforce=Enforce.ALWAYS
        )
        metrics = DraMetrics(CollectorRegistry())
        self.driver = ClaimService(prepares, Known(DEVICES), self.book, pool="n1", metrics=metrics)

    async def prepare(self, claim: bytes) -> pb.NodePrepareResourceResponse:
        self.api.claim = claim
        message = pb.Claim(namespace="ns", name="c", uid="uid-of-c")
        request = pb.NodePrepareResourcesRequest(claims=[message])
        answer = await self.driver.NodePrepareResources(request, NO_CONTEXT)
        return pb.NodePrepareResourcesResponse.FromString(answer.SerializeToString()).claims[
            message.uid
        ]

    async def refuse(self, claim: bytes) -> float:
        """Have a claim prepared, which must be refused with a reason; return seconds of work."""
        begin = time.process_time()
        answer = await self.prepare(claim)
        seconds = time.process_time() - begin
        assert answer.error, claim[:500]
        assert not answer.error.startswith("internal error"), answer.error
        assert len(answer.error) <= MAX_ERROR
        assert not answer.devices
        assert self.book.entries() == ()
        return seconds


NO_CONTEXT: Any = None


async def refuse_all(node: Node, seed: int, numbers: Sequence[int]) -> tuple[float, list[str]]:
    """The longest time of one, and what was not refused as it should be."""
    longest, failures = 0.0, list[str]()
    for number in numbers:
        try:
            with capture_logs():
                longest = max(longest, await node.refuse(make_claim(seed, number)))
        except AssertionError as error:
            failures.append(f"make_claim({seed}, {number}): {error!r:.500}")
    return longest, failures


def test_the_same_claim_reaches_the_region_if_it_is_allowed(short_dir: Path) -> None:
    allowed = claim("c", result("a"), configs=(config({"mapping": "nlb0"}, FROM_CLAIM),))
    with capture_logs():
        answer = asyncio.run(Node(short_dir).prepare(json.dumps(allowed).encode()))
    assert "read is called" in answer.error


@pytest.mark.long
@pytest.mark.timeout(0)
def test_every_hostile_claim_is_refused_with_a_reason(
    short_dir: Path, figure: Callable[[str], None]
) -> None:
    seed = soak(short=0, full=0).seed
    longest, failures = asyncio.run(refuse_all(Node(short_dir), seed, range(NUMBER)))
    figure(f"seed {seed}: {NUMBER} refused, {1000 * longest:.1f} ms of CPU at most")
    assert failures[:SHOWN] == []
    assert longest < MOST_SECONDS
