"""The commands `tavern tools list | show | call | docs | check` and `tavern parse`."""

from __future__ import annotations

import asyncio
import functools
import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext, operator_call
from tavern_host.contracts.commands import CommandOutput
from tavern_host.contracts.errors import InvalidInput, TavernError
from tavern_host.contracts.plugins import PLUGINS
from tavern_host.contracts.tools import ToolDefinition
from tavern_host.storage.file_watch import file_stamps
from tavern_importers.api.naming import require_kind
from tavern_scripts.api.scripts import SCRIPT_EXECUTION
from tavern_tools import State
from tavern_tools.api.toolcalls import ToolCallRequest, ToolErrorType, ToolResult, ToolScope, ToolTask
from tavern_tools.api.tools import TOOL_MANAGER, ToolManager
from tavern_tools.calls.script_tools import granted_to_script, without_script
from tavern_tools.catalog.documentation import describe_tool
from tavern_tools.catalog.files import SUFFIX, ToolProblem, check
from tavern_tools.catalog.plugin_check import unserved
from tavern_tools.requests import arguments_of, tool_filter

_USER_MISTAKES = (ToolErrorType.TOOL_NOT_FOUND, ToolErrorType.PARAMETER_VALIDATION)
_PROTOCOL = "command-line"
_LOOK_AGAIN = 1.0
"""Seconds after which a task is looked at again, to show its progress."""

_FILTERS = ("tag", "namespace", "kind", "text", "plugin")


