"""`tavern why SUBJECT`: explains why something is as it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from tavern_host import CommandOutput, Host


async def why(make_host: Callable[[], Host], arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    host = make_host()
    try:
        await host.load()
        explanation = host.why(arguments["subject"])
    finally:
        await host.stop()
    yield CommandOutput(kind="message", text=explanation.answer)
    for fact in explanation.facts:
        yield CommandOutput(kind="message", text=f"  {fact}")
    yield CommandOutput(kind="result", data=explanation.to_json())
