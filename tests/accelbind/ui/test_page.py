"""The page of `accelbind ui` in Chromium, over a cluster with foreign text in all places."""

import signal

import pytest
from playwright.async_api import Page, expect

from simulator.apiserver.standin import ApiServerStandIn
from tests.accelbind.devices.test_fleet import process_on
from tests.accelbind.ui.scene import AWAY, BROKEN, MARKUP, scene
from tests.support import Processes


async def test_the_views_show_nodes_names_and_pods_and_foreign_text_as_text(
    api: ApiServerStandIn, processes: Processes
) -> None:
    async with scene(api, processes) as made:
        page = await made.page()
        assert "token" not in page.url
        await fleet_is_shown(page)
        await page.click(f".tiles a:has-text('{BROKEN}')")
        await expect(page.locator("#devices td.bad")).to_have_text("Unhealthy")
        await expect(page.locator("#devices")).to_contain_text(f"{MARKUP} [{MARKUP}]")
        await expect(page.locator("#events")).to_contain_text(MARKUP)
        await page.click("nav a:has-text('Pods')")
        await expect(page.locator("#waiting")).to_contain_text("which no node knows")
        await expect(page.locator("#waiting")).to_contain_text(MARKUP)
        await page.click("#running a:has-text('worker-0')")
        await expect(page.locator("#devices")).to_contain_text("team-a/p (c)")
        await page.go_back()
        await expect(page.locator("#running")).to_be_visible()
        await names_are_shown(page)
        assert "broken" not in await page.title()
        await page.reload()
        await expect(page.locator("#names")).to_contain_text("nlb0")
        made.command.popen.send_signal(signal.SIGINT)
        assert made.command.wait() == 0


async def fleet_is_shown(page: Page) -> None:
    await expect(page.locator(".tiles li")).to_have_count(3)
    await expect(page.locator(".tiles .silent")).to_contain_text(AWAY)
    await expect(page.locator(".tiles .unhealthy")).to_contain_text("0 of 2 free")
    await expect(page.locator("#resources tbody")).to_contain_text("fpga.intel.com/af-x")
    await page.fill("#filter", "worker-2")
    await expect(page.locator(".tiles li")).to_have_count(1)
    await page.fill("#filter", "")
    await page.check("#only-bad")
    await expect(page.locator(".tiles li")).to_have_count(2)


async def names_are_shown(page: Page) -> None:
    await page.click("nav a:has-text('Names')")
    await expect(page.locator("#names")).to_contain_text("nlb0")
    for text, words in (
        ("fpga.intel.com/nlb0: 1", "admitted"),
        ("fpga.intel.com/nlb: 1", "in namespace default"),
        (MARKUP, "write a name and a number per line"),
        ("a: [", "expected"),
        ("x" * 70_000, "Too Large"),
    ):
        await page.fill("#request", text)
        await page.click("#try button")
        await expect(page.locator("#answer")).to_contain_text(words)


async def test_a_reading_takes_neither_the_focus_nor_typed_text(
    api: ApiServerStandIn, processes: Processes
) -> None:
    async with scene(api, processes) as made:
        page = await made.page()
        focused = "document.activeElement.hash"
        await page.focus(f".tiles a:has-text('{BROKEN}')")
        await made.next_reading(page)
        assert await page.evaluate(focused) == f"#node/{BROKEN}"
        api.put(process_on(BROKEN, "Pending"))
        await expect(page.locator(".tiles .silent")).to_have_count(2)
        assert await page.evaluate(focused) == f"#node/{BROKEN}"
        await page.click("nav a:has-text('Names')")
        await expect(page.locator("#names")).to_contain_text("nlb0")
        await page.fill("#namespace", "team-")
        await made.next_reading(page)
        await made.next_reading(page)
        assert await page.input_value("#namespace") == "team-"


async def test_any_address_of_the_page_can_be_opened(
    api: ApiServerStandIn, processes: Processes
) -> None:
    long = ".".join(["node" * 15] * 4)
    api.put(process_on(long))
    async with scene(api, processes) as made:
        page = await made.browser.new_page(viewport={"width": 360, "height": 800})
        await page.goto(made.site)
        await expect(page.locator("#error")).to_contain_text("no valid token")
        await page.goto(made.address)  # only the fragment differs, so nothing is loaded
        await page.click(f".tiles a:has-text('{long}')")
        await expect(page.locator("#node-facts")).to_contain_text("accelbind-plugin")
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360
        await page.evaluate("location.hash = 'node/100%'")
        await page.reload()
        await expect(page.locator("#status")).to_contain_text("Read at")
        await expect(page.locator("#title-node")).to_have_text("Node 100%")


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1920, "light")])
async def test_no_width_needs_to_be_scrolled_sideways(
    width: int, scheme: str, api: ApiServerStandIn, processes: Processes
) -> None:
    async with scene(api, processes) as made:
        page = await made.page(width, color_scheme=scheme)
        for view in ("fleet", f"node/{BROKEN}", "names", "pods"):
            await page.evaluate("view => { location.hash = view }", view)
            await expect(page.locator("main > section:not([hidden]) h2")).to_be_visible()
            assert await page.evaluate("document.documentElement.scrollWidth") <= width


async def test_a_cluster_that_goes_away_is_told_and_comes_back(
    api: ApiServerStandIn, processes: Processes
) -> None:
    async with scene(api, processes) as made:
        page = await made.page()
        async with api.away():
            await expect(page.locator("#error")).to_contain_text("Nothing newer can be read")
            await expect(page.locator(".tiles li")).to_have_count(3)
        await expect(page.locator("#error")).to_be_hidden(timeout=30_000)


async def test_a_thousand_nodes_are_shown_and_can_be_searched(
    api: ApiServerStandIn, processes: Processes
) -> None:
    async with scene(api, processes, nodes=1000) as made:
        page = await made.page()
        await expect(page.locator(".tiles li")).to_have_count(1000)
        await page.fill("#filter", "worker-99")
        await expect(page.locator(".tiles li")).to_have_count(11)
