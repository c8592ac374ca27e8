"""Tools of servers as tools of the host. What a server says of them is text of somebody unknown: it is marked, cut, and
without what cannot be seen."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from pydantic import JsonValue

from tavern_host.contracts.tools import ToolDefinition, ToolImplementation
from tavern_mcp.api.servers import McpServers
from tavern_mcp.approvals import Approved
from tavern_mcp.declarations import Declared

ANSWER = "mcp:answer"
"""The tool whose approval is a person's answer to a server."""
MOST_SCHEMA = 64 << 10
_MOST_NAME, _MARKS = 128, "_.-/"
_MOST_TEXT, _AROUND = 1000, 60
_SEEN = "\n\t"
_OBJECT: dict[str, JsonValue] = {"type": "object"}
_OWN: dict[str, tuple[str, str, dict[str, JsonValue]]] = {
    "resources.list": ("resources", "List what the server has to be read.", {}),
    "resources.read": ("resource", "Read something that the server has.", {"uri": {"type": "string"}}),
    "prompts.list": ("prompts", "List the prompts of the server.", {}),
    "prompts.get": ("prompt", "Fill in a prompt of the server.", {"name": {"type": "string"}, "arguments": _OBJECT}),
}
_NEEDED = ("uri", "name")
_ANSWERED = ToolImplementation(kind="service", service=McpServers.service_name, method="answered", values={})


def clean(text: str, most: int = _MOST_TEXT) -> str:
    """Return a text of a server for prompts: without characters that are not seen and macros, and cut."""
    seen = "".join(c for c in text[: 4 * most] if c in _SEEN or unicodedata.category(c) not in ("Cc", "Cf", "Co", "Cs"))
    seen = seen.replace("{{{", "{ { {")
    return seen if len(seen) <= most else f"{seen[: most - 1]}…"


def tool_id(server: str, tool: str) -> str:
    """Return the id of a server's tool."""
    return f"mcp:{server}/{tool}"


def definitions_of(declared: Declared, approved: Approved) -> Iterator[ToolDefinition | str]:
    """Yield the tools of a server as they were approved, and in words why one is left out."""
    server = declared.server
    for name, tool in approved.tools.items():
        if name not in approved.seen or not any(fnmatchcase(name, pattern) for pattern in server.tools):
            continue
        schema = _schema(tool.get("inputSchema"))
        if not _is_name(name) or schema is None:
            yield f"the tool {name[:200]!r} of the MCP server {declared.name} has a name or a schema that is not taken"
            continue
        output = _schema(tool.get("outputSchema"))
        yield _definition(
            declared,
            name,
            ToolImplementation(
                kind="service",
                service=McpServers.service_name,
                method="call_tool",
                values={"server": declared.name, "tool": name},
            ),
            display_name=clean(str(tool.get("title") or name), 100),
            description=str(tool.get("description") or ""),
            parameters={"type": "object", **schema},
            read_only=any(fnmatchcase(name, pattern) for pattern in server.read_only),
            **({"output": output} if output is not None else {}),
        )
    for name, (what, description, properties) in _OWN.items():
        if name not in approved.tools and f"{what.rstrip('s')}s" in approved.has:
            needed: list[JsonValue] = [key for key in properties if key in _NEEDED]
            parameters = {"type": "object", "properties": properties, "required": needed}
            values: dict[str, JsonValue] = {"server": declared.name, "what": what}
            method = ToolImplementation(kind="service", service=McpServers.service_name, method="ask", values=values)
            yield _definition(declared, name, method, description=description, parameters=parameters, read_only=True)


def out_of_reach(server: str, problem: str) -> ToolDefinition:
    """Return the tool that stands for those of a server while it is not known which it has."""
    return ToolDefinition(
        id=tool_id(server, "*"),
        description=f"No tool of the MCP server {server} can be called now.",
        implementation=_ANSWERED,
        unavailable=clean(f"the MCP server {server} cannot be used: {' '.join(problem.split())}", 500),
        listed=False,
    )


def differences(approved: Approved) -> list[str]:
    """Return in words what is other about tools of a server than was approved; a text from where it is another one."""
    found = []
    for tool, now in approved.seen.items():
        for part in filter(None, approved.changes(tool).split(", ")):
            both = [json.dumps(one.get(part), ensure_ascii=False) for one in (approved.tools[tool], now)]
            other = (place for place, (a, b) in enumerate(zip(*both, strict=False)) if a != b)
            start = max(0, next(other, min(map(len, both))) - _AROUND)
            old, new = (clean(("…" if start else "") + one[start:], MOST_SCHEMA) for one in both)
            found.append(f"{tool}: {part} was {old} and is {new}")
    return found


def answer_tool() -> ToolDefinition:
    """Return the tool whose approval is a person's answer."""
    texts: dict[str, JsonValue] = {key: {"type": "string"} for key in ("server", "message", "for")}
    return ToolDefinition(
        id=ANSWER,
        display_name="Answer to an MCP server",
        description="Asks a person on behalf of an MCP server, which gets the `answer` that is approved.",
        implementation=_ANSWERED,
        parameters={
            "type": "object",
            "properties": {**texts, "about": _OBJECT, "answer": _OBJECT},
            "required": ["server", "message"],
        },
        requires_approval=True,
        listed=False,
    )


def _definition(declared: Declared, name: str, method: ToolImplementation, **more: Any) -> ToolDefinition:
    said = f"[of the MCP server {declared.name}] {clean(more.pop('description'))}"
    return ToolDefinition(
        id=tool_id(declared.name, name),
        description=said,
        implementation=method,
        timeout=declared.server.seconds * 1000,
        source=f"MCP server {declared.name}",
        tags=["mcp"],
        **more,
    )


def _is_name(name: str) -> bool:
    """Return whether a name has letters, digits and their accents alone, of any script: nothing that is not seen, or
    that means something in patterns and prompts."""
    return 0 < len(name) <= _MOST_NAME and all(c in _MARKS or unicodedata.category(c)[0] in "LMN" for c in name)


def _schema(schema: Any) -> dict[str, JsonValue] | None:
    """Return a JSON Schema with its texts cleaned, or None for one that is not taken."""
    if not isinstance(schema, dict) or len(json.dumps(schema)) > MOST_SCHEMA:
        return None
    found: dict[str, JsonValue] = _cleaned(schema)
    return None if "{{{" in json.dumps(found) else found


def _cleaned(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_cleaned(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: clean(one) if key in ("description", "title", "$comment") and isinstance(one, str) else _cleaned(one)
        for key, one in schema.items()
    }
