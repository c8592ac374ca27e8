"""`tavern assist`: the assistant in the terminal. It proposes, shows what would be another, and asks."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from tavern_agents.api.agents import AgentRequest
from tavern_assistant.deliberation.answers import LINK
from tavern_assistant.deliberation.difference import difference
from tavern_assistant.deliberation.outcome import Outcome
from tavern_assistant.deliberation.requests import AGENT, latest_record
from tavern_assistant.state import State
from tavern_host import AGENT_RUNTIME, WORKFLOW_MANAGER, CommandOutput, PluginContext
from tavern_host.contracts.calls import new_id, operator_call
from tavern_host.contracts.documents import read_document_file, revision_of
from tavern_host.contracts.errors import Conflict, InvalidInput
from tavern_host.contracts.languages import say
from tavern_host.contracts.wire import without_surrogates
from tavern_host.storage.files import write_atomic


@dataclass(frozen=True)
class _Named:
    """The workflow that a request is about: of the project by its `id`, or a file elsewhere."""

    document: dict[str, Any]
    revision: str
    id: str | None = None
    path: Path | None = None


async def assist(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Ask the assistant for a change of a workflow, or something about it."""
    request = without_surrogates(str(arguments["request"])).strip()
    if not request:
        raise InvalidInput("there is no request: say in words what is to be done")
    named = await _named(str(arguments["file"]), context)
    conversation = new_id("assist")
    world: dict[str, Any] = {"request": request, "workflow": named.document, "conversationId": conversation}
    world["run"] = None if named.id is None else await latest_record(context, named.id)
    yield CommandOutput(kind="progress", text="The assistant is thinking …")
    asked = AgentRequest.construct(profile_id=AGENT, message=request, conversation_id=conversation, world_state=world)
    reply = await context.services.get(AGENT_RUNTIME).run(asked, call=operator_call(context.project.id))
    outcome = context.own(State).outcomes.pop(conversation, Outcome(True, {}))
    result: dict[str, Any] = {"outcome": "answered", "reply": reply.text, "conversationId": conversation, "changes": []}
    if reply.outcome != "reply":
        yield CommandOutput(kind="failure", text=f"the assistant ended without an answer: {reply.error}")
        return
    yield CommandOutput(kind="text", text=LINK.sub(r"\1 (\2)", reply.text))
    if outcome.is_refused:
        yield CommandOutput(kind="result", data={**result, "outcome": "refused"})
        yield CommandOutput(kind="failure", text="nothing was changed: the assistant found no change that is valid")
        return
    if outcome.update is None:
        yield CommandOutput(kind="result", data=result)
        return
    proposed = outcome.update["workflow"]
    result |= {"changes": outcome.update["changes"], "operations": outcome.update["operations"], "workflow": proposed}
    yield CommandOutput(kind="text", text="")
    for tone, line in await asyncio.to_thread(difference, named.document, proposed):
        yield CommandOutput(kind="text", text=line, tones=[tone])
    result["outcome"] = await _decided(arguments)
    if result["outcome"] == "applied":
        result["revision"] = await _write(named, proposed, context)
    said = {
        "applied": f"Changed {named.id or named.path}.",
        "declined": "Nothing was changed.",
        "proposed": "Nothing was changed: with --apply the changes are made.",
    }
    yield CommandOutput(kind="progress", text=said[result["outcome"]])
    yield CommandOutput(kind="result", data=result)


async def _decided(arguments: dict[str, JsonValue]) -> str:
    """Return the status of a proposal after the decision; it stays `proposed` where nobody can be asked."""
    if arguments.get("apply"):
        return "applied"
    if not sys.stdin.isatty():
        return "proposed"
    sys.stderr.write(f"{say('Make these changes? [y]es, [n]o:')} ")
    sys.stderr.flush()
    said = (await asyncio.to_thread(sys.stdin.readline)).strip().lower()
    return "applied" if said[:1] in ("y", "是") else "declined"


async def _named(name: str, context: PluginContext) -> _Named:
    """Return the workflow of a file or of an id. Raises `NotFound`, `InvalidInput`."""
    path = Path(name)
    real, folder = await asyncio.to_thread(lambda: (path.resolve(), context.project.folder("workflows").resolve()))
    if await asyncio.to_thread(path.is_file):
        if not real.is_relative_to(folder):
            document = await asyncio.to_thread(read_document_file, path)
            await context.services.get(WORKFLOW_MANAGER).parse(document)
            return _Named(document, revision_of(document), path=path)
        name = real.relative_to(folder).as_posix()
    stored = await context.services.get(WORKFLOW_MANAGER).get(name)
    document = stored.workflow.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return _Named(document, stored.revision, id=stored.id)


async def _write(named: _Named, document: dict[str, Any], context: PluginContext) -> str:
    """Write the workflow where it came from; return its revision. Raises `Conflict` where it was changed meanwhile."""
    if named.path is None:
        manager = context.services.get(WORKFLOW_MANAGER)
        call = operator_call(context.project.id)
        workflow = await manager.parse(document)
        saved = await manager.save(str(named.id), workflow, expected_revision=named.revision, call=call)
        return saved.revision
    if revision_of(await asyncio.to_thread(read_document_file, named.path)) != named.revision:
        raise Conflict(f"{named.path} was changed while the assistant worked; nothing is overwritten")
    text = json.dumps(document, ensure_ascii=False, indent=2) + "\n"
    await asyncio.to_thread(lambda path: write_atomic(path.resolve(), text.encode()), named.path)
    return revision_of(document)
