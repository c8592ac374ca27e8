"""`tavern cache show` and `tavern cache clear`."""

from __future__ import annotations

from collections.abc import AsyncIterator

from pydantic import JsonValue

from tavern_engine import EngineState
from tavern_engine.engine import Engine
from tavern_host import EXECUTION_ENGINE, CommandOutput, NotFound, PluginContext


async def show(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Show how many outputs of nodes are cached, and where."""
    engine = await _engine(context)
    memory, disk = engine.cache, await engine.disk_cache.usage()
    where = str(disk.path) if engine.caches_on_disk else f"{disk.path} (cacheOnDisk is off)"
    rows = [
        ["memory", f"{len(memory):,}", _amount(memory.size), _amount(memory.limit), "this process"],
        ["disk", f"{disk.entries:,}", _amount(disk.size), _amount(engine.disk_cache.limit), where],
    ]
    yield CommandOutput(kind="table", columns=["", "entries", "bytes", "at most", "where"], rows=rows)
    about: dict[str, JsonValue] = {
        "memory": {"entries": len(memory), "bytes": memory.size, "limit": memory.limit},
        "disk": {
            "entries": disk.entries,
            "bytes": disk.size,
            "limit": engine.disk_cache.limit,
            "path": str(disk.path),
            "isOn": engine.caches_on_disk,
        },
    }
    yield CommandOutput(kind="result", data=about)


async def clear(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Delete the cached outputs of nodes, in memory and on disk."""
    engine = await _engine(context)
    in_memory = len(engine.cache)
    engine.cache.clear()
    on_disk = await engine.disk_cache.clear()
    yield CommandOutput(kind="message", text=f"Forgotten: {on_disk:,} on disk, {in_memory:,} in memory.")
    yield CommandOutput(kind="result", data={"disk": on_disk, "memory": in_memory})


async def _engine(context: PluginContext) -> Engine:
    """Return this plugin's own engine, made if need be."""
    await context.services.get(EXECUTION_ENGINE).queue()
    if (engine := context.own(EngineState).engine) is None:
        raise NotFound("another plugin overrides the engine, and its cache is unknown")
    return engine


def _amount(size: int) -> str:
    """Return a number of bytes as people read it."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size >= 1024**power:
            return f"{size / 1024**power:,.1f} {unit}"
    return f"{size} B"
