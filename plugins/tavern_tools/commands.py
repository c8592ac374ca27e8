"""The commands `tavern tools list | show | call` and `tavern parse`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from pydantic import JsonValue

from tavern_host.context import PluginContext
from tavern_host.contracts.commands import CommandOutput
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.tools import TOOL_MANAGER, ToolCallRequest, ToolDefinition, ToolErrorType, ToolResult
from tavern_tools.documentation import describe_tool
from tavern_tools.registry import registry_of

_USER_MISTAKES = (ToolErrorType.TOOL_NOT_FOUND, ToolErrorType.PARAMETER_VALIDATION)
_PROTOCOL = "command-line"


async def list_tools(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """`tools list`."""
    tools = await context.services.get(TOOL_MANAGER).list_tools()
    rows = [[t.id, t.kind, t.plugin or "project", t.unavailable or "", t.display_name] for t in tools]
    yield CommandOutput(kind="table", columns=["Tool", "Kind", "From", "Cannot be called", "Name"], rows=rows)
    for problem in (await registry_of(context).catalogue()).problems:
        yield CommandOutput(kind="progress", text=str(problem))
    yield CommandOutput(kind="result", data=[tool.to_json() for tool in tools])


async def show_tool(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """`tools show ID`."""
    tool = await context.services.get(TOOL_MANAGER).get(str(arguments["id"]))
    yield CommandOutput(kind="text", text=describe_tool(tool))
    yield CommandOutput(kind="text", text=_origin(tool))
    yield CommandOutput(kind="result", data=tool.to_json())


async def call_tool(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """`tools call ID --arg k=v`: exit code 1 if the call fails, 2 for an unknown tool or wrong arguments."""
    given = arguments.get("arg")
    values = read_arguments([str(text) for text in given] if isinstance(given, list) else [])
    request = ToolCallRequest(tool_id=str(arguments["id"]), arguments=values, protocol=_PROTOCOL)
    result = await context.services.get(TOOL_MANAGER).call(request)
    for note in result.coercions:
        yield CommandOutput(kind="progress", text=note)
    yield CommandOutput(kind="result", data=result.to_json())
    yield _outcome(result)


async def parse(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """`parse FILE|-`: what the text asks for; nothing is carried out."""
    text = await asyncio.to_thread(_read, Path(str(arguments["file"])))
    parsed = await context.services.get(TOOL_MANAGER).parse_text(text)
    for request in parsed.calls:
        step = f"step {request.index}" + (f" of {request.request_id}" if request.request_id else "")
        lines = [f"{request.tool_id} ({step}, {request.protocol}, on error: {request.on_error})"]
        lines += [f"  {name} = {json.dumps(value, ensure_ascii=False)}" for name, value in request.arguments.items()]
        yield CommandOutput(kind="text", text="\n".join(lines))
    if not parsed.calls:
        yield CommandOutput(kind="text", text="no calls")
    for warning in parsed.warnings:
        yield CommandOutput(kind="text", text=f"warning: {warning}")
    if parsed.text.strip():
        yield CommandOutput(kind="text", text=f"remaining text:\n{parsed.text.strip()}")
    yield CommandOutput(kind="result", data=parsed.to_json())


def read_arguments(given: list[str]) -> dict[str, JsonValue]:
    """Return `NAME=VALUE` texts as arguments. Raises `InvalidInput`."""
    values: dict[str, JsonValue] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidInput(f"--arg expects NAME=VALUE, got {text!r}")
        if name in values:
            raise InvalidInput(f"--arg {name} is given twice")
        values[name] = value
    return values


def _outcome(result: ToolResult) -> CommandOutput:
    if result.error is None:
        return CommandOutput(kind="text", text="".join(part.text or "" for part in result.content))
    exit_code = 2 if result.error.type in _USER_MISTAKES else 1
    return CommandOutput(kind="failure", text=f"{result.error.type}: {result.error.message}", exit_code=exit_code)


def _origin(tool: ToolDefinition) -> str:
    implementation = json.dumps(tool.implementation.to_json(), ensure_ascii=False)
    owner = f"plugin {tool.plugin}" if tool.plugin else "the project"
    return f"  - From: {owner} ({tool.source}), version {tool.version}\n  - Carried out by: {implementation}"


def _read(path: Path) -> str:
    try:
        # The host may have made "-" absolute, as it does with paths.
        return sys.stdin.read() if path.name == "-" else path.read_text("utf-8")
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8 text") from error
