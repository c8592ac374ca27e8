"""What a language model reads about tools: a list in Markdown, and JSON Schemas."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pydantic import JsonValue

from tavern_host.contracts.tools import ToolDefinition
from tavern_tools.catalog.names import quoted
from tavern_tools.catalog.schemas import referred, type_name

_MAX_DEPTH = 4
_MAX_EXAMPLES = 3
_MAX_EXAMPLE = 2_000
_BOUNDS = (
    ("minimum", "At least {}."),
    ("exclusiveMinimum", "More than {}."),
    ("maximum", "At most {}."),
    ("exclusiveMaximum", "Less than {}."),
    ("minLength", "At least {} characters."),
    ("maxLength", "At most {} characters."),
    ("minItems", "At least {} items."),
    ("maxItems", "At most {} items."),
)


def describe_tool(tool: ToolDefinition) -> str:
    """Return a tool's id, description, parameters and examples as an indented list."""
    lines = [f"- Tool ID: {tool.id}"]
    description = _line(tool.description or tool.display_name)
    if description:
        lines.append(f"  - Description: {description}")
    if tool.unavailable:
        lines.append(f"  - Cannot be called now: {tool.unavailable}")
    lines += [f"  - Note: {note}" for note in _notes(tool)]
    parameters = list(_properties(tool.parameters, for_callers(tool.parameters), "    ", depth=1))
    lines += ["  - Parameters:", *parameters] if parameters else ["  - Parameters: none"]
    examples = list(_examples(tool.examples[:_MAX_EXAMPLES]))
    lines += ["  - Examples:", *examples] if examples else []
    return "\n".join(lines)


def _notes(tool: ToolDefinition) -> Iterable[str]:
    if tool.requires_approval:
        which = "each call waits" if tool.requires_approval is True else "some calls wait"
        yield f"{which} until a person approves it"
    if tool.is_async:
        yield "a call gives a task id at once; system:task_result gives its result"


def _examples(examples: list[dict[str, JsonValue]]) -> Iterable[str]:
    for example in examples:
        description = _line(str(example.get("description") or "")).removesuffix(".")
        shown = quoted(example.get("input", {}), limit=_MAX_EXAMPLE)
        yield f"    - {description}: {shown}" if description else f"    - {shown}"


def describe_unknown(tool_id: str) -> str:
    """Return the entry of an id that no tool has."""
    return f"- Tool ID: {tool_id}\n  - Cannot be called: no tool has this id"


def tool_schema(tool: ToolDefinition) -> dict[str, JsonValue]:
    """Return `{name, description, parameters}` of a tool."""
    return {"name": tool.id, "description": tool.description, "parameters": for_callers(tool.parameters)}


def for_callers(parameters: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a schema of parameters without those that no caller gives: what is `readOnly` comes from the host."""
    fields = parameters.get("properties")
    if not isinstance(fields, dict) or not any(map(_is_from_the_host, fields.values())):
        return parameters
    return {**parameters, "properties": {name: one for name, one in fields.items() if not _is_from_the_host(one)}}


def _is_from_the_host(field: Any) -> bool:
    return isinstance(field, dict) and field.get("readOnly") is True


def _properties(whole: dict[str, Any], schema: dict[str, Any], indent: str, *, depth: int) -> Iterable[str]:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return
    required = schema.get("required") or []
    for name, part in properties.items():
        part = _resolved(whole, part)
        need = "required" if name in required else "optional"
        said = [_line(str(part.get("description", ""))), _choices(part), *_bounds(part), _default(part)]
        text = " ".join(filter(None, said))
        yield f"{indent}- {name} ({_type(whole, part)}, {need}){': ' if text else ''}{text}"
        if depth < _MAX_DEPTH:
            inner = part
            while inner.get("type") == "array" and "items" in inner:
                inner = _resolved(whole, inner["items"])
            yield from _properties(whole, inner, f"{indent}  ", depth=depth + 1)


def _resolved(whole: dict[str, Any], part: Any) -> dict[str, Any]:
    """Return a part of a schema, with what it refers to filled in."""
    seen: set[str] = set()
    while isinstance(part, dict) and isinstance(part.get("$ref"), str) and part["$ref"] not in seen:
        seen.add(part["$ref"])
        target = referred(whole, part["$ref"])
        part = {**(target if isinstance(target, dict) else {}), **{key: part[key] for key in part if key != "$ref"}}
    return part if isinstance(part, dict) else {}


def _type(whole: dict[str, Any], part: dict[str, Any], depth: int = 1) -> str:
    part = _resolved(whole, part) if depth > 1 else part
    if depth > _MAX_DEPTH:
        return "any"
    for keyword in ("anyOf", "oneOf"):
        if isinstance(part.get(keyword), list):
            return " or ".join(dict.fromkeys(_type(whole, p, depth + 1) for p in part[keyword]))
    kind = part.get("type", _type_of_choices(part))
    if isinstance(kind, list):
        return " or ".join(kind)
    items = part.get("items")
    if kind == "array" and isinstance(items, dict) and items:
        return f"array of {_type(whole, items, depth + 1)}"
    return str(kind)


def _type_of_choices(part: dict[str, Any]) -> str:
    choices = [part["const"]] if "const" in part else part.get("enum")
    return " or ".join(dict.fromkeys(type_name(c) for c in choices)) if isinstance(choices, list) else "any"


def _bounds(part: dict[str, Any]) -> Iterable[str]:
    for keyword, text in _BOUNDS:
        bound = part.get(keyword)
        if bound is not None and not (keyword.startswith("min") and bound == 0 and keyword != "minimum"):
            said = text.format(bound)
            yield re.sub(r" (character|item)s\.$", r" \1.", said) if bound == 1 else said


def _choices(part: dict[str, Any]) -> str:
    choices = [part["const"]] if "const" in part else part.get("enum")
    return f"One of: {', '.join(quoted(c) for c in choices)}." if isinstance(choices, list) else ""


def _default(part: dict[str, Any]) -> str:
    return f"Default: {quoted(part['default'])}." if "default" in part else ""


def _line(text: str) -> str:
    return " ".join(text.split())
