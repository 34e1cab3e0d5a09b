"""What the driver asks an API server for is what its account may ask for."""

from functools import partial

from prometheus_client import generate_latest

from plugin.dra.slices import Slice, slice_spec
from simulator.cards import NLB0, NLB3
from simulator.driver import DriverStandIn
from tests.manifests.rendering import rendered, workloads
from tests.manifests.rights import asked, beyond, idle, rights_of
from tests.plugin.dra.support import Bed, extended_claim, mapping, result, with_claim
from tests.plugin.support import container, functions, pod
from tests.services.building import REGION
from tests.support import eventually_async

STALE = Slice("n1-accelbind.dev-9", generation=1, count=1, devices=[])
"""Of a driver that had more devices."""


def published(bed: Bed, afu: str) -> bool:
    return [each["attributes"]["afuID"]["string"] for each in bed.published.values()] == [afu]


async def test_the_driver_asks_for_what_its_account_may_and_for_all_of_it(
    bed: Bed, driver: DriverStandIn
) -> None:
    """For a pod of mode region, whose function is programmed once."""
    items = rendered("overlays/dra")
    rights = rights_of(items, workloads(items)["accelbind-plugin"]["serviceAccountName"])
    device = result(bed.add_fpga(), "container-0-request-0")
    bed.install(NLB3)
    stale = {"kind": "ResourceSlice", "metadata": {"name": STALE.name}}
    bed.api.put(stale | {"spec": slice_spec("n1", STALE)})
    async with bed.running(enforce_mappings="auto") as dra:
        await bed.register()
        await eventually_async(partial(published, bed, NLB0))
        owner = pod("p", container("c", REGION, 1, functions(NLB3)))
        bed.api.put(with_claim(owner, ("container-0-request-0", "c", REGION)))
        assert "maps that" in await bed.refused(extended_claim(owner, device))
        bed.api.put(mapping("nlb3", NLB3))
        for _ in range(2):  # the second time as after a restart of the kubelet
            await bed.ready(extended_claim(owner, device))
        assert [each.afu_id for each in driver.programmed] == [NLB3]
        shown = generate_latest(dra.process.registry).decode()
        assert 'accelbind_device_holder{claim="p-extended-resources"' in shown
        await eventually_async(partial(published, bed, NLB3))
        await eventually_async(lambda: not idle(rights, asked(bed.api)), what="all in use")
        assert beyond(rights, asked(bed.api)) == set()
