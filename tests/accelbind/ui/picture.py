"""Make the picture of `accelbind ui` for the docs: `python -m tests.accelbind.ui.picture FILE`."""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from simulator.apiserver.http_server import Request, Response
from simulator.apiserver.standin import ApiServerStandIn
from tests.accelbind.doctor.answers import Json
from tests.accelbind.test_fleet import device, process_on, table
from tests.accelbind.ui import scene
from tests.simulator.apiserver.support import PHYSICAL, node_with
from tests.support import Processes

NODES = 24
REGION = "fpga.intel.com/region-ce48969398f05f33946d560708be108a"
GPU = "device.accelbind.dev/npu"


def answer(request: Request) -> Response:
    """Four devices per node; some are used, one is broken, one node does not answer."""
    number = int(request.path.partition(":9102")[0].rpartition("-")[2])
    if number == 17:
        return Response(503, json.dumps({"kind": "Status", "message": "refused"}).encode())
    resource = (PHYSICAL, REGION, GPU)[number % 3]
    devices: list[Json] = []
    for each in range(4):
        used = (number * 7 + each * 3) % 5 < 2
        holder = {"namespace": "team-a", "pod": "p", "container": "c", "claim": ""}
        health = "Unhealthy" if (number, each) == (6, 3) else "Healthy"
        holders = [holder] if used else []
        devices.append(device(f"d{each}", health, holders=holders) | {"resource": resource})
    mode = ("af", "region", "none")[number % 3]
    told = table(f"worker-{number}", *devices, processVersion="0.1.0")
    return Response(200, json.dumps(told | {"mode": mode}).encode())


async def main(path: str) -> None:
    """Start the stand-in and the page, and write the picture."""
    with tempfile.TemporaryDirectory(prefix="ab-") as folder:
        processes = Processes(Path(folder))
        async with ApiServerStandIn(Path(folder)) as api:
            for number in range(NODES):
                made = process_on(f"worker-{number}")
                pool = ("fpga-af", "fpga-region", "others")[number % 3]
                made["metadata"]["ownerReferences"][0]["name"] = pool
                api.put(made)
                api.put(node_with(f"worker-{number}", {PHYSICAL: "1"}))
            with api.faults.answering(answer, matches=lambda request: "/proxy/" in request.path):
                async with scene.opened(api, processes) as shown:
                    page = await shown.page(1120, device_scale_factor=1.5)
                    await page.set_viewport_size({"width": 1120, "height": 640})
                    await page.screenshot(path=path)
        assert not [*processes.close()]


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
