"""The commands `tavern character …`; each hands over to the service and shows what it gave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tavern_characters.api.characters import CHARACTERS, BegunConversation, Characters
from tavern_characters.web import ExportQuery
from tavern_host import CommandOutput, PluginContext
from tavern_host.contracts.calls import operator_call
from tavern_host.contracts.documents import read_document_bytes, read_model
from tavern_host.storage.files import write_atomic
from tavern_importers.api.naming import require_kind

Arguments = dict[str, Any]
Output = AsyncIterator[CommandOutput]
_CARDS = ("character", "character-picture", "character-archive")


async def list_characters(arguments: Arguments, context: PluginContext) -> Output:
    """Show the characters as a table, and what is wrong with their cards."""
    found = await _service(context).list_characters()
    rows = [[one.id, one.name, str(one.greetings), one.picture or ""] for one in found if one.problem is None]
    yield CommandOutput(kind="table", columns=["character", "name", "greetings", "picture"], rows=rows)
    for one in found:
        if one.problem is not None:
            yield CommandOutput(kind="progress", text=f"{one.id}: {one.problem}")
    yield CommandOutput(kind="result", data=[one.to_json() for one in found])


async def import_card(arguments: Arguments, context: PluginContext) -> Output:
    """Make an agent of a card, name what of it has no effect, and begin a conversation."""
    path, call = Path(arguments["file"]), operator_call(context.project.id)
    await require_kind(context, path, *_CARDS, wanted="character card")
    content = await asyncio.to_thread(read_document_bytes, path)
    made = await _service(context).import_card(
        content, name=path.name, character=arguments["id"], replace=arguments["replace"], call=call
    )
    yield CommandOutput(kind="message", text=f"{made.name} is the agent {made.id} ({made.format})")
    if made.base is not None:
        yield CommandOutput(kind="message", text=f"Its book is the knowledge base {made.base}: {made.entries} entries")
    if made.unsupported:
        yield CommandOutput(kind="progress", text=f"kept, without effect here: {', '.join(made.unsupported)}")
    begun = await _service(context).begin(made.id, call=call)
    for output in _shown(begun):
        yield output
    yield CommandOutput(kind="result", data={**made.to_json(), "conversation": begun.to_json()})


async def begin(arguments: Arguments, context: PluginContext) -> Output:
    """Begin a conversation, and show its greeting."""
    begun = await _service(context).begin(arguments["character"], call=operator_call(context.project.id))
    for output in _shown(begun):
        yield output
    yield CommandOutput(kind="result", data=begun.to_json())


def _shown(begun: BegunConversation) -> list[CommandOutput]:
    how = f"tavern agent run {begun.agent} --conversation {begun.id}"
    said = [CommandOutput(kind="text", text=begun.greeting)] if begun.greeting else []
    return [*said, CommandOutput(kind="progress", text=f"To answer: {how}")]


async def export_card(arguments: Arguments, context: PluginContext) -> Output:
    """Write a character as a card, and name what that cannot hold."""
    asked = read_model(ExportQuery, {"format": arguments["format"]}, "the format")
    call = operator_call(context.project.id)
    made = await _service(context).export_card(arguments["character"], format=asked.format, call=call)
    path = Path(arguments["output"] or Path.cwd() / made.name)
    await asyncio.to_thread(write_atomic, path, made.content)
    yield CommandOutput(kind="text", text=str(path))
    if made.unsupported:
        yield CommandOutput(kind="progress", text=f"not in the file: {', '.join(made.unsupported)}")
    yield CommandOutput(kind="result", data={"file": str(path), "unsupported": list(made.unsupported)})


async def import_preset(arguments: Arguments, context: PluginContext) -> Output:
    """Make a workflow of a preset, and name what of it has no effect."""
    path, call = Path(arguments["file"]), operator_call(context.project.id)
    await require_kind(context, path, "preset", wanted="preset of SillyTavern")
    content = await asyncio.to_thread(read_document_bytes, path)
    made = await _service(context).import_preset(content, name=path.name, character=arguments["character"], call=call)
    yield CommandOutput(kind="text", text=made.workflow)
    if made.unsupported:
        yield CommandOutput(kind="progress", text=f"without effect here: {', '.join(made.unsupported)}")
    yield CommandOutput(kind="result", data=made.to_json())


async def import_chat(arguments: Arguments, context: PluginContext) -> Output:
    """Make a conversation of a chat, and name what of it is left out."""
    path = Path(arguments["file"])
    await require_kind(context, path, "chat", wanted="chat of SillyTavern")
    content = await asyncio.to_thread(read_document_bytes, path)
    made = await _service(context).import_chat(
        content, character=arguments["character"], call=operator_call(context.project.id)
    )
    yield CommandOutput(kind="message", text=f"{made.messages} messages with {made.agent}: the conversation {made.id}")
    if made.unsupported:
        yield CommandOutput(kind="progress", text=f"left out: {', '.join(made.unsupported)}")
    how = f"tavern agent run {made.agent} --conversation {made.id}"
    yield CommandOutput(kind="progress", text=f"To continue: {how}")
    yield CommandOutput(kind="result", data=made.to_json())


async def export_chat(arguments: Arguments, context: PluginContext) -> Output:
    """Write a conversation as a chat."""
    made = await _service(context).export_chat(arguments["conversation"], branch=arguments["branch"])
    path = Path(arguments["output"] or Path.cwd() / made.name)
    await asyncio.to_thread(write_atomic, path, made.content)
    yield CommandOutput(kind="text", text=str(path))
    yield CommandOutput(kind="result", data={"file": str(path)})


async def persona(arguments: Arguments, context: PluginContext) -> Output:
    """Show who the operator is in conversations, after what the options change."""
    call = operator_call(context.project.id)
    found = await _service(context).persona(call=call)
    changes = {key: arguments[key] for key in ("name", "description") if arguments[key] is not None}
    if changes:
        changed = read_model(type(found), {**found.to_json(), **changes}, "the persona")
        found = await _service(context).save_persona(changed, call=call)
    yield CommandOutput(kind="text", text=f"{found.name}: {found.description}" if found.description else found.name)
    yield CommandOutput(kind="result", data=found.to_json())


def _service(context: PluginContext) -> Characters:
    return context.services.get(CHARACTERS)
