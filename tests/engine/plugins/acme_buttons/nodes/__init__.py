"""A node whose buttons do something, fail or wait."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from tavern_host import Config, PluginContext, Slot, node


async def roll(inputs: dict[str, Any], config: dict[str, Any], context: PluginContext) -> dict[str, Any]:
    """Say all that the button was told."""
    await asyncio.sleep(0)
    return {"value": inputs["value"] + config["step"], "seen": {"inputs": inputs, "plugin": context.plugin}}


def fail(inputs: dict[str, Any], config: dict[str, Any]) -> None:
    raise ValueError("the dice fell off the table")


async def wait(inputs: dict[str, Any], config: dict[str, Any], context: PluginContext) -> None:
    context.events.publish("ACME_WAITS", {})
    await asyncio.Event().wait()


@node(actions={"roll": roll, "fail": fail, "wait": wait})
def dice(value: int = 1, seen: Any = None, step: Annotated[int, Config()] = 5) -> Annotated[int, Slot(key="value")]:
    return value
