"""`tavern plugins trace`: which calls and events of a plugin there are, as they come. The server carries it out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from pydantic import JsonValue

from tavern_devtools.call_tracing import shortened
from tavern_host import PLUGINS, CommandOutput, InvalidInput, PluginContext
from tavern_host.contracts.calls import operator_call
from tavern_host.contracts.errors import ServiceUnavailable, one_line
from tavern_host.contracts.events import Event, Gap
from tavern_host.contracts.plugins import PluginState
from tavern_tools.api.tools import TOOL_MANAGER, ToolFilter

WAITING = 64
"""How many entries may wait for the terminal before what follows the plugin waits, and then loses the oldest."""
_TOOL = "TOOL_CALL_UPDATE"


async def trace(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Say what is called of a plugin until the time is over, or until this is cancelled."""
    name, seconds = str(arguments["name"]), arguments["for"]
    if isinstance(seconds, int | float) and seconds <= 0:
        raise InvalidInput(f"--for {seconds:g}: how long to follow is a number of seconds above 0")
    if not context.serving:
        text = "no server runs for this project, so there is nothing to follow; `tavern serve` starts one"
        yield CommandOutput(kind="failure", text=text)
        return
    plugins = context.services.get(PLUGINS)
    is_loaded = (await plugins.get(name)).state in (PluginState.LOADED, PluginState.STARTED)
    calls, tools = plugins.trace(name, call=operator_call(context.project.id)), await _tools_of(name, context)
    if is_loaded:  # else the service says why not
        yield CommandOutput(kind="progress", text=f"Following {name}; Ctrl-C ends it.")
    entries = (_of_call(item) async for item in calls)
    events = (_of_event(item, name, tools) async for item in context.events.subscribe())
    until = None if seconds is None else asyncio.get_running_loop().time() + float(str(seconds))
    async for entry in _merged(until, entries, events):
        tones: Any = ["bad"] if "error" in entry else ["quiet"] if entry["kind"] == "lost" else []
        yield CommandOutput(kind="text", text=_line(entry), tones=tones)
        yield CommandOutput(kind="entry", data=entry)


async def _tools_of(plugin: str, context: PluginContext) -> frozenset[str]:
    with suppress(ServiceUnavailable):
        found = await context.services.get(TOOL_MANAGER).list_tools(ToolFilter(plugin=plugin))
        return frozenset(tool.id for tool in found)
    return frozenset()


def _of_call(item: Event | Gap) -> dict[str, JsonValue]:
    if isinstance(item, Gap):
        return {"kind": "lost", "count": item.last - item.first + 1}
    return {"time": item.time.isoformat(), "kind": item.type.lower(), "plugin": item.plugin, **item.payload}


def _of_event(item: Event | Gap, plugin: str, tools: frozenset[str]) -> dict[str, JsonValue] | None:
    """Return an event that the plugin published, or a call of one of its tools that has ended; None for another."""
    if isinstance(item, Gap):
        return _of_call(item)
    payload, about = item.payload, {"time": item.time.isoformat(), "plugin": plugin}
    if item.type == _TOOL and payload.get("toolId") in tools and payload.get("status") != "running":
        error = payload.get("error")
        said = {"error": shortened(str(error.get("message", "")))} if isinstance(error, dict) else {}
        ended = {"result": payload.get("status"), **said}
        who = {"caller": payload.get("caller"), "ms": payload.get("durationMs")}
        return {**about, "kind": "tool", "name": payload["toolId"], **who, **ended}
    return {**about, "kind": "event", "name": item.type} if item.plugin == plugin else None


async def _merged(
    until: float | None, *streams: AsyncIterator[dict[str, JsonValue] | None]
) -> AsyncIterator[dict[str, JsonValue]]:
    """Yield what streams give, as it comes, until a time of the loop. Raises what one of them raises."""
    queue: asyncio.Queue[dict[str, JsonValue]] = asyncio.Queue(WAITING)

    async def read(stream: AsyncIterator[dict[str, JsonValue] | None]) -> None:
        async for entry in stream:
            if entry is not None:
                await queue.put(entry)

    tasks = [asyncio.create_task(read(stream), name="follow a plugin") for stream in streams]
    getting = asyncio.create_task(queue.get(), name="wait for what a plugin does")
    try:
        while True:
            left = None if until is None else until - asyncio.get_running_loop().time()
            done, _ = await asyncio.wait([getting, *tasks], timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if getting in done:
                yield getting.result()
                getting = asyncio.create_task(queue.get(), name="wait for what a plugin does")
            elif not done:
                return
            else:
                for task in done:
                    task.result()
                return
    finally:
        for task in (getting, *tasks):
            task.cancel()
        await asyncio.wait([getting, *tasks])


def _line(entry: dict[str, JsonValue]) -> str:
    if entry["kind"] == "lost":
        return f"… {entry['count']} lost: this reader was too slow"
    time = str(entry["time"])[11:23]
    ms = f"{entry['ms']:.1f} ms" if isinstance(entry.get("ms"), int | float) else ""
    place = f" ({entry['file']}:{entry['line']})" if "file" in entry else ""
    ended = f"FAILED: {entry['error']}{place}" if "error" in entry else str(entry.get("result", ""))
    who = f"by {entry['caller']}" if entry.get("caller") else ""
    return "  ".join(filter(None, (time, f"{entry['kind']:<7}", one_line(str(entry["name"])), ms, ended, who)))
