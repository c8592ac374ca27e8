"""Nodes whose buttons do something, fail or wait, and a node that runs in a process of its own."""

from __future__ import annotations

import asyncio
import os
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


@node(isolated=True)
def apart(value: Any = None) -> Annotated[dict[str, Any], Slot(key="value")]:
    """Say where this runs, by a module of the plugin that is imported in the function."""
    from .helper import shown

    return {"pid": os.getpid(), "shown": shown(value), "module": __name__}
