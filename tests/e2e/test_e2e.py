"""The end-to-end suite against the simulator, as `make e2e` would run it."""

import asyncio
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simulator.cards import NLB3, CardSpec, Rack
from tests.e2e.api import Api, Place
from tests.e2e.cluster import offered
from tests.e2e.dra import NOT_ALLOCATED
from tests.e2e.simulator import NODE, Simulator, simulated
from tests.making import in_the_environment_of_make, make_command
from tests.manifests.rendering import rendered
from tests.manifests.running import certs, cluster, plugin, webhook
from tests.support import Processes, eventually_async, python_module, soaking

pytestmark = pytest.mark.timeout(1800)

LOOKED_AT = (
    Place("v1", "Namespace"),
    Place("v1", "Pod"),
    Place("v1", "Secret"),
    Place("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    Place("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"),
    Place("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
)


NOT_SIMULATED = {
    NOT_ALLOCATED,
    "the simulator has no pod proxy",
}
"""Why some of the suite needs a real cluster."""


@pytest.fixture(scope="module")
def stands_in() -> Iterator[Simulator]:
    with simulated() as made:
        yield made


def seen(stands_in: Simulator) -> dict[str, Any]:
    """What a run could leave: in the API, on the node, among files."""
    with Api(stands_in.api_server) as api:
        found: dict[str, Any] = {
            place.kind: [item["metadata"]["name"] for item in api.list(place)]
            for place in LOOKED_AT
        }
        found["offered"] = offered(api.get(Place("v1", "Node"), NODE))
    root, sockets = stands_in.folder / "r", stands_in.folder / "k" / "device-plugins"
    found["cards"] = sorted(root.iterdir()) if root.exists() else []
    found["sockets"] = sorted(sockets.glob("accelbind*"))
    return found


@pytest.mark.long
def test_the_suite_passes_and_leaves_nothing(stands_in: Simulator, processes: Processes) -> None:
    before = seen(stands_in)
    settings = [f"{name}={value}" for name, value in stands_in.environment().items()]
    for _ in range(2 if soaking() else 1):  # twice in a row: nothing was left in its way
        process = processes.start(
            make_command("e2e", *settings), env=in_the_environment_of_make(), name="e2e"
        )
        assert process.wait(1300) == 0, process.transcript()
        skipped = re.findall(r"^SKIPPED \[\d+\] \S+: (.*)$", process.stdout, re.MULTILINE)
        assert {*skipped} <= NOT_SIMULATED
        assert seen(stands_in) == before


def test_an_interrupted_run_leaves_nothing(stands_in: Simulator, processes: Processes) -> None:
    before = seen(stands_in)
    # a `make test PYTEST_ARGS=…` around us hands its own arguments down
    env = stands_in.environment() | {"PYTEST_ARGS": ""}
    command = python_module("tests.e2e", "-k", "gets_one_device or modes")
    process = processes.start(command, env=env, name="e2e")
    process.wait_for_output("gets_one_device", timeout=300)
    process.popen.send_signal(signal.SIGINT)
    process.popen.send_signal(signal.SIGTERM)  # who is impatient breaks nothing off
    # Python itself ends by the signal if it arrived in an `exec`, as dataclasses call it on import.
    assert process.wait(300) in (2, -signal.SIGINT), process.transcript()
    assert seen(stands_in) == before


async def test_the_deployed_suite_is_tested_too(
    short_dir: Path, tmp_path: Path, processes: Processes
) -> None:
    """The manifests' objects, with processes in the place of their pods."""
    Rack(short_dir / "root").add_card(CardSpec(afu_ids=(NLB3,)))
    ready = short_dir / "ready"
    async with cluster(tmp_path) as (api, services):
        for item in rendered("crd"):
            api.put(item)
        kubelet = ("--dir", short_dir / "k", "--node-name", "n1", "--ready-file", ready)
        api_server = ("--api-server", api.address)
        processes.start(python_module("simulator.kubelet", *kubelet, *api_server), name="kubelet")
        plugin(processes, short_dir, api)
        certs(processes, api.address)
        await webhook(processes, api, tmp_path, services)
        await eventually_async(
            lambda: offered(api.get("Node", "n1", "") or {}), timeout=120, what="a node's offer"
        )
        before = [each["metadata"]["name"] for each in api.objects("Namespace")]
        process = processes.start(
            make_command("e2e", f"API_SERVER={api.address}"),
            env=in_the_environment_of_make(PATIENCE="120"),
            name="e2e",
        )
        assert await asyncio.to_thread(process.wait, 400) == 0, process.transcript()
        assert "test_a_container_gets_one_device_and_its_address PASSED" in process.stdout
        assert "doesn't offer the samples' function" in process.stdout, (
            "what can't be tried is told"
        )
        assert "HOST_PROCESSES=1 tries this" in process.stdout
        assert [each["metadata"]["name"] for each in api.objects("Namespace")] == before
