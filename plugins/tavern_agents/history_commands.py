"""The commands `tavern history …`, but for `swipe`, which lets an agent talk and is in `chat.py`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from tavern_agents.api.histories import CHAT_HISTORY, HistoryDetails, HistoryExport, HistoryMessage, HistoryNode
from tavern_agents.commands import read_file
from tavern_host import CommandOutput, PluginContext
from tavern_host.contracts.errors import InvalidInput, describe
from tavern_importers.api.naming import require_kind

_SHOWN = 60
"""How many characters of a message a line of the tree has."""


async def list_histories(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Show conversations, the latest changed first."""
    found = await context.services.get(CHAT_HISTORY).list_histories(limit=arguments["limit"])
    rows = [[one.id, one.title, str(one.messages), f"{one.changed_at:%Y-%m-%d %H:%M:%S}"] for one in found]
    yield CommandOutput(kind="table", columns=["conversation", "title", "messages", "changed (UTC)"], rows=rows)
    yield CommandOutput(kind="result", data=[one.to_json() for one in found])


async def show_history(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Show the messages of a branch."""
    service, history = context.services.get(CHAT_HISTORY), arguments["history"]
    await service.get_history(history)
    found = await service.load_branch(history, arguments["branch"], leaf=arguments["leaf"], last=arguments["last"])
    for output in _messages(found):
        yield output


async def show_tree(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Show all messages, each further way to continue indented; `*` marks those of the active branch."""
    service, history = context.services.get(CHAT_HISTORY), arguments["history"]
    details, nodes = await service.get_history(history), list[HistoryNode]()
    while page := await service.tree(history, limit=10_000, offset=len(nodes)):
        nodes += page
    for line in tree_lines(details, nodes):
        yield CommandOutput(kind="text", text=line)
    yield CommandOutput(kind="result", data={**details.to_json(), "tree": [node.to_json() for node in nodes]})


def tree_lines(details: HistoryDetails, nodes: Sequence[HistoryNode]) -> list[str]:
    """Return the lines of a tree: a message, what follows it, then the further ways to continue."""
    behind: dict[str | None, list[HistoryNode]] = {}
    parents = {node.id: node.parent_id for node in nodes}
    for node in nodes:
        behind.setdefault(node.parent_id, []).append(node)
    names: dict[str, list[str]] = {}
    for branch in details.branches:
        names.setdefault(branch.head, []).append(branch.name)
    at = next((branch.head for branch in details.branches if branch.name == details.active), None)
    active = set[str]()
    while at is not None:
        active.add(at)
        at = parents.get(at)
    lines: list[str] = []
    waiting = [(0, node) for node in reversed(behind.get(None, []))]
    while waiting:
        level, node = waiting.pop()
        said = " ".join([*node.text.split(), *(f"[calls {name}]" for name in node.calls)])
        mark, heads = "*" if node.id in active else " ", ", ".join(names.get(node.id, []))
        text = said if len(said) <= _SHOWN else f"{said[: _SHOWN - 1]}…"
        lines.append(f"{mark} {'  ' * level}{node.id} {node.role}: {text}{f'  <- {heads}' if heads else ''}")
        following = behind.get(node.id, [])
        waiting += [(level + (len(following) > 1), one) for one in reversed(following)]
    return lines


async def change_branches(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Show the branches; or make, rename or forget one, or begin a conversation with its messages."""
    service, history = context.services.get(CHAT_HISTORY), arguments["history"]
    name, message, new, copy, delete = (arguments[key] for key in ("name", "message", "rename", "copy", "delete"))
    if sum(bool(option) for option in (new, copy, delete)) > 1:
        raise InvalidInput("give one of --rename, --delete and --copy")
    if copy is not None:
        if name is not None and message is None:
            message = (await service.load_branch(history, name, last=1))[-1].id
        details = await service.fork_history(history, copy, message_id=message)
    elif name is None:
        if new is not None or delete or message is not None:
            raise InvalidInput("the name of the branch is missing")
        details = await service.get_history(history)
    elif new is not None:
        details = await service.rename_branch(history, name, new)
    elif delete:
        details = await service.delete_branch(history, name)
    else:
        details = await service.fork(history, name, message_id=message)
    for output in _branches(details):
        yield output


async def switch(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Make a branch the active one, or let one go to a message."""
    service, history = context.services.get(CHAT_HISTORY), arguments["history"]
    branch, message, exactly = (arguments[key] for key in ("branch", "message", "exactly"))
    if branch is None and message is None:
        raise InvalidInput("give a branch, or --message")
    head = None if message is None else head_of(await service.get_history(history), branch)
    details = await service.activate(history, branch, message_id=message, head=head, exactly=exactly)
    for output in _branches(details):
        yield output


async def rename_history(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Give a conversation a title."""
    details = await context.services.get(CHAT_HISTORY).rename_history(arguments["history"], arguments["title"])
    yield CommandOutput(kind="message", text=f"The conversation {details.id} is called “{details.title}”")
    yield CommandOutput(kind="result", data=details.to_json())


async def edit(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Keep a changed copy of a message beside it."""
    service, history = context.services.get(CHAT_HISTORY), arguments["history"]
    branch, message, text, keep_rest = (arguments[key] for key in ("branch", "message", "text", "keep_rest"))
    head = head_of(await service.get_history(history), branch)
    found = await service.edit(history, message, text, head=head, branch=branch, keep_rest=keep_rest)
    for output in _messages(found):
        yield output


async def export_history(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Write a conversation as JSON, to a file or to stdout."""
    exported = (await context.services.get(CHAT_HISTORY).export_history(arguments["history"])).to_json()
    output = arguments["output"]
    if output is None:
        yield CommandOutput(kind="text", text=json.dumps(exported, ensure_ascii=False, indent=2))
        yield CommandOutput(kind="result", data=exported)
        return
    try:
        await asyncio.to_thread(Path(output).write_text, json.dumps(exported, ensure_ascii=False), encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{output} cannot be written: {describe(error)}") from None
    yield CommandOutput(kind="message", text=f"Wrote {len(exported['messages'])} messages to {output}")
    yield CommandOutput(kind="result", data={"file": output, "messages": len(exported["messages"])})


async def import_history(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Keep an exported conversation."""
    try:
        exported = await read_file(HistoryExport, arguments["file"])
    except InvalidInput:
        await require_kind(context, Path(arguments["file"]), "conversation", wanted="exported conversation")
        raise
    details = await context.services.get(CHAT_HISTORY).import_history(exported, history_id=arguments["id"])
    for output in _branches(details):
        yield output


async def delete_history(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Forget a conversation with its runs."""
    service, history = context.services.get(CHAT_HISTORY), arguments["history"]
    await service.get_history(history)
    await service.delete(history)
    yield CommandOutput(kind="message", text=f"Deleted the conversation {history}")
    yield CommandOutput(kind="result", data={"deleted": history})


def head_of(details: HistoryDetails, branch: str | None) -> str:
    """Return the head of a branch, by default of the active one; nothing for one that is not there."""
    return next((one.head for one in details.branches if one.name == (branch or details.active)), "")


def _messages(found: Sequence[HistoryMessage]) -> list[CommandOutput]:
    lines = []
    for one in found:
        calls = "".join(f"\n  [calls {call.name} {call.arguments}]" for call in one.message.tool_calls)
        lines.append(CommandOutput(kind="text", text=f"{one.id} {one.message.role}: {one.message.content}{calls}"))
    return [*lines, CommandOutput(kind="result", data=[one.to_json() for one in found])]


def _branches(details: HistoryDetails) -> list[CommandOutput]:
    rows: list[list[str]] = [
        ["*" if one.name == details.active else "", one.name, str(one.messages), one.head] for one in details.branches
    ]
    data: Any = details.to_json()
    table = CommandOutput(kind="table", columns=["active", "branch", "messages", "head"], rows=rows)
    return [table, CommandOutput(kind="result", data=data)]
