"""`tavern runs list`, `show`, `resume` and `retry`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from pydantic import JsonValue

from tavern_engine.api.executions import RunSummary
from tavern_engine.api.runs import RUN_STORE
from tavern_engine.cli.commands import documents_with, find_workflow
from tavern_engine.cli.follow import Documents, follow
from tavern_engine.cli.run_text import (
    counted,
    moment,
    repetitions,
    shortened,
    tally,
    timeline,
    times_of,
    took,
    value_text,
    word_of,
    work_of,
)
from tavern_engine.journal.documents import documents_of
from tavern_engine.run_query import find_run, run_filter
from tavern_host import EXECUTION_ENGINE, CommandOutput, NotFound, PluginContext, clock
from tavern_host.contracts.calls import operator_call
from tavern_host.contracts.errors import Conflict, TavernError
from tavern_host.contracts.executions import NodeState, Run, RunRequest
from tavern_host.contracts.names import did_you_mean

_SHORT_ID = len("run_") + 8
_LONG = 500


async def list_runs(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """List runs, newest first."""
    query = {
        "status": ",".join(arguments["status"]),
        "workflowId": arguments["workflow"] or "",
        "since": arguments["since"] or "",
        "limit": str(arguments["limit"]),
    }
    here = clock.now().astimezone().tzinfo
    found = await context.services.get(EXECUTION_ENGINE).history(run_filter(query, zone=here))
    width = _id_width([run.id for run in found])
    columns = ["run", "status", "workflow", "asked for", "took", "error"]
    yield CommandOutput(kind="table", columns=columns, rows=[_listed(run, width) for run in found])
    yield CommandOutput(kind="result", data=[run.to_json() for run in found])


def _id_width(ids: list[str]) -> int:
    """Return how many letters of the ids tell them apart, at least so many that they look like ids."""
    width = _SHORT_ID
    while len({i[:width] for i in ids}) < len(set(ids)):
        width += 4
    return width


def _listed(run: RunSummary, width: int) -> list[str]:
    name = run.workflow_name or run.workflow_id or ""
    status = run.status.value + (f" (attempt {run.attempt})" if run.attempt > 1 else "")
    return [
        run.id[:width],
        status,
        shortened(name, 40),
        moment(run.submitted_at),
        took(run),
        shortened(run.error or "", 80),
    ]


async def show(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Show a run: what was asked, what its nodes did when, what it gave; or one node with its whole output."""
    run = await find_run(arguments["run"], context)
    for output in _whole(run) if arguments["node"] is None else _node(run, arguments["node"]):
        yield output


def _whole(run: Run) -> list[CommandOutput]:
    said = [_text(line) for line in _head(run)]
    said += _values("Inputs", run.inputs)
    if run.nodes:
        rows, left_out = timeline(run)
        columns = ["node", "status", "began", "took", "", ""]
        said.append(CommandOutput(kind="table", title=tally(run.nodes.values()), columns=columns, rows=rows))
        if left_out:
            said.append(_text(f"{counted(left_out, 'node')} more, quicker than these; --json has all\n"))
    said += _values("Outputs", run.outputs)
    said.append(CommandOutput(kind="result", data=run.to_json()))
    return said


def _head(run: Run) -> list[str]:
    name = run.workflow_name or run.workflow_id or "a workflow without a name"
    stored = f" ({run.workflow_id})" if run.workflow_id and run.workflow_id != name else ""
    by = f", by {run.principal}" if run.principal is not None else ""
    facts = {
        "workflow": f"{shortened(name, 60)}{stored}",
        "asked for": f"{moment(run.submitted_at)}{by}",
        "began": moment(run.started_at),
        "ended": f"{moment(run.finished_at)}, after {took(run)}" if took(run) else moment(run.finished_at),
        "targets": ", ".join(run.targets),
        "priority": str(run.priority) if run.priority else "",
        "continues": run.continues or "",
        "attempt": str(run.attempt) if run.attempt > 1 else "",
        "error": run.error.message if run.error is not None else "",
        "resumable": f"no: {run.not_resumable}" if run.not_resumable else "",
    }
    return [f"{run.id}: {run.status.value}", *(f"  {word + ':':14}{fact}" for word, fact in facts.items() if fact), ""]


def _values(title: str, values: dict[str, JsonValue]) -> list[CommandOutput]:
    if not values:
        return []
    said = [_text(f"{title}:")]
    for key, value in values.items():
        text = value_text(value)
        is_long = len(text) > _LONG
        shown = text[:_LONG] + f" … ({len(text):,} letters; --json has all)" if is_long else text
        said.append(_text(f"  {key}: " + shown.replace("\n", "\n    ")))
    return [*said, _text("")] if title == "Inputs" else said


def _node(run: Run, node_id: str) -> list[CommandOutput]:
    state = run.nodes.get(node_id)
    if state is None:
        raise NotFound(f"the run {run.id} has no node {node_id!r:.60}{did_you_mean(node_id, run.nodes)}")
    said = [_text(line) for line in _node_head(node_id, state)]
    for key, value in (state.output or {}).items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
        said += [_text(f"{key}:"), _text(text)]
    said.append(CommandOutput(kind="result", data={"id": node_id, **state.to_json()}))
    return said


def _node_head(node_id: str, state: NodeState) -> list[str]:
    began, span = times_of(state)
    facts = [f"began {began}" if began else "", f"took {span}" if span else "", *repetitions(state), *work_of(state)]
    lines = [", ".join([f"{node_id}: {word_of(state)}", *filter(None, facts)])]
    return lines + ([f"error: {state.error.message}"] if state.error is not None else [])


async def interrupt(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Interrupt a run. Raises `Conflict` for one that has finished."""
    run = await find_run(str(arguments["run"]), context)
    if not await context.services.get(EXECUTION_ENGINE).interrupt(run.id, call=operator_call(context.project.id)):
        raise Conflict(f"the run {run.id} has finished already")
    yield CommandOutput(kind="message", text=f"the run {run.id} is being interrupted")


async def resume(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Resume a run that failed or was interrupted, as it was or with another document, and show it."""
    run = await find_run(str(arguments["run"]), context)
    engine, call = context.services.get(EXECUTION_ENGINE), operator_call(context.project.id)
    documents, changed = await _documents(run, context), None
    if (name := arguments["workflow"]) is not None:
        workflow_id, workflow = await find_workflow(str(name), context)
        changed = RunRequest(workflow_id=workflow_id, workflow=workflow)
        documents = await documents_with(workflow, context)

    async def begin() -> str:
        return (await engine.resume(run.id, changed=changed, call=call)).run_id

    async for output in follow(begin, documents, context):
        yield output


async def retry(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Run a run's workflow once more with the same inputs, and show it."""
    run = await find_run(str(arguments["run"]), context)
    engine, call = context.services.get(EXECUTION_ENGINE), operator_call(context.project.id)
    documents = await _documents(run, context)
    async for output in follow(lambda: engine.rerun(run.id, call=call), documents, context):
        yield output


async def _documents(run: Run, context: PluginContext) -> Documents:
    """Return the workflows of a run as they were when it was accepted; none where they are not kept."""
    try:
        store = context.services.get(RUN_STORE)
        return Documents(*await documents_of(await store.get(run.id), store.content))
    except TavernError:  # they say what nodes are called, and no more
        return Documents()


def _text(text: str) -> CommandOutput:
    return CommandOutput(kind="text", text=text)
