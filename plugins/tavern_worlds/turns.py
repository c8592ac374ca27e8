"""What happens in a scene, as changes of its run: the world, events, turns, and what an agent gets for one. Pure."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any

from pydantic import JsonValue

from tavern_agents.api.histories import HistoryMessage
from tavern_host.contracts.calls import new_id
from tavern_host.contracts.documents import merged
from tavern_host.contracts.errors import Conflict, InvalidInput, LimitReached, Misconfigured, TavernError
from tavern_host.contracts.names import did_you_mean
from tavern_worlds.api.scenes import Scene, SceneEvent, SceneMember, SceneRun, SceneWake, WorldState

MAX_WORLD = 256 << 10
"""The largest world of a scene, and the largest event in it, in bytes of JSON."""

MAX_DEPTH = 5
"""How many events may follow from each other: one that an agent publishes follows from the one that woke it."""

MAX_WAITING = 100
"""How many wake-ups of a scene may wait."""

SILENT = "[silent]"
"""The answer of an agent that says nothing."""

Subscriptions = dict[str, list[str]]
"""The types of events that wake each agent of a scene, and patterns of them."""


def turns_of(scene: Scene) -> int:
    """Return how many turns the agents of a scene have after something was said."""
    return len(scene.agent_instances) if scene.turn_order.turns is None else scene.turn_order.turns


def world_of(run: SceneRun) -> WorldState:
    """Return the world of a run."""
    return WorldState(scene=run.id, revision=run.revision, state=run.world)


def opening(run: SceneRun, member: SceneMember) -> str:
    """Return the first message to an agent."""
    names = {one.name: f"{one.name} ({one.role})" if one.role else one.name for one in run.members}
    you = names.pop(member.name)
    return (
        f"The scene: {run.scene.name}. {run.scene.description}\nYou are {you}. With you: "
        f"{', '.join(names.values()) or 'nobody else'}.\nWhat is said begins with the name of who says it. Your "
        f"answer is said to all, without your name before it; answer {SILENT} to say nothing."
    )


def message_for(member: SceneMember, wake: SceneWake, conversation: Sequence[HistoryMessage]) -> str:
    """Return the message to an agent: the texts of others since it heard them, and the event that woke it. Further
    lines of a text are indented, so that none looks like another speaker's."""
    ids = [one.id for one in conversation]
    unheard = conversation[ids.index(member.heard) + 1 if member.heard in ids else 0 :]
    said = [one.message for one in unheard if one.message.name != member.name]
    lines = [f"{message.name or message.role}: {message.content}".replace("\n", "\n  ") for message in said]
    if wake.event is not None:
        lines.append(f"Event: {wake.event.type} {json.dumps(wake.event.payload, ensure_ascii=False)}")
    return "\n\n".join(lines) or "It is your turn to speak."


def require_running(run: SceneRun) -> None:
    """Raise `Conflict` for a run that has ended."""
    if run.status == "ended":
        raise Conflict(f"the scene {run.id} has ended; start {run.scene.id!r} again")


def change_world(run: SceneRun, patch: dict[str, JsonValue], revision: int | None = None) -> dict[str, Any]:
    """Merge a patch into the world. Raises `Conflict`, `InvalidInput`."""
    require_running(run)
    if revision not in (None, run.revision):
        message = f"the world of {run.id} has the revision {run.revision}, not {revision}; read it again"
        raise Conflict(message, revision=run.revision)
    return {"world": check_size(merged(run.world, patch), "the world"), "revision": run.revision + 1}


def check_size(value: Any, what: str) -> Any:
    """Return a value. Raises `InvalidInput` for one that is too large."""
    if (size := len(json.dumps(value, ensure_ascii=False).encode())) > MAX_WORLD:
        raise InvalidInput(f"{what} would have {size:,} bytes; at most {MAX_WORLD:,}")
    return value


def add_event(
    run: SceneRun, event: SceneEvent, subscribed: Subscriptions, publisher: str | None = None
) -> dict[str, Any]:
    """Wake the agents that subscribe to an event, but not its publisher. Raises `Conflict`, `InvalidInput`,
    `LimitReached`."""
    require_running(run)
    check_size(event.payload, "the event")
    at_work = run.wakes[0] if run.wakes else None
    depth = at_work.depth + 1 if publisher and at_work and at_work.instance_id == publisher else 0
    if depth > MAX_DEPTH:
        raise LimitReached(f"{MAX_DEPTH} events have followed from each other; this one is not published")
    wakes = [
        SceneWake(id=new_id("wake"), instance_id=one, event=event, depth=depth)
        for one, patterns in subscribed.items()
        if one != publisher and any(fnmatchcase(event.type, pattern) for pattern in patterns)
    ]
    if len(run.wakes) + len(wakes) > MAX_WAITING:
        raise LimitReached(f"more than {MAX_WAITING} wake-ups would wait in the scene {run.id}")
    return {"wakes": [*run.wakes, *wakes]}


def publish_due(run: SceneRun, subscribed: Subscriptions, now: datetime) -> dict[str, Any]:
    """Publish each scheduled event that is due, once however long ago that was."""
    for task in run.scene.scheduled_tasks:
        if task.id in run.due and run.due[task.id] <= now:
            due = {id: at for id, at in run.due.items() if id != task.id}
            if task.every is not None:
                due[task.id] = now + timedelta(seconds=task.every)
            event = SceneEvent(type=task.event_type, payload=task.payload)
            run = run.model_copy(update={"due": due})
            with contextlib.suppress(TavernError):  # too many wait: it wakes nobody
                run = run.model_copy(update=add_event(run, event, subscribed))
    return {"due": run.due, "wakes": run.wakes}


def give_turn(run: SceneRun, instance: str | None) -> dict[str, Any]:
    """Give the next turn to an agent, or end the talk. Raises `Misconfigured` for one that is not in the scene."""
    if not instance or not run.turns:
        return {"turns": 0}
    ids = [member.instance_id for member in run.members]
    if instance not in ids:
        raise Misconfigured(f"the turn order names {instance!r}, who is not in the scene{did_you_mean(instance, ids)}")
    wake = SceneWake(id=new_id("wake"), instance_id=instance)
    return {"turns": run.turns - 1, "speaker": ids.index(instance), "wakes": [*run.wakes, wake]}


def replace_wake(run: SceneRun, wake: SceneWake) -> dict[str, Any]:
    """Replace a wake-up of the queue by `wake`, which has its message."""
    return {"wakes": [wake if one.id == wake.id else one for one in run.wakes]}


def finish(run: SceneRun, wake: SceneWake, problem: str | None = None) -> dict[str, Any]:
    """Take a wake-up off the queue, done or with the problem that ends the talk."""
    heard = {"heard": wake.heard}
    members = [m.model_copy(update=heard) if m.instance_id == wake.instance_id else m for m in run.members]
    left = [one for one in run.wakes if one.id != wake.id]
    ended = {} if problem is None or len(left) == len(run.wakes) else {"turns": 0, "problem": problem}
    return {"members": members if wake.message is not None else run.members, "wakes": left, **ended}
