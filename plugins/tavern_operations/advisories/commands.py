"""The command `tavern advisories`."""

from __future__ import annotations

from collections.abc import AsyncIterator

from pydantic import JsonValue

from tavern_host import CommandOutput, PluginContext
from tavern_operations.advisories.comparing import compared

_COLUMNS = ["advisory", "package", "version", "fixed in", "severity", "where"]
_SHOWN = 5


async def advisories(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Show the advisories about what is installed; exit code 1 where there are any."""
    result = await compared(context, str(arguments.get("database") or ""))
    for skipped in result.skipped[:_SHOWN]:
        yield CommandOutput(kind="progress", text=f"Could not be read: {skipped}")
    if len(result.skipped) > _SHOWN:
        yield CommandOutput(kind="progress", text=f"Could not be read: {len(result.skipped) - _SHOWN} more.")
    data: dict[str, JsonValue] = {
        "records": result.records,
        "skipped": [*result.skipped],
        "advisories": [one.to_json() for one in result.found],
    }
    yield CommandOutput(kind="result", data=data)
    rows = [
        [one.id, one.package, one.version, ", ".join(one.fixed) or "none", one.severity or "unknown", one.place]
        for one in result.found
    ]
    if rows:
        yield CommandOutput(kind="table", columns=_COLUMNS, rows=rows)
        count = f"{len(rows)} {'advisory' if len(rows) == 1 else 'advisories'}"
        yield CommandOutput(kind="failure", text=f"{count} about what is installed.", exit_code=1)
    else:
        yield CommandOutput(kind="message", text=f"None of {result.records:,} advisories is about what is installed.")
