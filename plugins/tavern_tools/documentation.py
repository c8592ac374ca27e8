"""What a language model reads about tools: the list of `spec/000` §11.2, and JSON Schemas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import JsonValue

from tavern_host.contracts.tools import ToolDefinition
from tavern_tools.naming import quoted

_MAX_DEPTH = 3


def describe_tool(tool: ToolDefinition) -> str:
    """Return a tool's id, description and parameters as an indented list."""
    lines = [f"- Tool ID: {tool.id}"]
    description = _line(tool.description or tool.display_name)
    if description:
        lines.append(f"  - Description: {description}")
    if tool.unavailable:
        lines.append(f"  - Cannot be called now: {tool.unavailable}")
    parameters = list(_properties(tool.parameters, "    ", depth=1))
    lines += ["  - Parameters:", *parameters] if parameters else ["  - Parameters: none"]
    return "\n".join(lines)


def describe_unknown(tool_id: str) -> str:
    """Return the entry of an id that no tool has."""
    return f"- Tool ID: {tool_id}\n  - Cannot be called: no tool has this id"


def tool_schema(tool: ToolDefinition) -> dict[str, JsonValue]:
    """Return `{name, description, parameters}` of a tool (`spec/002` §2.3)."""
    return {"name": tool.id, "description": tool.description, "parameters": tool.parameters}


def _properties(schema: dict[str, Any], indent: str, *, depth: int) -> Iterable[str]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return
    required = schema.get("required") or []
    for name, part in properties.items():
        part = part if isinstance(part, dict) else {}
        need = "required" if name in required else "optional"
        text = " ".join(filter(None, [_line(str(part.get("description", ""))), _choices(part), _default(part)]))
        yield f"{indent}- {name} ({_type(part)}, {need}){': ' if text else ''}{text}"
        if depth < _MAX_DEPTH:
            inner = part.get("items") if part.get("type") == "array" else part
            if isinstance(inner, dict):
                yield from _properties(inner, f"{indent}  ", depth=depth + 1)


def _type(part: dict[str, Any]) -> str:
    for keyword in ("anyOf", "oneOf"):
        if isinstance(part.get(keyword), list):
            return " or ".join(dict.fromkeys(_type(p) for p in part[keyword] if isinstance(p, dict)))
    kind = part.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(kind)
    items = part.get("items")
    return f"array of {_type(items)}" if kind == "array" and isinstance(items, dict) and items else str(kind)


def _choices(part: dict[str, Any]) -> str:
    choices = part.get("enum")
    return f"One of: {', '.join(quoted(c) for c in choices)}." if isinstance(choices, list) else ""


def _default(part: dict[str, Any]) -> str:
    return f"Default: {quoted(part['default'])}." if "default" in part else ""


def _line(text: str) -> str:
    return " ".join(text.split())
