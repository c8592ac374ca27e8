"""What tests of the page use: a server with its page, and a browser, as plugins' authors have them too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from playwright.async_api import Locator, Page, Route, expect

from tavern_studio.testing import WAIT, Studio, browsing, not_new, show

__all__ = ["WAIT", "Studio", "browsing", "not_new", "show"]

WIDE = {"locale": "en", "viewport": {"width": 1280, "height": 800}}
"""The window of a browser, unless it is to be another."""

T = TypeVar("T")


async def read_until(holds: Callable[[T], bool], read: Callable[[], Awaitable[T]], within: int = WAIT) -> T:
    """Read what a page shows, which may not be complete yet, until it holds, for at most so many milliseconds; return
    what was read last."""
    for _ in range(within // 50):
        if holds(found := await read()):
            break
        await asyncio.sleep(0.05)
    return found


@asynccontextmanager
async def answered_late(page: Page, where: str, method: str = "PUT") -> AsyncIterator[asyncio.Event]:
    """Let what the server answers to a request first come to the page after what is done in here, and after all that it
    answers to later ones meanwhile. The event is set once the server has done what it was asked for."""
    done, allowed, held = asyncio.Event(), asyncio.Event(), list[Route]()

    async def hold(route: Route) -> None:
        if held or route.request.method != method:
            await route.continue_()
            return
        held.append(route)
        response = await route.fetch()
        done.set()
        await allowed.wait()
        await route.fulfill(response=response)

    await page.route(where, hold)
    yield done
    allowed.set()
    response = await held[0].request.response()
    assert response is not None
    await response.finished()
    await page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    await page.unroute(where, hold)


def canvas_node(page: Page, name: str) -> Locator:
    """Return a node of the canvas."""
    return page.locator(f".vue-flow__node[data-id={name}]")


async def greeting(studio: Studio) -> None:
    """Open the workflow of the sample, and wait for its four nodes."""
    await studio.open("/workflows/greeting")
    await expect(studio.page.locator(".vue-flow__node")).to_have_count(4)


async def node_library(page: Page) -> Locator:
    """Return the library of node types, opened where it is a strip of icons."""
    closed = page.get_by_role("button", name="Open the node library")
    await expect(closed.or_(page.get_by_role("button", name="Close the node library"))).to_be_visible()
    if await closed.is_visible():
        await closed.click()
    return page.get_by_label("Node library")


async def leave(page: Page) -> None:
    """Click beside all nodes, so that none is selected."""
    await page.locator(".vue-flow__pane").click(position={"x": 20, "y": 20})


async def publish(page: Page) -> None:
    """Publish the workflow that is shown."""
    await page.get_by_role("button", name="Publish", exact=True).click()
    await expect(page.get_by_label("Status").get_by_text("Published", exact=True)).to_be_visible()


async def drag(page: Page, what: Locator, by: tuple[int, int], *, at: tuple[float, float] | None = None) -> None:
    """Drag with the mouse: from the middle, or from a place that is counted from the left lower corner."""
    await what.scroll_into_view_if_needed()
    box = await what.bounding_box()
    assert box is not None
    across, up = at or (box["width"] / 2, box["height"] / 2)
    await what.hover(position={"x": across, "y": box["height"] - up})  # waits until it moves no more and can be touched
    box = await what.bounding_box()
    assert box is not None
    x, y = box["x"] + across, box["y"] + box["height"] - up
    await page.mouse.down()
    await page.mouse.move(x + by[0], y + by[1], steps=6)
    await page.mouse.up()
