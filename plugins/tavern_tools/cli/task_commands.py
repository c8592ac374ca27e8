"""The commands `tavern tasks list | show | cancel` and `tavern approvals list | approve | answer | refuse`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import JsonValue

from tavern_host.context import PluginContext
from tavern_host.contracts.calls import operator_call
from tavern_host.contracts.commands import CommandOutput
from tavern_host.contracts.documents import read_json_object
from tavern_host.contracts.errors import InvalidInput, NotFound
from tavern_tools.api.asking import ask_at_terminal, field_value, typed, upload_answer
from tavern_tools.api.toolcalls import TaskFilter, TaskStatus, ToolTask
from tavern_tools.api.tools import TOOL_MANAGER
from tavern_tools.catalog.parameters import Parameters
from tavern_tools.requests import arguments_of
from tavern_tools.web.task_routes import task_filter

_PREFIX = "task_"
_PAGE = 1000
_SHOWN = 5
_SHORT_ID = len(_PREFIX) + 8
_LONG = 2000


async def list_tasks(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """`tasks list`."""
    asked = _asked(arguments, ",".join(arguments["status"]))
    tasks = await context.services.get(TOOL_MANAGER).tasks(asked, call=operator_call(context.project.id))
    width = _id_width(tasks)
    rows = [
        [task.id[:width], task.status.value, task.tool_id, str(task.principal), _clock(task.created_at), _note(task)]
        for task in tasks
    ]
    columns = ["task", "status", "tool", "caller", "asked for", ""]
    yield CommandOutput(kind="table", columns=columns, rows=rows)
    yield CommandOutput(kind="result", data=[task.to_json() for task in tasks])


async def show_task(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """`tasks show TASK`."""
    task_id = await _find(arguments["task"], context)
    wait = float(arguments["wait"])
    if wait < 0:
        raise InvalidInput(f"--wait expects a number of seconds, got {wait:g}")
    task = await context.services.get(TOOL_MANAGER).task(task_id, wait=wait, call=operator_call(context.project.id))
    for line in _described(task):
        yield CommandOutput(kind="text", text=line)
    yield CommandOutput(kind="result", data=task.to_json())


async def cancel_task(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """`tasks cancel TASK`: exit code 1 where it had ended, or did not end in time."""
    task_id = await _find(arguments["task"], context)
    manager, call = context.services.get(TOOL_MANAGER), operator_call(context.project.id)
    before = await manager.task(task_id, call=call)
    task = await manager.cancel_task(task_id, call=call)
    yield CommandOutput(kind="result", data=task.to_json())
    if task.status is TaskStatus.CANCELLED and not before.status.is_final:
        yield CommandOutput(kind="message", text=f"{task.id}: cancelled")
    elif task.status.is_final:
        yield CommandOutput(kind="failure", text=f"the task {task.id} has ended already: it is {task.status.value}")
    else:
        text = f"the task {task.id} was asked to end; it is {task.status.value} still"
        yield CommandOutput(kind="failure", text=text)


async def list_approvals(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """`approvals list`."""
    asked = _asked(arguments, TaskStatus.AWAITING_APPROVAL.value)
    tasks = await context.services.get(TOOL_MANAGER).tasks(asked, call=operator_call(context.project.id))
    width = _id_width(tasks)
    rows = []
    for task in tasks:
        reason, until = "", ""
        if task.approval is not None:
            question = task.approval.question
            reason = task.approval.reason if question is None else f"asks: {_shortened(question.message, 200)}"
            until = f"{_clock(task.approval.expires_at)}, then {task.approval.default}"
        shown = _shortened(json.dumps(task.arguments, ensure_ascii=False), 80)
        rows.append([task.id[:width], task.tool_id, str(task.principal), shown, reason, until])
    columns = ["task", "tool", "caller", "arguments", "why", "until"]
    yield CommandOutput(kind="table", columns=columns, rows=rows)
    yield CommandOutput(kind="result", data=[task.to_json() for task in tasks])


async def approve(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """`approvals approve TASK`: exit code 2 where it was decided already, and for wrong arguments."""
    task_id = await _find(arguments["task"], context)
    edited = await _edited(task_id, arguments, context)
    async for output in _decide(task_id, "approve", edited, arguments, context):
        yield output


async def answer(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """`approvals answer TASK [ANSWER]`: exit code 2 where it was answered already, and for an answer that does not
    fit."""
    task_id = await _find(arguments["task"], context)
    call = operator_call(context.project.id)
    task = await context.services.get(TOOL_MANAGER).task(task_id, call=call)
    if task.approval is None or (question := task.approval.question) is None:
        raise InvalidInput(f"the task {task_id} asks no question; `tavern approvals approve` lets its call be made")
    given = [name for name in ("answer", "field", "file") if arguments[name]]
    if len(given) > 1:
        raise InvalidInput("give one of ANSWER, --field and --file")
    said: JsonValue
    if arguments["file"]:
        said = await upload_answer(context, task_id, Path(arguments["file"]), call)
    elif arguments["field"]:
        fields: Any = question.expects.get("properties", {})
        pairs = arguments_of(arguments["field"], None)
        said = {name: field_value(fields.get(name), str(value)) for name, value in pairs.items()}
    elif arguments["answer"]:
        said = typed(question, arguments["answer"])
    elif sys.stdin.isatty():
        said = await ask_at_terminal(context, task_id, question, _ask, call)
    else:
        raise InvalidInput(f"give an answer to: {question.message}")
    decision: Literal["approve", "refuse"] = "refuse" if said is None else "approve"
    async for output in _decide(task_id, decision, None if said is None else {"answer": said}, arguments, context):
        yield output


async def _ask(prompt: str) -> str:
    sys.stderr.write(prompt)
    sys.stderr.flush()
    return await asyncio.to_thread(sys.stdin.readline)


async def refuse(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """`approvals refuse TASK`: exit code 2 where it was decided already."""
    task_id = await _find(arguments["task"], context)
    async for output in _decide(task_id, "refuse", None, arguments, context):
        yield output


async def _decide(
    task_id: str,
    decision: Literal["approve", "refuse"],
    edited: dict[str, JsonValue] | None,
    arguments: dict[str, Any],
    context: PluginContext,
) -> AsyncIterator[CommandOutput]:
    task = await context.services.get(TOOL_MANAGER).decide(
        task_id,
        decision,
        arguments=edited,
        comment=arguments["comment"] or "",
        call=operator_call(context.project.id),
    )
    if decision == "refuse":
        text = f"{task.id}: refused"
    elif task.approval is not None and task.approval.question is not None:
        text = f"{task.id}: answered"
    else:
        text = f"{task.id}: approved; the host that has the task makes the call, or the next `tavern serve`"
    yield CommandOutput(kind="message", text=text)
    yield CommandOutput(kind="result", data=task.to_json())


async def _edited(task_id: str, arguments: dict[str, Any], context: PluginContext) -> dict[str, JsonValue] | None:
    """Return the arguments to approve a call with; None for its own."""
    whole, changed = arguments["arguments"], arguments_of(arguments["arg"], None)
    if whole is not None and changed:
        raise InvalidInput("give either --arguments or --arg")
    if whole is not None:
        return read_json_object(whole, "--arguments")
    if not changed:
        return None
    manager = context.services.get(TOOL_MANAGER)
    task = await manager.task(task_id, call=operator_call(context.project.id))
    tool = await manager.get(task.tool_id)
    bound = Parameters(tool.parameters).bind({**task.arguments, **changed}, text=True)
    return {**task.arguments, **{name: bound.arguments.get(name, value) for name, value in changed.items()}}


async def _find(text: str, context: PluginContext) -> str:
    """Return the id of the task that an id names, or the beginning of one, with or without `task_`.

    Raises `NotFound`, and `InvalidInput` for a beginning that several tasks have.
    """
    manager, call = context.services.get(TOOL_MANAGER), operator_call(context.project.id)
    with contextlib.suppress(NotFound):
        return (await manager.task(text, call=call)).id
    start = text if text.startswith(_PREFIX) else f"{_PREFIX}{text}"
    found: dict[str, None] = {}
    for offset in range(0, 10**9, _PAGE):
        page = await manager.tasks(TaskFilter(limit=_PAGE, offset=offset), call=call)
        found |= dict.fromkeys(task.id for task in page if text and task.id.startswith(start))
        if len(page) < _PAGE or len(found) > _SHOWN:
            break
    if not found:
        raise NotFound(f"there is no task {text!r:.60}; `tavern tasks list` shows those that there are")
    if len(found) > 1:
        more = " …" if len(found) > _SHOWN else ""
        named = ", ".join([*found][:_SHOWN])
        raise InvalidInput(f"{text!r:.60} matches several tasks: {named}{more}; write more of the id")
    return next(iter(found))


def _asked(arguments: dict[str, Any], statuses: str) -> TaskFilter:
    filters = {key: str(arguments.get(key) or "") for key in ("tool", "principal", "limit")}
    return task_filter({**filters, "status": statuses})


def _described(task: ToolTask) -> list[str]:
    facts: dict[str, Any] = {
        "tool": task.tool_id,
        "caller": task.principal,
        "asked for": _clock(task.created_at),
        "began": _clock(task.started_at),
        "ended": _clock(task.finished_at),
        "attempt": task.attempt if task.attempt > 1 else "",
        "progress": _note(task) if not task.status.is_final else "",
    }
    if (approval := task.approval) is not None:
        who = f"by {approval.decided_by}" if approval.decided_by else "by default, when its time was over"
        facts["approval"] = (
            f"{approval.decision} {who}" + (", with other arguments" if approval.edited else "")
            if approval.decision
            else f"waits until {_clock(approval.expires_at)}, then {approval.default}"
        )
        facts["why"] = approval.reason
        facts["comment"] = approval.comment
    if (callback := task.callback) is not None:
        error = f": {callback.error}" if callback.error else ""
        facts["callback"] = f"{callback.url} {callback.status}, attempts: {callback.attempts}{error}"
    lines = [f"{task.id}: {task.status.value}"]
    lines += [f"  {word + ':':12}{fact}" for word, fact in facts.items() if fact]
    lines += [
        f"  {name} = {_shortened(json.dumps(value, ensure_ascii=False))}" for name, value in task.arguments.items()
    ]
    if task.result is not None and task.result.error is not None:
        lines.append(f"{task.result.error.type}: {task.result.error.message}")
    elif task.result is not None:
        text = "".join(part.text or "" for part in task.result.content)
        lines.append(_shortened(text or json.dumps(task.result.structured, ensure_ascii=False)))
    return lines


def _note(task: ToolTask) -> str:
    if task.result is not None and task.result.error is not None:
        return _shortened(task.result.error.message, 80)
    if task.status.is_final:
        return ""
    share = f"{task.progress:.0%} " if task.progress is not None else ""
    return share + _shortened(task.progress_text or "", 80)


def _id_width(tasks: list[ToolTask]) -> int:
    """Return how many letters of the ids tell them apart, at least so many that they look like ids."""
    ids, width = {task.id for task in tasks}, _SHORT_ID
    while len({i[:width] for i in ids}) < len(ids):
        width += 4
    return width


def _clock(when: datetime | None) -> str:
    """Return a time as the clock on the wall shows it."""
    return "" if when is None else when.replace(tzinfo=when.tzinfo or UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _shortened(text: str, length: int = _LONG) -> str:
    return text if len(text) <= length else f"{text[:length]} … ({len(text):,} letters; --json has all)"
