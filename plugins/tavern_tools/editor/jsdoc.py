"""What of a tool follows from a JavaScript or TypeScript file: from the comment above the function that is exported.

Reads JSDoc alone (`@param {string} [name=value] - words`), by its text; the types of TypeScript are not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tavern_tools.api.toolfiles import ToolDraft

_GAP = r"[ \t]{1,20}"
_EXPORTED = re.compile(
    rf"export{_GAP}(?:default{_GAP})?(?:async{_GAP})?(?:function(?:{_GAP}|{_GAP}?\*{_GAP}?)|(?:const|let|var){_GAP})(\w+)"
)
_ANY_FUNCTION = re.compile(rf"(?:async{_GAP})?function{_GAP}(\w+)")
_STAR = re.compile(r"^[ \t]*\*? ?", re.MULTILINE)
_PARAMETER = re.compile(r"(?:\{([^}]*)\})?[ \t]*(\[(?:[^][]|\[[^][]*\])*\]|[\w$.]+)[ \t]*(?:-[ \t]*)?(.*)", re.DOTALL)
_PLAIN = {
    **{"string": "string", "number": "number", "boolean": "boolean", "bool": "boolean", "bigint": "integer"},
    **{"integer": "integer", "int": "integer", "object": "object", "array": "array", "null": "null"},
}
_LONGEST_TYPE = 200
_MANY = re.compile(r"(?:array|set)\.?<(.*)>|(.*)\[\]", re.IGNORECASE)


def draft_javascript(code: str, entry_point: str | None) -> ToolDraft:
    """Return the draft of a tool from the comments of a file: of the function that is named, or where there is none
    such, of the one that would be without a name."""
    exported = {match[1]: match.start() for match in _EXPORTED.finditer(code)}
    functions = {match[1]: match.start() for match in _ANY_FUNCTION.finditer(code)} | exported
    comments = dict(_comments(code))
    name, notes = entry_point, list[str]()
    if name not in functions:
        name = next((one for one, at in exported.items() if at in comments), next(iter(exported), None))
        if entry_point is not None:
            notes.append(f"the code exports no function {entry_point}{f'; this is of {name}' if name else ''}")
    text = comments.get(functions[name]) if name is not None else next(iter(comments.values()), None)
    if text is None:
        notes.append(f"there is no comment /** … */ {f'above {name}' if name else 'in the code'}")
        return ToolDraft(entry_point=name, parameters=_object({}, []), notes=notes)
    return _of_comment(_STAR.sub("", text).strip(), name).model_copy(update={"notes": notes})


def _comments(code: str) -> Iterator[tuple[int, str]]:
    """Yield each comment of this form, with where the code after it begins."""
    at = code.find("/**")
    while at >= 0 and (end := code.find("*/", at + 3)) >= 0:
        after = end + 2
        while code[after : after + 1].isspace():
            after += 1
        yield after, code[at + 3 : end]
        at = code.find("/**", after)


def _of_comment(text: str, name: str | None) -> ToolDraft:
    said, *tags = re.split(r"^@", text, flags=re.MULTILINE)
    properties: dict[str, dict[str, Any]] = {}
    required: list[str] = []
    output: dict[str, Any] | None = None
    for tag in tags:
        kind, _, rest = tag.partition(" ")
        if kind in ("param", "arg", "argument", "property") and (match := _PARAMETER.match(rest.strip())):
            _add(properties, required, *match.groups())
        elif kind in ("returns", "return") and (match := re.match(r"\{([^}]*)\}", rest.strip())):
            output = _schema(match[1].removeprefix("Promise<").removesuffix(">")) or None
        elif kind == "description":
            said = f"{said}\n{rest}"
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name or "").replace("_", " ").strip().capitalize()
    parameters = _object(properties, required)
    return ToolDraft(
        entry_point=name, display_name=words, description=said.strip(), parameters=parameters, output=output
    )


def _add(properties: dict[str, Any], required: list[str], kind: str | None, named: str, about: str) -> None:
    """Add a parameter; `input.name` is a field of the one object that the function takes, which is none itself."""
    is_optional = named.startswith("[")
    name, _, default = (named[1:-1] if is_optional else named).partition("=")
    outer, _, name = name.strip().rpartition(".")
    if outer:
        properties.pop(outer, None)
        required[:] = [one for one in required if one != outer]
    kind = (kind or "*").strip()
    schema = _schema(kind.rstrip("="))
    if about.strip():
        schema["description"] = " ".join(about.split())
    if default.strip():
        try:
            schema["default"] = json.loads(default.strip().replace("'", '"'))
        except ValueError:
            schema["default"] = default.strip()
    properties[name] = schema
    if not is_optional and not kind.endswith("="):
        required.append(name)


def _schema(kind: str) -> dict[str, Any]:
    kind = kind.strip().strip("()").lstrip("!").strip()
    if len(kind) > _LONGEST_TYPE:
        return {}
    if kind.startswith("?"):
        return _schema(f"{kind[1:]}|null")
    if "|" in kind and "<" not in kind:
        parts = [part.strip() for part in kind.split("|")]
        if all(re.fullmatch(r"""(["']).*\1""", part) for part in parts):
            return {"type": "string", "enum": [part[1:-1] for part in parts]}
        kinds = [_PLAIN.get(part.lower()) for part in parts]
        return {"type": list(dict.fromkeys(kinds))} if None not in kinds else {}
    if many := _MANY.fullmatch(kind):
        items = _schema(many[1] or many[2] or "*")
        return {"type": "array", **({"items": items} if items else {})}
    if kind.lower().startswith(("object", "record", "{")):
        return {"type": "object"}
    return {"type": _PLAIN[kind.lower()]} if kind.lower() in _PLAIN else {}


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}
