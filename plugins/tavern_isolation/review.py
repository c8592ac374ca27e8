"""What an operator reads of a plugin that is to run in a process of its own, before anything of it is installed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tavern_host.context import PluginContext
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.reviews import ReviewedPlugin, ReviewNote
from tavern_isolation.environment import environments_in
from tavern_scripts.api.environments import package_builder
from tavern_scripts.api.sandbox import machine_sandbox


async def review_notes(plugin: ReviewedPlugin, context: PluginContext) -> list[ReviewNote]:
    """The note on the packages of a plugin; none for one that runs in the host's process."""
    if plugin.root is None:
        return []
    requirements: list[str] = []
    lines = []
    try:
        sandbox = await machine_sandbox()
        builder = package_builder(context, environments_in(context), sandbox.backend)
        declared = await asyncio.to_thread(builder.declared, Path(plugin.root))
        requirements = declared.requirements if declared is not None else []
    except TavernError as error:
        lines = [f"{plugin.name} cannot run in a process of its own: {error.message}"]
    if not requirements and not lines:
        return []
    return [
        ReviewNote(
            key="packages",
            title=f"{plugin.name} requires packages",
            columns=["requirement"],
            rows=[[one] for one in requirements],
            lines=lines,
            data=[*requirements],
        )
    ]
