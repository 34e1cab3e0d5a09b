"""The life of a claim on a node: one test a fact, with an API server and a driver."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from services.kube.client import ClusterClient
from services.kube.config import load_config
from simulator.apiserver.resources import Json
from simulator.apiserver.standin import ApiServerStandIn
from simulator.kubelet.pods import PodState
from simulator.kubelet.standin import KubeletStandIn
from tests.simulator.kubelet.conftest import RETRY_SECONDS
from tests.simulator.kubelet.fake_driver import DRIVER, KIND, FakeDriver
from tests.support import eventually_async

pytestmark = pytest.mark.anyio
UID = "0f1c8c5e-claim"


@dataclass(slots=True)
class Bed:
    """An API server with a claim, a kubelet, a driver."""

    api: ApiServerStandIn
    kubelet: KubeletStandIn
    driver: FakeDriver

    async def started(self, **spec: object) -> PodState:
        """Admit the pod that the claim is for, and wait until it runs."""
        state = await self.kubelet.admit(pod(**spec))
        await self.kubelet.until(lambda: state["main"].running)
        return state

    def checkpoint(self) -> Json:
        content = json.loads((self.kubelet.folder / "dra_manager_state").read_bytes())
        data: Json = json.loads(content["Data"])
        return data

    def slices(self) -> list[str]:
        return [each["spec"]["driver"] for each in self.api.objects("ResourceSlice")]


def pod(**spec: object) -> Json:
    container: Json = {
        "name": "main",
        "resources": {"claims": [{"name": "own", "request": "fpga"}]},
    }
    container |= {"lifecycle": spec.pop("lifecycle", {})}
    uses = [{"name": "own", "resourceClaimName": "c"}]
    whole = {"containers": [container], "resourceClaims": uses} | spec
    return {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "spec": whole}


def claim() -> Json:
    result = {"request": "fpga", "driver": DRIVER, "pool": "n1", "device": "d0"}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
    }
    metadata = {"name": "c", "uid": UID}
    return {"kind": "ResourceClaim", "metadata": metadata, "spec": {"devices": {}}} | {
        "status": status
    }


def slice_of(driver: str) -> Json:
    spec = {"driver": driver, "nodeName": "n1", "pool": {"name": "n1"}}
    return {"kind": "ResourceSlice", "metadata": {"name": driver}, "spec": spec}


@pytest.fixture
async def bed(short_dir: Path, tmp_path: Path) -> AsyncIterator[Bed]:
    kubelet = KubeletStandIn(short_dir, node_name="n1", retry_seconds=RETRY_SECONDS)
    kubelet.claims.wipe_seconds = 0.5
    async with ApiServerStandIn(tmp_path) as api:
        config = load_config(api.kubeconfig_path)
        assert config is not None
        async with ClusterClient(config) as client, kubelet:
            metadata = {"name": "p", "uid": "u"}
            api.put({"kind": "Pod", "metadata": metadata, "spec": {}, "status": {}})
            api.put(claim())
            kubelet.claims.connect(client)
            async with FakeDriver(short_dir) as driver:
                await eventually_async(lambda: "registered True" in driver.calls)
                yield Bed(api, kubelet, driver)


async def test_a_claim_is_prepared_before_its_container_and_unprepared_after_it(bed: Bed) -> None:
    state = await bed.started()
    assert state["main"].environment == {"CLAIM": UID}
    assert state["main"].granted.cdi_devices == (f"{KIND}={UID}",)
    (entry,) = bed.checkpoint()["ClaimInfoStateList"]
    assert entry["DriverState"][DRIVER]["Devices"][0]["CDIDeviceIDs"] == [f"{KIND}={UID}"]
    bed.api.drop("ResourceClaim", "c")
    await bed.kubelet.delete_pod(state)
    assert bed.driver.calls == ["GetInfo", "registered True", "prepare", "unprepare"]
    assert bed.checkpoint()["ClaimInfoStateList"] == []


async def test_an_error_is_an_event_and_the_call_is_repeated(bed: Bed) -> None:
    bed.driver.error = "no bitstream"
    state = await bed.kubelet.admit(pod())
    await bed.kubelet.until(lambda: bed.driver.calls.count("prepare") > 1)
    (event,) = (e for e in bed.kubelet.events if e.reason == "FailedPrepareDynamicResources")
    assert event.message.endswith("failed for ResourceClaim c: no bitstream")
    bed.driver.error = ""
    await bed.kubelet.until(lambda: state["main"].running)


async def test_only_a_new_sandbox_prepares_again(bed: Bed) -> None:
    state = await bed.started()
    await bed.kubelet.restart_container(state, "main")
    await bed.kubelet.restart()
    assert bed.driver.calls.count("prepare") == 1
    await bed.kubelet.reboot()
    await bed.kubelet.until(lambda: state["main"].running)
    assert bed.driver.calls.count("prepare") == 2
    devices = bed.checkpoint()["ClaimInfoStateList"][0]["DriverState"][DRIVER]["Devices"]
    assert len(devices) == 2, "the real kubelet has them twice too"


async def test_a_device_that_no_cdi_file_describes_starts_nothing(bed: Bed) -> None:
    state = await bed.started()
    (bed.kubelet.folder / "cdi" / f"{UID}.json").unlink()
    await bed.kubelet.restart_container(state, "main")
    assert "unresolvable CDI devices" in state["main"].message


async def test_slices_go_when_a_kubelet_starts_and_when_a_driver_stays_away(bed: Bed) -> None:
    bed.api.put(slice_of("other"))
    await bed.kubelet.restart()
    await eventually_async(lambda: not bed.slices())
    await eventually_async(lambda: bed.driver.calls.count("registered True") == 2)
    bed.api.put(slice_of(DRIVER))
    bed.api.put(slice_of("other"))
    await bed.driver.stop()
    await eventually_async(lambda: bed.slices() == ["other"])


async def test_health_is_in_the_status_of_containers_that_name_a_claim(bed: Bed) -> None:
    state = await bed.started()
    resource = {"resourceID": f"{KIND}={UID}", "health": "Healthy"}

    def shown() -> Json:
        (status,) = bed.kubelet.claims.statuses(state.spec, state["main"].spec)
        assert status["name"] == "claim:own/fpga"
        (found,) = status["resources"]
        return dict(found)

    await bed.kubelet.until(lambda: shown() == resource)
    bed.driver.turn(healthy=False)
    sick = resource | {"health": "Unhealthy", "message": "temperature 99 C"}
    await bed.kubelet.until(lambda: shown() == sick)


async def test_a_pod_ends_after_its_hook_and_once_its_claims_are_unprepared(bed: Bed) -> None:
    state = await bed.started(lifecycle={"preStop": {"sleep": {"seconds": 0.2}}})
    bed.driver.error = "not yet"
    bed.driver.calls.clear()
    task = asyncio.create_task(bed.kubelet.delete_pod(state))
    await eventually_async(lambda: bed.driver.calls == ["unprepare"])
    assert len(bed.kubelet.pods) == 1, "it waits"
    bed.driver.error = ""
    await task
    assert not bed.kubelet.pods
