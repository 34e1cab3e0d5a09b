"""`accelbind demo --device-types DIR --root TREE`: a pod for each resource of device types."""

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path

from services.devices.hardware.sysfs import Sysfs
from services.devices.model import PluginMode
from services.devices.types.discover import SysTree
from services.devices.types.load import load_types
from services.devices.types.misses import find_misses
from services.devices.types.provider import DeviceTypes
from services.names import DEVICE_DOMAIN
from services.node.ledger import Ledger, Rules, step
from services.node.ledger import World as Reading
from services.process.blocking import BlockingCalls
from services.process.errors import InvalidSettings
from services.process.text import plain
from simulator.client import Json
from simulator.demo.cluster import DemoPod, NodePlan, World, mappings_folder
from simulator.demo.own import OwnPods

_NODE = "node-types"


def read(types: Path, root: Path) -> OwnPods:
    """Plan a node that serves a folder of device types from a tree of `sys` and `dev`.

    Raises:
        ExternalFailure: The folder can't be read.
        InvalidSettings: No type has a device in the tree.
    """
    domains = (DEVICE_DOMAIN,)
    loaded = load_types(types, domains=domains)
    found = asyncio.run(DeviceTypes(types, root, BlockingCalls(), domains=domains).read(()))
    offer = step(Ledger(Rules(PluginMode.NONE)), Reading(holders={}, types=found), 0).offer
    problems = [
        *(each.text for each in found.problems),
        *find_misses(SysTree(Sysfs(root)), loaded.types),
        *(
            f"{each.id} of device type {each.type}: {reason.text}"
            for each in (*offer.devices(), *offer.not_offered)
            for reason in each.reasons
        ),
    ]
    if not offer.resources:
        raise InvalidSettings("; ".join([f"no device type has a device below {root}", *problems]))
    plan = NodePlan(
        name=_NODE,
        mode=str(PluginMode.NONE),
        driver="",
        cards=(),
        capacity={name: len(devices) for name, devices in offer.resources.items()},
        types=types.resolve(),
        root=root.resolve(),
    )
    pods = tuple(_pods(offer.resources))
    return OwnPods(World((plan,), (), mappings_folder(), pods), tuple(map(plain, problems)))


def _pods(resources: Iterable[str]) -> Iterator[DemoPod]:
    for resource in resources:
        name = resource.partition("/")[2].lower().replace("_", "-").replace(".", "-")
        container: Json = {
            "name": "work",
            "image": "registry.example/work:1",
            "resources": {"limits": {resource: 1}},
        }
        pod: Json = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": [container]},
        }
        yield DemoPod(f"A pod that requests {resource}", pod, shows_variables=True)