async def list_tools(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """`tools list`."""
    asked = {key: arguments[key] for key in _FILTERS if arguments[key]}
    tools = await context.services.get(TOOL_MANAGER).list_tools(tool_filter(asked))
    rows = [[t.id, t.kind, t.plugin or "project", t.unavailable or "", t.display_name] for t in tools]
    yield CommandOutput(kind="table", columns=["Tool", "Kind", "From", "Cannot be called", "Name"], rows=rows)
    for problem in (await context.own(State).registry.catalog()).problems:
        yield CommandOutput(kind="progress", text=str(problem))
    yield CommandOutput(kind="result", data=[tool.to_json() for tool in tools])


async def show_tool(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """`tools show ID`."""
    tool = await context.services.get(TOOL_MANAGER).get(arguments["id"])
    yield CommandOutput(kind="text", text=describe_tool(tool))
    facts = _facts(tool)
    if tool.kind == "script":
        facts += [f"  - {line}" for line in await granted_to_script(context, tool)]
    yield CommandOutput(kind="text", text="\n".join(facts))
    yield CommandOutput(kind="result", data=tool.to_json())


async def call_tool(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """`tools call ID --arg k=v`: exit code 1 if the call fails, 2 for an unknown tool or wrong arguments."""
    values = arguments_of(arguments["arg"], arguments["arguments"])
    request = ToolCallRequest(tool_id=arguments["id"], arguments=values, protocol=_PROTOCOL)
    manager, call = context.services.get(TOOL_MANAGER), operator_call(context.project.id)
    result = await manager.call(request, scope=ToolScope(streams=True), call=call)
    for note in result.coercions:
        yield CommandOutput(kind="progress", text=note)
    if result.task_id is not None:
        async for line in _followed(manager, result.task_id, call):
            yield CommandOutput(kind="progress", text=line)
        result = (await manager.task(result.task_id, call=call)).result or result
    for part in result.content:
        if part.type == "stream" and part.uri is not None:
            async for output in _streamed(manager, part.uri, call):
                yield output
    if result.error is not None and result.error.type == ToolErrorType.TOOL_NOT_FOUND:
        for problem in (await context.own(State).registry.catalog()).problems:
            yield CommandOutput(kind="progress", text=str(problem))
    yield CommandOutput(kind="result", data=result.to_json())
    yield _outcome(result)


async def document_tools(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """`tools docs`."""
    manager = context.services.get(TOOL_MANAGER)
    ids = arguments["tool"] or [tool.id for tool in await manager.list_tools()]
    for tool_id in ids:
        await manager.get(tool_id)  # an unknown one is the user's mistake
    if arguments["native"]:
        schemas = await manager.native_schemas(ids)
        yield CommandOutput(kind="text", text=json.dumps(schemas, ensure_ascii=False, indent=2))
        yield CommandOutput(kind="result", data=list(schemas))
        return
    documentation = await manager.describe(ids)
    instructions = await manager.instructions(protocols=arguments["protocol"] or None)
    yield CommandOutput(kind="text", text=f"{documentation}\n\n{instructions}")
    yield CommandOutput(kind="result", data={"documentation": documentation, "instructions": instructions})


async def check_tools(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """`tools check`: exit code 1 where a file is wrong; warnings alone are no failure."""
    paths = [Path(path) for path in arguments["path"]]
    for path in paths:
        if not path.exists():
            raise InvalidInput(f"{path} does not exist")
        await require_kind(context, path, wanted="tool file")
    if not paths:
        paths = [context.project.folder("tools")] if file_stamps(str(context.project.folder("tools")), "") else []
    catalog = await context.own(State).registry.catalog()
    loop = asyncio.get_running_loop()
    problems = await asyncio.to_thread(check, paths, catalog, functools.partial(_unserved, context, loop))
    problems += [] if arguments["path"] else await _undeclared(context)
    for problem in problems:
        yield CommandOutput(kind="message", text=f"warning: {problem}" if problem.warning else str(problem))
    yield CommandOutput(kind="result", data=[problem.to_json() for problem in problems])
    wrong = sum(not problem.warning for problem in problems)
    if wrong:
        count = "1 problem" if wrong == 1 else f"{wrong} problems"
        yield CommandOutput(kind="failure", text=f"{count} found", exit_code=1)
    else:
        yield CommandOutput(kind="message", text="Nothing is wrong." if paths else "The project has no tool files.")


async def parse(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """`parse FILE|-`: what the text asks for; nothing is carried out."""
    text = await asyncio.to_thread(_read, Path(arguments["file"]))
    protocols = arguments["protocol"] or None
    parsed = await context.services.get(TOOL_MANAGER).parse_text(text, protocols=protocols)
    for request in parsed.calls:
        step = f"step {request.index}" + (f" of {request.request_id}" if request.request_id else "")
        again = f", {request.retry} more tries" if request.retry else ""
        lines = [f"{request.tool_id} ({step}, {request.protocol}, on error: {request.on_error}{again})"]
        lines += [] if request.refused is None else [f"  refused: {request.refused}"]
        lines += [f"  {name} = {json.dumps(value, ensure_ascii=False)}" for name, value in request.arguments.items()]
        yield CommandOutput(kind="text", text="\n".join(lines))
    if not parsed.calls:
        yield CommandOutput(kind="message", text="no calls")
    for warning in parsed.warnings:
        yield CommandOutput(kind="message", text=f"warning: {warning}")
    if parsed.text.strip():
        yield CommandOutput(kind="text", text=f"remaining text:\n{parsed.text.strip()}")
    yield CommandOutput(kind="result", data=parsed.to_json())


async def _followed(manager: ToolManager, task_id: str, call: CallContext) -> AsyncIterator[str]:
    """Yield lines about a task until it has ended; one that is left alone meanwhile is cancelled."""
    said: str | None = None
    try:
        while not (task := await manager.task(task_id, wait=_LOOK_AGAIN, call=call)).status.is_final:
            line = _standing(task)
            if line != said:
                said = line
                yield line
    except asyncio.CancelledError:
        await manager.cancel_task(task_id, call=call)
        raise


def _standing(task: ToolTask) -> str:
    """Return how a task stands that has not ended."""
    if task.approval is not None and task.approval.decision is None:
        return f"{task.id} waits for approval ({task.approval.reason}): tavern approvals approve {task.id}"
    share = f" {task.progress:.0%}" if task.progress is not None else ""
    return f"{task.id}: {task.status.value}{share}" + (f", {task.progress_text}" if task.progress_text else "")


async def _streamed(manager: ToolManager, handle: str, call: CallContext) -> AsyncIterator[CommandOutput]:
    """Yield what comes out of a stream, as it comes."""
    while True:
        found = await manager.read_stream(handle, call=call)
        for item in found.items:
            text = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False) + "\n"
            yield CommandOutput(kind="chunk", text=text)
        if found.error is not None:
            raise TavernError(f"the stream broke off: {found.error}")
        if found.finished:
            return


def _outcome(result: ToolResult) -> CommandOutput:
    if result.error is None:
        shown = [part.text if part.type == "text" else _shown(part.data) for part in result.content]
        if all(part.type == "stream" for part in result.content):
            shown = []
        return CommandOutput(kind="text", text="\n".join(text or "" for text in shown))
    exit_code = 2 if result.error.type in _USER_MISTAKES else 1
    return CommandOutput(kind="failure", text=f"{result.error.type}: {result.error.message}", exit_code=exit_code)


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _facts(tool: ToolDefinition) -> list[str]:
    """Return lines about a tool for the operator, beyond what a language model reads."""
    implementation = json.dumps(tool.implementation.to_json(), ensure_ascii=False)
    owner = f"plugin {tool.plugin}" if tool.plugin else "the project"
    facts = [f"From: {owner} ({tool.source}), version {tool.version}", f"Carried out by: {implementation}"]
    marks = (("read-only", tool.read_only), ("idempotent", tool.idempotent), ("asynchronous", tool.is_async))
    if named := [name for name, holds in marks if holds]:
        facts.append(f"It is: {', '.join(named)}")
    if tool.timeout is not None:
        facts.append(f"Time limit: {tool.timeout:g} ms")
    if tool.rate_limit is not None:
        facts.append(f"Rate limit: {tool.rate_limit.calls} calls in {tool.rate_limit.seconds:g} s, for each caller")
    if tool.concurrency is not None:
        facts.append(f"At once: {tool.concurrency} calls")
    if tool.cache is not None:
        facts.append(f"Results are kept for {tool.cache.seconds:g} s{', for everybody' if tool.cache.shared else ''}")
    if tool.requires_approval:
        which = "every call" if tool.requires_approval is True else _shown(tool.requires_approval)
        facts.append(f"Needs approval: {which}")
    if tool.permissions:
        facts.append(f"Needs permissions: {', '.join(tool.permissions)}")
    if tool.dependencies:
        facts.append(f"Needs: {', '.join(tool.dependencies)}")
    if tool.security_context is not None:
        facts.append(f"Asks for: {json.dumps(tool.security_context, ensure_ascii=False)}")
    return [f"  - {fact}" for fact in facts]


def _unserved(context: PluginContext, loop: asyncio.AbstractEventLoop, definition: ToolDefinition) -> Iterator[str]:
    """Yield what of services and scripts a tool names that is not there. Not on the event loop."""
    yield from unserved(context, definition)
    if definition.kind == "script" and context.services.has(SCRIPT_EXECUTION):
        owner = next((str(p) for p in Path(definition.source).parents if (p / "plugin.yaml").is_file()), None)
        problem = without_script(context, definition, owner)
        if (message := asyncio.run_coroutine_threadsafe(problem, loop).result()) is not None:
            yield message


async def _undeclared(context: PluginContext) -> list[ToolProblem]:
    """Return the folders `tools` of plugins with tool files that no manifest names."""
    plugins = context.services.get(PLUGINS)
    named = {asset.plugin for asset in await plugins.assets("tools")}
    return [
        ToolProblem(
            message=f"is not read: the manifest of {asset.plugin} does not name it (tools: {{entry: ./tools}})",
            file=str(Path(asset.path) / "tools"),
        )
        for asset in await plugins.assets("plugin")
        if asset.plugin not in named and file_stamps(str(Path(asset.path) / "tools"), SUFFIX)
    ]


def _read(path: Path) -> str:
    try:
        # The host may have made "-" absolute, as it does with paths.
        return sys.stdin.read() if path.name == "-" else path.read_text("utf-8")
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8 text") from error
