"""A cluster of an API server stand-in with nodes that answer, and a page of it in Chromium."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from playwright.async_api import Browser, Page, async_playwright, expect

from accelbind.dra.objects import CLAIMS
from simulator.apiserver.http_server import Request, Response
from simulator.apiserver.standin import ApiServerStandIn
from tests.accelbind.devices.test_fleet import HELD, device, is_of_processes, process_on, table
from tests.accelbind.doctor.answers import Json
from tests.simulator.apiserver.support import PHYSICAL, function, node_with, pod
from tests.support import Process, Processes, eventually_async, require

MARKUP = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"
BROKEN, AWAY = "worker-1", "worker-2"


expect.set_options(timeout=60_000)


class Scene:
    """The running command and the browser."""

    def __init__(self, command: Process, browser: Browser) -> None:
        self.command = command
        self.browser = browser
        self.address = command.stdout.split()[0]
        """With the token."""

    @property
    def site(self) -> str:
        """The address without what is behind `#`."""
        return self.address.partition("#")[0]

    async def page(self, width: int = 1280, **more: Any) -> Page:
        """A page that has shown the fleet; anything that goes wrong in it is in its title."""
        page: Page = await self.browser.new_page(viewport={"width": width, "height": 800}, **more)
        page.on("pageerror", lambda error: asyncio.ensure_future(self._tell(page, str(error))))
        await page.goto(self.address)
        await page.wait_for_selector(".tiles li")
        return page

    async def next_reading(self, page: Page) -> None:
        """Wait until the page shows another reading of the cluster."""
        await page.evaluate(
            "new Promise((done) => { const seen = new MutationObserver((all) => {"
            " if (all.length) { seen.disconnect(); done(); } });"
            " seen.observe(document.getElementById('status'), {childList: true}); })"
        )

    @staticmethod
    async def _tell(page: Page, error: str) -> None:
        await page.evaluate("text => { document.title = text }", error)


def furnish(api: ApiServerStandIn, nodes: int) -> None:
    """Nodes, a name, an Event with markup, a pod that runs and two that wait."""
    for number in range(nodes):
        api.put(process_on(f"worker-{number}"))
        api.put(node_with(f"worker-{number}", {PHYSICAL: "1"}))
    api.put(function("nlb0"))
    for name, resource, status, node in (
        ("runs", PHYSICAL, {"phase": "Running"}, "worker-0"),
        ("waits", "fpga.intel.com/region-ffffffff", {"phase": "Pending"}, ""),
    ):
        made = pod(name, resource)
        made["spec"] |= {"nodeName": node} if node else {}
        made["metadata"]["annotations"] = {"accelbind.dev/requested": MARKUP}
        api.put(made | {"status": status})
    about = {"kind": "Node", "name": BROKEN}
    event = {"involvedObject": about, "type": "Warning", "reason": MARKUP, "message": MARKUP}
    metadata = {"name": "e", "namespace": "default"}
    api.put({"apiVersion": "v1", "kind": "Event", "metadata": metadata, **event})


def answer(request: Request) -> Response:
    """What processes answer: one has a broken device, one does not answer."""
    if request.path == CLAIMS:
        return Response(200, b'{"metadata": {}, "items": []}')
    node = request.path.partition(":9102")[0].rpartition("/plugin-")[2]
    if node == AWAY:
        return Response(503, json.dumps({"kind": "Status", "message": MARKUP}).encode())
    devices: list[Json] = [device("d0", holders=[HELD]), device("d1", card=MARKUP)]
    if node == BROKEN:
        reasons = [{"reason": MARKUP, "message": MARKUP}]
        devices[1] = device("d1", "Unhealthy", reasons=reasons)
    return Response(200, json.dumps(table(node, *devices, processVersion="0.1.0")).encode())


@asynccontextmanager
async def scene(
    api: ApiServerStandIn, processes: Processes, nodes: int = 3
) -> AsyncIterator[Scene]:
    """A furnished cluster, its page's server, started as a user does, and a browser."""
    furnish(api, nodes)
    socket = f"unix:{api.kubeconfig_path.parent / 'api.sock'}"
    flags = ("--no-browser", "--interval", "100ms", "--api-server", socket)
    with api.faults.answering(answer, matches=is_of_processes):
        command = processes.accelbind("ui", *flags)
        await eventually_async(lambda: "Ctrl-C" in command.stdout, what="the address")
        async with async_playwright() as driver:
            browser = await driver.chromium.launch(
                executable_path=require("chromium"),
                args=["--no-sandbox"],  # which a container of root has no rights for
            )
            try:
                yield Scene(command, browser)
            finally:
                await browser.close()
