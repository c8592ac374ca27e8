"""The studio in a real browser (Debian's Chromium, drawing in software): panning, the first picture, memory, size.

Frames are those of the browser (`requestAnimationFrame`); the floor of a frame is one at 60 a second.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import Result
from benchmarks.serving import TOKEN, Served, server_of

FRAME = 1000 / 60
SMALL, LARGE = 300, 1000
PANS = 60
TABS = 50
_FRAMES = """async (seconds) => {
  const times = [];
  const end = performance.now() + seconds * 1000;
  for (let last = performance.now(); last < end; ) {
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    times.push(now - last);
    last = now;
  }
  return times;
}"""


def graph(nodes: int) -> dict[str, Any]:
    """Return a workflow with so many nodes, each but the first of a row fed by the one before it."""
    made = [
        {"id": f"n{i}", "type": "core:UpperCase", "position": {"x": 260 * (i % 25), "y": 160 * (i // 25)}}
        for i in range(nodes)
    ]
    ends = {"sourceHandle": "text", "targetHandle": "text"}
    edges = [{"id": f"e{i}", "source": f"n{i - 1}", "target": f"n{i}", **ends} for i in range(nodes) if i % 25]
    return {"id": f"graph-{nodes}", "name": f"{nodes} nodes", "nodes": made, "edges": edges}


@asynccontextmanager
async def page_of(server: Served) -> AsyncIterator[Any]:
    """Open the page in a browser."""
    from playwright.async_api import async_playwright

    flags = [
        "--no-sandbox",
        "--disable-background-networking",
    ]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path="/usr/bin/chromium", args=flags)
        page = await browser.new_page(viewport={"width": 1280, "height": 800})
        await page.goto(f"{server.url}/?token={TOKEN}")
        yield page
        await browser.close()


async def _open(page: Any, url: str, nodes: int) -> float:
    """Show a workflow; return how many seconds it takes until all of its nodes are drawn."""
    began = time.perf_counter()
    await page.goto(f"{url}/#/workflows/graph-{nodes}")
    await page.locator(".vue-flow__node .node").nth(nodes - 1).wait_for(state="attached", timeout=60_000)
    await page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return time.perf_counter() - began


async def _pan(page: Any, pans: int) -> list[float]:
    """Drag the canvas about; return how many milliseconds each frame took."""
    frames = asyncio.create_task(page.evaluate(_FRAMES, pans / 20))
    await page.mouse.move(600, 420)
    for number in range(pans):
        await page.mouse.wheel(40 if number % 20 < 10 else -40, 20 if number % 10 < 5 else -20)
        await asyncio.sleep(0.03)
    return list(await frames)


async def _heap(page: Any) -> float:
    """Return the bytes of the heap without what nothing refers to."""
    session = await page.context.new_cdp_session(page)
    for _ in range(2):  # what timers of views that were left still hold is let go between the two
        await session.send("HeapProfiler.collectGarbage")
        await asyncio.sleep(1)
    await session.send("HeapProfiler.collectGarbage")
    used = (await session.send("Runtime.getHeapUsage"))["usedSize"]
    await session.detach()
    return float(used)


async def _measured() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "project"
        (project / "workflows").mkdir(parents=True)
        (project / "tavern.yaml").write_text("name: graphs\n")
        for nodes in (SMALL, LARGE):
            (project / "workflows" / f"graph-{nodes}.json").write_text(json.dumps(graph(nodes)))
        async with server_of(Path(folder)) as server, page_of(server) as page:
            first = await _open(page, server.url, LARGE)
            await _open(page, server.url, SMALL)
            frames = await _pan(page, PANS)
            before = await _heap(page)
            for number in range(TABS):
                await _open(page, server.url, (LARGE, SMALL)[number % 2])
            await _pan(page, PANS)
            after = await _heap(page)
    frame, growth = statistics.median(frames), after / before
    pan, tabs = f"a frame while {SMALL} nodes pan", f"heap after {TABS} changes of tab"
    return [
        Result(pan, frame, "ms", FRAME, "60 a second", frame / FRAME, len(frames), limit=2),
        Result(f"first picture of {LARGE:,} nodes", first, "s", 4, "the limit", first / 4, 1, limit=1),
        Result(tabs, after / 2**20, "MiB", before / 2**20, "before", growth, 1, limit=1.2),
    ]


def canvas() -> list[Result]:
    """Return the figures of the canvas."""
    return asyncio.run(_measured())


def size() -> list[Result]:
    """Return how much is loaded before anything else, compressed: what the page names, and what that imports."""
    from tavern_studio.page import WEB

    total, seen, waiting = 0, set[str](), ["studio.js", "studio.css"]
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        text = (WEB / name).read_text(encoding="utf-8")
        total += len(gzip.compress(text.encode()))
        parts = [path.relative_to(WEB).as_posix() for path in (WEB / "parts").glob("*.js")]
        waiting += [one for one in parts if f'from"./{one}"' in text or f'from"./{one.removeprefix("parts/")}"' in text]
    kilobytes = total / 1024
    return [Result("bundle before lazy parts", kilobytes, "KiB", 250, "the limit", kilobytes / 250, 1, limit=1)]


FIGURES = {"canvas": canvas, "size": size}
