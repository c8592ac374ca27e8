"""Ends scenes whose person is gone, or that somebody stops."""

from __future__ import annotations

from tavern_host import CallContext, PluginContext
from tavern_host.contracts.accounts import SettledWork, WorkFilter, is_to_settle
from tavern_worlds.service import Scenes


async def end_work(scenes: Scenes, which: WorkFilter, by: CallContext, context: PluginContext) -> list[SettledWork]:
    """End the scenes that a user started; what agents do in others is stopped with the agents."""
    found = await scenes.store.open() if which.kind == "user" else []
    chosen = [run for run in found if await is_to_settle(context.services, which, await scenes.store.call(run))]
    for run in chosen:
        await scenes.stop(run, call=by)
    return [SettledWork(kind="scenes", stopped=len(chosen))]
