"""The commands `tavern triggers …`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from tavern_host import CommandOutput, PluginContext
from tavern_host.contracts.calls import operator_call
from tavern_host.contracts.documents import read_document_file, read_json_object, read_model
from tavern_host.contracts.errors import InvalidInput, ServiceUnavailable
from tavern_triggers import own_triggers
from tavern_triggers.api.triggers import TRIGGER_MANAGER, EnabledTrigger, Firing, FiringStatus, Trigger, TriggerState
from tavern_triggers.files import path_of
from tavern_triggers.service import require_target

Arguments = dict[str, JsonValue]
Output = AsyncIterator[CommandOutput]

_COLUMNS = ["trigger", "name", "kind", "status", "next (UTC)", "last firing"]
_FIRINGS = ["due (UTC)", "trigger", "status", "run", "reason"]


async def list_triggers(arguments: Arguments, context: PluginContext) -> Output:
    """Show all triggers."""
    states = await context.services.get(TRIGGER_MANAGER).list_triggers()
    yield CommandOutput(kind="table", columns=_COLUMNS, rows=[_row(state) for state in states])
    for state in states:
        if state.reason:
            yield CommandOutput(kind="progress", text=f"{state.id}: {state.reason}")
    yield CommandOutput(kind="result", data=[state.to_json() for state in states])


async def show(arguments: Arguments, context: PluginContext) -> Output:
    """Show a trigger and its last firings."""
    service, id = context.services.get(TRIGGER_MANAGER), _id(arguments)
    state, firings = await service.get(id), await service.history(id, limit=10)
    yield CommandOutput(kind="table", columns=_COLUMNS, rows=[_row(state)])
    about = [state.reason, state.by and f"on behalf of {state.by}", state.address and f"address: {state.address}"]
    for text in [*filter(None, about), *(f"next: {moment:%Y-%m-%d %H:%M:%S} UTC" for moment in state.next)]:
        yield CommandOutput(kind="text", text=text)
    yield CommandOutput(kind="table", columns=_FIRINGS, rows=[_firing(one) for one in firings])
    yield CommandOutput(kind="result", data={**state.to_json(), "firings": [one.to_json() for one in firings]})


async def new(arguments: Arguments, context: PluginContext) -> Output:
    """Write a trigger's file."""
    service, id, call = context.services.get(TRIGGER_MANAGER), _id(arguments), operator_call(context.project.id)
    if path_of(context.project.folder("triggers"), id).exists():
        raise InvalidInput(f"there is a trigger {id} already; change triggers/{id}.json, or delete it")
    trigger = read_model(Trigger, _document(arguments, id), "the trigger")
    if arguments["enable"]:
        await require_target(context, trigger)  # nothing is written that cannot be enabled
    state = await service.save(id, trigger, call=call)
    if arguments["enable"]:
        state = await service.enable(id, call=call)
    for output in _said(state):
        yield output


def _document(arguments: Arguments, id: str) -> dict[str, Any]:
    if arguments["from"]:
        return read_document_file(Path(str(arguments["from"])))
    asked = {key: arguments[key] for key in ("workflow", "agent", "message") if arguments[key]}
    times = {"cron": arguments["cron"], "everySeconds": arguments["every"], "at": arguments["at"]}
    schedule: dict[str, JsonValue] = {key: value for key, value in times.items() if value}
    config = read_json_object(str(arguments["config"]), "--config")
    if schedule and "cron" in schedule:
        schedule["timeZone"] = arguments["time_zone"]
    kind = arguments["kind"] or ("schedule" if schedule else "")
    if not kind:
        raise InvalidInput("say when it fires: --cron, --every or --at, or --kind with --config")
    about = {"name": arguments["name"] or id, "kind": kind, "config": {**config, **schedule}}
    policy = {key: arguments[key] for key in ("missed", "overlap")}
    return {**about, **asked, **policy, "inputs": read_json_object(str(arguments["inputs"]), "--inputs")}


