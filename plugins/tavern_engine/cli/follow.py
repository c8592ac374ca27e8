"""Follows a run at the command line, from its start to its outputs; `progress_view.py` says how that looks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from tavern_engine.api.runs import RUN_STORE
from tavern_engine.cli.progress_view import ProgressView, text_chunk
from tavern_engine.cli.run_text import value_text
from tavern_engine.cli.stream_text import StreamTexts
from tavern_engine.journal.recorder import NOT_RECORDED
from tavern_host import EXECUTION_ENGINE, CommandOutput, InvalidInput, PluginContext, clock
from tavern_host.contracts.events import Event, Gap
from tavern_host.contracts.executions import Run, RunStatus
from tavern_host.contracts.workflows import Workflow
from tavern_workflows.api.dataflow import group_reference

PICTURE = 0.1
"""Every how many seconds a person is shown how a run stands."""

SUMMARY = 2.0
"""Every how many seconds a line says how far a large run is, where there is no terminal."""

_ASK_AGAIN = 1.0
_BACKLOG = 50_000
_END_WITHIN = 10.0
_WATCHED = ("NODE_*", "EXECUTION_STATUS_UPDATE", "WORKFLOW_INTERFACE_YIELD")


@dataclass
class Documents:
    """The workflow of a run and those of its groups, as far as they are known: what nodes and outputs are called."""

    workflow: Workflow = field(default_factory=Workflow)
    groups: Mapping[str, Workflow] = field(default_factory=dict)
    _nodes: dict[int, dict[str, tuple[str, str | None]]] = field(default_factory=dict)

    def label(self, node_id: str) -> str:
        """Return the label of a node: its id, and its name or type. One in a group is `instance/node`."""
        workflow: Workflow | None = self.workflow
        rest = node_id
        while workflow is not None:
            known = self._known(workflow)
            if rest in known:
                return f"{node_id} ({known[rest][0]})"
            instance, found, rest = rest.partition("/")
            group = known[instance][1] if found and instance in known else None
            workflow = self.groups.get(group) if group is not None else None
        return node_id

    def title(self, key: str) -> str:
        """Return the display name of an output of the workflow, or its key."""
        slot = self.workflow.interface_outputs.get(key)
        title = (slot.display_name if slot is not None else None) or key
        return key if title == "*" else title

    def _known(self, workflow: Workflow) -> dict[str, tuple[str, str | None]]:
        found = self._nodes.get(id(workflow))
        if found is None:
            found = self._nodes[id(workflow)] = {}
            for node in workflow.nodes:
                found[node.id] = (node.display_name or node.type, group_reference(node))
        return found


class _HostStops(Exception):
    """The host stops, or unloads this plugin: what it runs is its own to leave."""


async def follow(
    begin: Callable[[], Awaitable[str]], documents: Documents, context: PluginContext
) -> AsyncIterator[CommandOutput]:
    """Begin a run and show it: what its nodes do, its texts as they come, and in the end what it gave.

    `begin` returns the run's id. Cancelling interrupts the run, but where the host stops: then it is resumed later.
    """
    engine = context.services.get(EXECUTION_ENGINE)
    watching = context.events.subscribe(*_WATCHED, limit=_BACKLOG)
    try:
        try:
            run_id = await begin()
        except InvalidInput as error:
            for output in _refusal(error):
                yield output
            return
        texts = StreamTexts(documents.title)
        view = ProgressView(await engine.get(run_id), documents.label)
        ended = asyncio.create_task(engine.wait(run_id), name=f"end of {run_id}")
        is_left = False
        try:
            try:
                async for output in _watch(run_id, ended, aiter(watching), view, texts, context):
                    yield output
            except _HostStops:
                is_left = True
            finished = await ended
        except asyncio.CancelledError:
            if not is_left:
                for output in await _interrupted(run_id, view, context):
                    yield output
            raise
        finally:
            ended.cancel()
            if not is_left:
                await engine.interrupt(run_id)  # does nothing to a run that has finished
    finally:
        await watching.close()
    for output in _ending(finished, view, texts, documents, context):
        yield output


async def _watch(
    run_id: str,
    ended: asyncio.Task[Run],
    events: AsyncIterator[Event | Gap],
    view: ProgressView,
    texts: StreamTexts,
    context: PluginContext,
) -> AsyncIterator[CommandOutput]:
    """Show what happens until the run has ended; what happens at another host may be heard of in part. Raises
    `_HostStops`."""
    engine = context.services.get(EXECUTION_ENGINE)
    has_missed = False
    picture_at = ask_at = 0.0
    summary_at = clock.monotonic() + SUMMARY
    while True:
        try:
            event = await _next(events)
        except StopAsyncIteration:  # there are no more events
            raise _HostStops from None
        if event is None and ended.done():
            return
        if isinstance(event, Gap):
            has_missed = True
        elif event is not None and event.payload.get("promptId") == run_id:
            for line in _seen(event, view, texts):
                yield CommandOutput(kind="progress", text=line)
            if event.type == "EXECUTION_STATUS_UPDATE" and RunStatus(str(event.payload["status"])).is_final:
                return
        now = clock.monotonic()
        if now < picture_at:
            continue
        picture_at = now + PICTURE
        if has_missed and now >= ask_at:
            ask_at, has_missed = now + _ASK_AGAIN, False
            run = await engine.get(run_id)
            view.sync(run)
            if run.status.is_final:
                return
        text = texts.take()
        if text:
            yield CommandOutput(kind="chunk", text=text)
        yield view.picture()
        if not view.is_small and now >= summary_at:
            summary_at = now + SUMMARY
            yield CommandOutput(kind="progress", text=view.summary_line())
        await asyncio.sleep(0)  # queued events are read without a pause: yield to the run


async def _next(events: AsyncIterator[Event | Gap]) -> Event | Gap | None:
    """Return the next event, or None where none comes in time for the next picture."""
    try:
        async with asyncio.timeout(PICTURE):
            return await anext(events)
    except TimeoutError:
        return None


def _seen(event: Event, view: ProgressView, texts: StreamTexts) -> list[str]:
    """Take in an event; return the lines that it is worth."""
    if event.type != "WORKFLOW_INTERFACE_YIELD":
        return view.see(event.type, event.payload)
    is_last = event.payload.get("isLastChunk") is True
    texts.add(str(event.payload.get("interfaceOutputKey")), text_chunk(event.payload), is_last=is_last)
    return []


async def _interrupted(run_id: str, view: ProgressView, context: PluginContext) -> list[CommandOutput]:
    """Interrupt a run that is not followed any more; return its last output."""
    engine = context.services.get(EXECUTION_ENGINE)
    await engine.interrupt(run_id)
    try:
        async with asyncio.timeout(_END_WITHIN):
            finished = await engine.wait(run_id)
    except TimeoutError:
        return []
    result = CommandOutput(kind="result", data=finished.to_json())
    return [view.last_picture(finished), result, *_how_to_resume(finished, context)]


def _refusal(error: InvalidInput) -> list[CommandOutput]:
    """Return every problem of a run that was not begun, one a line."""
    problems = error.info.details.get("problems")
    items = [p for p in problems if isinstance(p, dict)] if isinstance(problems, list) else []
    lines = [f"{p.get('path')}: {p.get('message')}" for p in items] or [error.message]
    return [CommandOutput(kind="failure", text=line, exit_code=2) for line in lines]


def _ending(
    finished: Run, view: ProgressView, texts: StreamTexts, documents: Documents, context: PluginContext
) -> list[CommandOutput]:
    """Return the last lines of a command about a finished run, without outputs that were shown as they came."""
    rest = texts.take(all_ended=True)
    said = [CommandOutput(kind="chunk", text=rest)] if rest else []
    said.append(view.last_picture(finished))
    if not view.is_small:
        said.append(CommandOutput(kind="progress", text=view.tally(finished)))
    for key, value in finished.outputs.items():
        if texts.text(key) != value:
            said.append(CommandOutput(kind="text", text=f"{documents.title(key)}: {value_text(value)}"))
    missing = ", ".join(map(documents.title, finished.missing_outputs))
    said += [CommandOutput(kind="progress", text=f"No value came to the outputs: {missing}")] if missing else []
    if finished.status is RunStatus.COMPLETE and (finished.not_resumable or "").startswith(NOT_RECORDED):
        said.append(CommandOutput(kind="progress", text=f"The run {finished.id} is not kept: {finished.not_resumable}"))
    said.append(CommandOutput(kind="result", data=finished.to_json()))
    if finished.status is not RunStatus.COMPLETE:
        said += _how_to_resume(finished, context)
        reason = finished.error.message if finished.error else f"the run ended as {finished.status}"
        said.append(CommandOutput(kind="failure", text=reason, exit_code=1))
    return said


def _how_to_resume(finished: Run, context: PluginContext) -> list[CommandOutput]:
    """Return how an incomplete run can be resumed, where runs are recorded."""
    if not context.services.has(RUN_STORE):
        return []
    if finished.not_resumable is not None:
        text = f"The run {finished.id} cannot be resumed: {finished.not_resumable}"
    else:
        text = f"`tavern runs resume {finished.id}` resumes it from here."
    return [CommandOutput(kind="progress", text=text)]
