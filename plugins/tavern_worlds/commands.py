"""The commands `tavern scene …`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from pydantic import JsonValue

from tavern_agents.api.agents import AGENT_RUNTIME, AgentRunFilter
from tavern_agents.api.histories import CHAT_HISTORY
from tavern_host import CommandOutput, PluginContext
from tavern_host.contracts.calls import operator_call
from tavern_host.contracts.documents import read_json_object
from tavern_host.contracts.errors import InvalidInput
from tavern_worlds.api.scenes import SCENE_MANAGER, SceneManager, SceneRun

_EVERY = 0.1
"""Seconds between two looks at what was said."""

_LATEST = 200
"""How many messages a look takes in."""

Arguments = dict[str, JsonValue]
Output = AsyncIterator[CommandOutput]


async def list_scenes(arguments: Arguments, context: PluginContext) -> Output:
    """Show the files of scenes, what is wrong with them, and the latest runs."""
    scenes, runs = await _service(context).list_scenes(), await _service(context).list_runs(limit=20)
    rows = [[one.id, one.name, ", ".join(one.agents), one.description] for one in scenes]
    yield CommandOutput(kind="table", columns=["scene", "name", "agents", "description"], rows=rows)
    for text in [text for one in scenes for text in (*one.problems, *one.warnings)]:
        yield CommandOutput(kind="progress", text=text)
    rows = [[run.id, run.scene.id, run.status, f"{run.started_at:%Y-%m-%d %H:%M:%S}"] for run in runs]
    yield CommandOutput(kind="table", columns=["run", "scene", "status", "began (UTC)"], rows=rows)
    data: Any = {"scenes": [one.to_json() for one in scenes], "runs": [run.to_json() for run in runs]}
    yield CommandOutput(kind="result", data=data)


async def new_scene(arguments: Arguments, context: PluginContext) -> Output:
    """Write a scene of agents, and say how it is started."""
    name, about, agents = str(arguments["name"]), str(arguments["description"]), arguments["agent"]
    if not isinstance(agents, list) or not agents:
        raise InvalidInput("say by --agent who speaks in the scene")
    call = operator_call(context.project.id)
    scene = await _service(context).create(name, [str(one) for one in agents], description=about, call=call)
    yield CommandOutput(kind="message", text=f"To start the scene: tavern scene start {scene.id}")
    yield CommandOutput(kind="result", data=scene.to_json())


async def show(arguments: Arguments, context: PluginContext) -> Output:
    """Show a run: how it stands, and what was said."""
    run = await _run(arguments, context)
    rows = [[one.instance_id, one.name, one.profile_id, one.role] for one in run.members]
    yield CommandOutput(kind="table", columns=["agent", "name", "profile", "role"], rows=rows)
    for one in await context.services.get(CHAT_HISTORY).load(run.id):
        yield CommandOutput(kind="text", text=f"{one.message.name or one.message.role}: {one.message.content}")
    problem = f": {run.problem}" if run.problem else ""
    about = f"{run.id} ({run.scene.id}): {run.status}, {run.turns} turns and {len(run.wakes)} wake-ups to come{problem}"
    yield CommandOutput(kind="text", text=about)
    yield CommandOutput(kind="result", data=run.to_json())


async def start(arguments: Arguments, context: PluginContext) -> Output:
    """Start a scene, and show what its agents say."""
    run = await _service(context).start(str(arguments["scene"]))
    yield CommandOutput(kind="progress", text=f"Started {run.id}")
    async for output in _followed(context, run, None):
        yield output


async def say(arguments: Arguments, context: PluginContext) -> Output:
    """Say something in a scene, and show what its agents answer."""
    run = await _run(arguments, context)
    heard, turns = await _latest(context, run), arguments.get("turns")
    name, left = str(arguments["name"]), turns if isinstance(turns, int) else None
    run = await _service(context).say(run.id, str(arguments["message"]), name=name, turns=left)
    async for output in _followed(context, run, heard):
        yield output


async def publish(arguments: Arguments, context: PluginContext) -> Output:
    """Publish an event in a scene, and show what the agents say that it wakes."""
    run = await _run(arguments, context)
    heard, payload = await _latest(context, run), read_json_object(str(arguments["payload"]), "--payload")
    woken = await _service(context).publish(str(arguments["event"]), payload, scene=run.id)
    yield CommandOutput(kind="progress", text=f"Woken: {', '.join(woken) or 'nobody'}")
    async for output in _followed(context, run, heard):
        yield output


async def state(arguments: Arguments, context: PluginContext) -> Output:
    """Show the world of a scene, after a change if one is given."""
    service, run, changes = _service(context), await _run(arguments, context), arguments.get("set")
    if changes is not None:
        revision = arguments.get("revision")
        known = revision if isinstance(revision, int) else None
        await service.update_world(read_json_object(str(changes), "--set"), revision=known, scene=run.id)
    world = await service.read_world(scene=run.id)
    yield CommandOutput(kind="text", text=json.dumps(world.state, ensure_ascii=False, indent=2))
    yield CommandOutput(kind="result", data=world.to_json())


async def stop(arguments: Arguments, context: PluginContext) -> Output:
    """End a run of a scene."""
    run = await _service(context).stop(str(arguments["scene"]))
    yield CommandOutput(kind="message", text=f"{run.id}: {run.status}")
    yield CommandOutput(kind="result", data=run.to_json())


def _service(context: PluginContext) -> SceneManager:
    return context.services.get(SCENE_MANAGER)


async def _run(arguments: Arguments, context: PluginContext) -> SceneRun:
    return await _service(context).get_run(str(arguments["scene"]))


async def _latest(context: PluginContext, run: SceneRun) -> str | None:
    """Return the message that was said last."""
    return next((one.id for one in await context.services.get(CHAT_HISTORY).load(run.id, last=1)), None)


async def _followed(context: PluginContext, run: SceneRun, heard: str | None) -> Output:
    """Show what agents say, and which of their calls wait for a person, until nothing is left to be done; fail where
    something went wrong."""
    waiting = asyncio.create_task(_service(context).wait(run.id), name=f"wait for {run.id}")
    runtime, known = context.services.get(AGENT_RUNTIME), set[str]()
    try:
        while True:
            is_last = bool((await asyncio.wait([waiting], timeout=_EVERY))[0])
            said = await context.services.get(CHAT_HISTORY).load(run.id, last=_LATEST)
            ids = [one.id for one in said]
            for one in said[ids.index(heard) + 1 if heard in ids else 0 :]:
                heard = one.id
                if one.message.role == "assistant":
                    yield CommandOutput(kind="text", text=f"{one.message.name}: {one.message.content}")
            if is_last:
                break
            for member in run.members:
                for at_work in await runtime.runs(AgentRunFilter(conversation_id=member.conversation_id, limit=1)):
                    for task in set(at_work.approvals) - known:
                        how = f"tavern approvals approve {task} (or refuse)"
                        yield CommandOutput(kind="progress", text=f"A call of {member.name} waits: {how}")
                    known |= set(at_work.approvals)
    finally:
        waiting.cancel()
    run = await waiting
    yield CommandOutput(kind="result", data=run.to_json())
    if run.problem:
        yield CommandOutput(kind="failure", text=f"{run.id}: {run.problem}")