async def enable(arguments: Arguments, context: PluginContext) -> Output:
    """Switch a trigger on."""
    secret = sys.stdin.readline().strip() if arguments["secret_stdin"] else ""
    call, rotate = operator_call(context.project.id), bool(arguments["rotate"])
    service = context.services.get(TRIGGER_MANAGER)
    for output in _said(await service.enable(_id(arguments), secret=secret, rotate=rotate, call=call)):
        yield output


async def disable(arguments: Arguments, context: PluginContext) -> Output:
    """Switch a trigger off."""
    call = operator_call(context.project.id)
    for output in _said(await context.services.get(TRIGGER_MANAGER).disable(_id(arguments), call=call)):
        yield output


async def fire(arguments: Arguments, context: PluginContext) -> Output:
    """Fire a trigger, and wait for the end of what it starts."""
    payload = read_json_object(str(arguments["payload"]), "--payload")
    call = operator_call(context.project.id)
    firing = await context.services.get(TRIGGER_MANAGER).fire(_id(arguments), payload, call=call)
    yield CommandOutput(kind="progress", text=f"{firing.id}: {firing.status.value} {firing.run_id or ''}".rstrip())
    if (triggers := await own_triggers(context)) is None:
        raise ServiceUnavailable("the service triggerManager is another plugin's")
    ended = await triggers.firings.outcome(firing.id)
    yield CommandOutput(kind="result", data=ended.to_json())
    if ended.status in (FiringStatus.ERROR, FiringStatus.SKIPPED):
        yield CommandOutput(kind="failure", text=f"{firing.id}: {ended.status.value}: {ended.reason}")
    else:
        yield CommandOutput(kind="message", text=f"{firing.id}: {ended.status.value}")


async def history(arguments: Arguments, context: PluginContext) -> Output:
    """Show firings."""
    id, limit = arguments["trigger"], arguments["limit"]
    assert isinstance(limit, int)
    service = context.services.get(TRIGGER_MANAGER)
    firings = await service.history(None if id is None else (await service.get(str(id))).id, limit=limit)
    yield CommandOutput(kind="table", columns=_FIRINGS, rows=[_firing(one) for one in firings])
    yield CommandOutput(kind="result", data=[one.to_json() for one in firings])


async def delete(arguments: Arguments, context: PluginContext) -> Output:
    """Delete a trigger."""
    await context.services.get(TRIGGER_MANAGER).delete(_id(arguments), call=operator_call(context.project.id))
    yield CommandOutput(kind="message", text=f"Deleted {_id(arguments)}")


def _said(state: TriggerState) -> list[CommandOutput]:
    """Return the answer about a trigger that was changed: a secret this once."""
    said = [CommandOutput(kind="message", text=f"{state.id}: {state.status}")]
    if state.next:
        said.append(CommandOutput(kind="text", text=f"next: {state.next[0]:%Y-%m-%d %H:%M:%S} UTC"))
    if state.address and state.status == "on":
        said.append(CommandOutput(kind="text", text=f"address: {state.address}"))
    if isinstance(state, EnabledTrigger) and state.secret:
        said.append(CommandOutput(kind="text", text=f"secret, shown this once: {state.secret}"))
    return [*said, CommandOutput(kind="result", data=state.to_json())]


def _row(state: TriggerState) -> list[str]:
    trigger, last = state.trigger, state.last
    fired = f"{last.due_at:%Y-%m-%d %H:%M} {last.status.value}" if last is not None else ""
    due = f"{state.next[0]:%Y-%m-%d %H:%M:%S}" if state.next else ""
    name, kind = (trigger.name, trigger.kind) if trigger is not None else ("", "")
    return [state.id, name, kind, state.status, due, fired]


def _firing(one: Firing) -> list[str]:
    return [f"{one.due_at:%Y-%m-%d %H:%M:%S}", one.trigger_id, one.status.value, one.run_id or "", one.reason]


def _id(arguments: Arguments) -> str:
    return str(arguments["trigger"])
