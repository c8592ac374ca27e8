"""The studio in a real browser (Debian's Chromium, drawing in software): panning, first picture, streams, memory, size.

Frames are those of the browser (`requestAnimationFrame`); the floor of a frame is one at 60 a second.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import math
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
SMALL, LARGE, HUGE = 300, 1000, 5000
ROUNDS = 3
"""Browsers that show the first picture, one after another."""
PAN, LONG_PAN = 5.0, 120.0
"""Seconds of panning: for the figure of a frame, and between the two of the heap."""
TABS = 50
CORNER = (140, 580)
"""A place of the canvas where no node is when all of them are shown."""
NODES, TOKENS, STREAM = 4, 200, 10
"""How many nodes stream, how many tokens a second they give together, and for how many seconds."""
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

_ARE_DRAWN = """(counts) =>
  Object.entries(counts).every(([part, count]) => document.querySelectorAll(part).length >= count)"""


def graph(nodes: int) -> dict[str, Any]:
    """Return a workflow with so many nodes, each but the first of a row fed by the one before it."""
    made = [
        {"id": f"n{i}", "type": "core:UpperCase", "position": {"x": 260 * (i % 25), "y": 160 * (i // 25)}}
        for i in range(nodes)
    ]
    ends = {"sourceHandle": "text", "targetHandle": "text"}
    edges = [{"id": f"e{i}", "source": f"n{i - 1}", "target": f"n{i}", **ends} for i in range(nodes) if i % 25]
    return {"id": f"graph-{nodes}", "name": f"{nodes} nodes", "nodes": made, "edges": edges}


TELLER = f"""
import asyncio
from collections.abc import AsyncIterator

from tavern_host import node


@node()
async def tell() -> AsyncIterator[str]:
    "Give one word after another, as a model does."
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in range({TOKENS // NODES * STREAM}):
        await asyncio.sleep(began + number * {NODES / TOKENS} - loop.time())
        yield f"token{{number}} "
"""


def telling() -> dict[str, Any]:
    """Return a workflow whose nodes stream, each into an output of its own."""
    names = [f"n{number}" for number in range(NODES)]
    places = {name: {"x": 0, "y": 240 * number} for number, name in enumerate(names)}
    return {
        "id": "telling",
        "name": "Telling",
        "nodes": [
            *({"id": name, "type": "teller:Tell", "position": places[name]} for name in names),
            {"id": "out", "type": "core:GroupOutput", "position": {"x": 500, "y": 0}},
        ],
        "edges": [
            {"id": f"e-{name}", "source": name, "sourceHandle": "result", "target": "out", "targetHandle": name}
            for name in names
        ],
        "interfaceOutputs": {name: {"key": name, "dataFlowType": "STRING", "isStream": True} for name in names},
    }


def project_of(place: Path) -> None:
    """Make a project with the workflows, and the plugin whose node streams."""
    project = place / "project"
    workflows, plugin = project / "workflows", project / "plugins" / "teller"
    for folder in (workflows, plugin):
        folder.mkdir(parents=True)
    (project / "tavern.yaml").write_text("name: graphs\n")
    manifest = {"name": "teller", "displayName": "Teller", "version": "1.0.0", "apiVersion": ">=0.1,<0.2"}
    (plugin / "plugin.yaml").write_text(json.dumps({**manifest, "nodes": {"entry": "./nodes"}}))
    (plugin / "nodes").mkdir()
    (plugin / "nodes" / "tell.py").write_text(TELLER)
    for made in (graph(SMALL), graph(LARGE), graph(HUGE), telling()):
        (workflows / f"{made['id']}.json").write_text(json.dumps(made))


@asynccontextmanager
async def page_of(server: Served) -> AsyncIterator[Any]:
    """Open the page in a browser."""
    from playwright.async_api import async_playwright

    from tavern_studio.testing import FLAGS, chromium

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        page = await browser.new_page(viewport={"width": 1280, "height": 800})
        await page.goto(f"{server.url}/?token={TOKEN}")
        yield page
        await browser.close()


async def _open(page: Any, url: str, nodes: int) -> float:
    """Show a workflow; return how many seconds it takes until all of its nodes and edges are drawn."""
    began = time.perf_counter()
    await page.goto(f"{url}/#/workflows/graph-{nodes}")
    counts = {".vue-flow__node .node": nodes, ".vue-flow__edge": len(graph(nodes)["edges"])}
    await page.wait_for_function(_ARE_DRAWN, arg=counts, polling="raf", timeout=120_000)
    await page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return time.perf_counter() - began


async def _clock(page: Any) -> Any:
    """Begin to count the CPU time that the page's thread takes for its tasks."""
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable", {"timeDomain": "threadTicks"})
    return session


async def _spent(clock: Any) -> float:
    """Return the seconds that were counted."""
    metrics = (await clock.send("Performance.getMetrics"))["metrics"]
    return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))


async def _pan(page: Any, seconds: float) -> list[float]:
    """Drag the canvas about; return how many milliseconds each frame took."""
    frames = asyncio.create_task(page.evaluate(_FRAMES, seconds))
    await page.mouse.move(*CORNER)
    await page.mouse.down()
    number = 0
    while not frames.done():
        turn = number * 0.1
        await page.mouse.move(CORNER[0] + 120 * math.sin(turn), CORNER[1] - 60 + 60 * math.cos(turn))
        await asyncio.sleep(0.03)
        number += 1
    await page.mouse.up()
    return list(await frames)


