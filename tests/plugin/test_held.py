"""What waits until nobody has a port: another function, and the clearing of errors."""

import pytest

from services.names import function_name
from simulator.cards import A10_INTERFACE, NLB0, NLB3, CardSpec
from tests.plugin.support import AF, Bed, container, serving

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("soon")]

OTHER = f"fpga.intel.com/{function_name(A10_INTERFACE, NLB3)}"


@pytest.mark.parametrize("init", [False, True])
async def test_a_held_port_is_unhealthy_as_another_function_until_its_pod_ends(
    bed: Bed, *, init: bool
) -> None:
    card = bed.rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    holder, other = container("c", AF), container("d", "example.com/none", 0)
    async with bed.running() as plugin:
        await bed.offers(1)
        state = await (bed.start("p", other, init=[holder]) if init else bed.start("p", holder))
        bed.rack.set_afu(card, NLB3)
        await bed.kubelet.until(lambda: bed.kubelet.capacity.get(OTHER) == 1)
        (device,) = serving(plugin).node.state.advertised.resources[OTHER].values()
        assert [each.code for each in device.reasons] == ["held-as-other-resource"]
        assert bed.kubelet.allocatable[OTHER] == 0
        await bed.kubelet.delete_pod(state)
        await bed.offers(1, OTHER)


async def test_a_restarted_plugin_and_kubelet_know_a_held_port(bed: Bed) -> None:
    card = bed.rack.add_card(CardSpec(driver="dfl", afu_ids=(NLB0,)))
    async with bed.running():
        await bed.offers(1)
        await bed.start("p", container("c", AF))
    bed.rack.set_afu(card, NLB3)
    await bed.kubelet.restart()
    async with bed.running() as plugin:
        await bed.kubelet.until(lambda: bed.kubelet.capacity.get(OTHER) == 1)
        assert bed.kubelet.allocatable[OTHER] == 0
        assert serving(plugin).source.holders.keys() == {(AF, "dfl-port.0")}
