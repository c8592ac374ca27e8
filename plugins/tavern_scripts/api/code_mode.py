"""Tools as functions of code: which name each has in Python and in JavaScript, and its signature for a model."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import JsonValue

from tavern_host.contracts.tools import ToolDefinition

CODE_TOOL = "CodeInterpreter:execute"
"""The tool that runs code. It is not among the functions of code: no code runs code by it."""

CodeStyle = Literal["python", "javascript"]

_WORDS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[^\W\d_A-Za-z]+")
_RESERVED = (
    "arguments await break case catch class const continue debugger default delete do else enum eval export extends "
    "false finally for function if implements import in instanceof interface let new null package private protected "
    "public return static super switch this throw true try typeof var void while with yield"
)
_OWN = frozenset({"tool_error", "call", "tools", "undefined", "nan", "infinity"})
_PYTHON_TYPES = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
    "null": "None",
}


def function_names(tool_ids: Iterable[str], style: CodeStyle = "python") -> dict[str, str]:
    """Return the id of the tool that each name calls, with the shortest name of a tool first.

    The short name is that of the last part of the id (`FileOperator.ReadFile` is `read_file`, in JavaScript
    `readFile`); tools that would share one are called by the whole id only (`file_operator_read_file`), and where two
    whole ids give one name the later in order of ids has a number at its end.
    """
    ids = sorted(set(tool_ids))
    whole: dict[str, str] = {}
    for tool_id in ids:
        base = name = _name(tool_id, style)
        number = 1
        while name in whole:
            number += 1
            name = f"{base}_{number}"
        whole[name] = tool_id
    short: dict[str, list[str]] = {}
    for tool_id in ids:
        short.setdefault(_name(_last(tool_id), style), []).append(tool_id)
    only = {name: found[0] for name, found in short.items() if len(found) == 1}
    return {name: tool_id for name, tool_id in only.items() if whole.get(name, tool_id) == tool_id} | whole


def ambiguous_names(tool_ids: Iterable[str], style: CodeStyle = "python") -> dict[str, list[str]]:
    """Return the whole names of the tools that would share a short name, by that."""
    whole = {tool_id: name for name, tool_id in function_names(tool_ids, style).items()}
    found: dict[str, list[str]] = {}
    for tool_id, name in sorted(whole.items()):
        found.setdefault(_name(_last(tool_id), style), []).append(name)
    return {name: names for name, names in found.items() if len(names) > 1}


def signatures(tools: Sequence[ToolDefinition]) -> str:
    """Return the Python signatures of tools with a line about each, for a model that calls them in code."""
    names: dict[str, str] = {}
    for name, tool_id in function_names(tool.id for tool in tools).items():
        names.setdefault(tool_id, name)
    return "\n".join(f"{signature(names[tool.id], tool)}\n    {_line(tool)}" for tool in tools)


def signature(name: str, tool: ToolDefinition) -> str:
    """Return the signature of a tool as a Python function."""
    properties = tool.parameters.get("properties")
    required = tool.parameters.get("required")
    needed = required if isinstance(required, list) else []
    fields = properties if isinstance(properties, dict) else {}
    words = [f"{key}: {_type(fields[key])}" for key in fields if key in needed and key.isidentifier()]
    words += [f"{key}: {_type(fields[key])} = …" for key in fields if key not in needed and key.isidentifier()]
    shown = f"*, {', '.join(words)}" if words else ""
    return f"def {name}({shown}) -> {_type(tool.output)}"


def _line(tool: ToolDefinition) -> str:
    text = " ".join((tool.description or tool.display_name or tool.id).split())
    return f'"""{text} ({tool.id})"""'


def _type(schema: JsonValue) -> str:
    if not isinstance(schema, dict):
        return "object"
    options = schema.get("enum")
    if isinstance(options, list) and 0 < len(options) <= 8:
        return f"Literal[{', '.join(map(repr, options))}]"
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_PYTHON_TYPES.get(str(one), "object") for one in kind)
    if kind == "array" and isinstance(schema.get("items"), dict):
        return f"list[{_type(schema['items'])}]"
    return _PYTHON_TYPES.get(str(kind), "object")


def _last(tool_id: str) -> str:
    return re.split(r"[.:/]", tool_id)[-1] or tool_id


def _name(text: str, style: CodeStyle) -> str:
    words = [word.lower() for word in _WORDS.findall(text)] or ["tool"]
    name = "_".join(words) if style == "python" else words[0] + "".join(word.capitalize() for word in words[1:])
    if not name[0].isalpha():
        name = f"tool_{name}"
    is_taken = keyword.iskeyword(name) or name in _OWN or (style == "javascript" and name in _RESERVED.split())
    return f"{name}_" if is_taken or name.lower() in ("toolerror", "aio") else name
