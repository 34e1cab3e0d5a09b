"""The functions of an OFS card in a plugin, from vfio-pci to a container and its restart."""

import pytest

from services.devices.model import PluginMode
from services.names import DOMAIN, function_name
from tests.plugin.support import Bed, container, serving
from tests.services.ofs_cards import HE_MEM, INTERFACE, OfsNode
from tests.support import eventually_async

pytestmark = pytest.mark.usefixtures("soon")

FIRST = "0000:b1:00.5"
MEM = f"{DOMAIN}/{function_name(INTERFACE, HE_MEM)}"


async def test_a_container_starts_again_after_a_restart_of_the_plugin(bed: Bed) -> None:
    node = OfsNode(bed.folder / "root")
    node.add_card(functions=2)
    node.bind(FIRST, HE_MEM)
    async with bed.running(PluginMode.AF, enforce_mappings="never"):
        await bed.offers(1, MEM)
        state = await bed.start("p", container("c", MEM, 1))
        given = state["c"].granted
        paths = [each.container_path for each in given.devices]
        assert paths == ["/dev/vfio/1770", "/dev/vfio/vfio"]
        assert FIRST in dict(given.env).values()
        await bed.restart(state)
    (node.folder(FIRST) / "resource0").unlink()  # it is not read while a container has it
    async with bed.running(PluginMode.AF, enforce_mappings="never") as plugin:
        await eventually_async(lambda: bool([*serving(plugin).node.state.ledger.offer.devices()]))
        (device,) = serving(plugin).node.state.ledger.offer.devices()
        assert (device.resource, device.healthy) == (MEM, False)
        assert [each.code for each in device.reasons] == ["function-in-use"]
        await bed.offers(0, MEM)
        await bed.restart(state)
        await bed.kubelet.delete_pod(state)
        node.write_bar(FIRST, HE_MEM)
        await bed.offers(1, MEM)