async def _zoom(page: Any, seconds: float) -> list[float]:
    """Turn the wheel over the middle of the canvas to and fro; return how many milliseconds each frame took."""
    frames = asyncio.create_task(page.evaluate(_FRAMES, seconds))
    await page.mouse.move(600, 420)
    number = 0
    while not frames.done():
        await page.mouse.wheel(0, -30 if number % 20 < 10 else 30)
        await asyncio.sleep(0.03)
        number += 1
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


@asynccontextmanager
async def _served() -> AsyncIterator[Served]:
    with tempfile.TemporaryDirectory() as folder:
        project_of(Path(folder))
        async with server_of(Path(folder)) as server:
            yield server


async def _canvas() -> list[Result]:
    pictures = []
    async with _served() as server:
        for _ in range(ROUNDS):
            async with page_of(server) as page:
                clock = await _clock(page)
                before = await _spent(clock)
                first = await _open(page, server.url, LARGE)
                pictures.append((first, await _spent(clock) - before))
        moving = []
        for nodes, limit in ((SMALL, FRAME * 1.2), (LARGE, FRAME * 1.2), (HUGE, 40)):
            async with page_of(server) as page:
                await _open(page, server.url, nodes)
                for name, move in (("pan", _pan), ("zoom", _zoom)):
                    frame = statistics.mean(await move(page, PAN))
                    what = f"a frame while {nodes:,} nodes {name}"
                    moving.append(Result(what, frame, "ms", limit, "the limit", frame / limit, 1, limit=1))
                if nodes == LARGE:
                    heap = await _heap(page) / 2**20
                    moving.append(
                        Result(f"heap with {nodes:,} nodes", heap, "MiB", 60, "the limit", heap / 60, 1, limit=1)
                    )
    first, spent = (statistics.median(column) for column in zip(*pictures, strict=True))
    picture = f"first picture of {LARGE:,} nodes"
    return [
        *moving,
        Result(picture, first, "s", 1.5, "the limit", first / 1.5, ROUNDS, limit=1),
        Result(f"{picture}, CPU time of its thread", spent, "s", 1.5, "the limit", spent / 1.5, ROUNDS),
    ]


async def _streams() -> list[Result]:
    async with _served() as server, page_of(server) as page:
        await server.ask("POST", "/api/plugins/teller/grant")
        await page.goto(f"{server.url}/#/workflows/telling")
        await page.locator(".vue-flow__edge").nth(NODES - 1).wait_for(state="attached")
        await page.keyboard.press("Control+Enter")
        await page.locator(".node p.streamed").nth(NODES - 1).wait_for(state="attached")
        clock = await _clock(page)
        before = await _spent(clock)
        frames = await page.evaluate(_FRAMES, STREAM - 1)
        spent = await _spent(clock) - before
        last = f"token{TOKENS // NODES * STREAM - 1}"
        for number in range(NODES):  # what came is what was sent
            await page.locator(".fields[aria-live] .field").nth(number).get_by_text(last).wait_for()
    longest, late = max(frames), sum(frame > 50 for frame in frames)
    name = f"{TOKENS} tokens a second into {NODES} nodes"
    return [
        Result(
            f"{name}: longest frame; {late} above 50",
            longest,
            "ms",
            50,
            "the limit",
            longest / 50,
            len(frames),
            limit=1,
        ),
        Result(f"{name}: CPU time of its thread", spent, "s", STREAM - 1, "its time", spent / (STREAM - 1), 1),
    ]


async def _memory() -> list[Result]:
    async with _served() as server, page_of(server) as page:
        for nodes in (LARGE, SMALL):
            await _open(page, server.url, nodes)
        before = await _heap(page)
        for number in range(TABS):
            await _open(page, server.url, (LARGE, SMALL)[number % 2])
        await _pan(page, LONG_PAN)
        after = await _heap(page)
    name, growth = f"heap after {TABS} changes of tab and {LONG_PAN:g} s of panning", after / before
    return [Result(name, after / 2**20, "MiB", before / 2**20, "before", growth, 1, limit=1.2)]


def canvas() -> list[Result]:
    """Return how fast a large workflow is shown, and moves."""
    return asyncio.run(_canvas())


def streams() -> list[Result]:
    """Return how evenly the page draws while nodes stream."""
    return asyncio.run(_streams())


def memory() -> list[Result]:
    """Measure the heap of the page, and return its growth."""
    return asyncio.run(_memory())


async def transferred(page: Any, address: str) -> list[float]:
    """Show a workflow in a browser that knows nothing of the page, and again; return the bytes that came, heads of
    answers included."""
    session, bytes_, found = await page.context.new_cdp_session(page), list[float](), list[float]()
    await session.send("Network.enable")
    session.on("Network.loadingFinished", lambda event: bytes_.append(event["encodedDataLength"]))
    for load in (lambda: page.goto(address), page.reload):
        bytes_.clear()
        await load()
        await page.locator(".vue-flow__node").first.wait_for()
        await page.wait_for_load_state("networkidle")
        found.append(sum(bytes_))
    return found


async def _transfers() -> list[Result]:
    from playwright.async_api import async_playwright

    from tavern_studio.testing import FLAGS, chromium

    async with _served() as server, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        cold, again = await transferred(await browser.new_page(), f"{server.url}/?token={TOKEN}#/workflows/telling")
        await browser.close()
    return [
        Result(name, amount / 1000, "kB", limit, "the limit", amount / 1000 / limit, 1, limit=1)
        for name, amount, limit in (("the editor for the first time", cold, 400), ("loaded again", again, 20))
    ]


def transfers() -> list[Result]:
    """Return how much comes to a browser that opens the editor, and that loads it again."""
    return asyncio.run(_transfers())


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


FIGURES = {"canvas": canvas, "streams": streams, "memory": memory, "size": size, "transfers": transfers}
