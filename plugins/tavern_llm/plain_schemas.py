"""JSON Schemas in the plain form that servers take which know few keywords, and what OpenAI calls strict."""

from __future__ import annotations

from typing import Any

_KEPT = frozenset({"type", "properties", "required", "items", "enum", "description", "anyOf"})
_DEEPEST = 12


def plain_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a function whose parameters are a plain schema."""
    function = tool.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("parameters"), dict):
        return tool
    return {**tool, "function": {**function, "parameters": plain_schema(function["parameters"])}}


def plain_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema of the commonest keywords alone, which allows all that the given one allows.

    References are replaced by what they mean, `const` by `enum`, `oneOf` by `anyOf`, and several types by one.
    """
    definitions = {
        f"#/{key}/{name}": found
        for key in ("$defs", "definitions")
        if isinstance(schema.get(key), dict)
        for name, found in schema[key].items()
    }
    return _plain(schema, definitions, 0)


def _plain(schema: Any, definitions: dict[str, Any], depth: int) -> dict[str, Any]:
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return {}
    target = definitions.get(str(schema.get("$ref")))
    if isinstance(target, dict):
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    if "const" in schema:
        schema = {**schema, "enum": [schema["const"]]}
    if isinstance(schema.get("oneOf"), list):
        schema = {**schema, "anyOf": schema["oneOf"]}
    plain: dict[str, Any] = {key: value for key, value in schema.items() if key in _KEPT}
    if isinstance(plain.get("type"), list):
        types = [one for one in plain.pop("type") if one != "null"]
        if len(types) == 1:
            plain["type"] = types[0]
    if isinstance(plain.get("properties"), dict):
        plain["properties"] = {name: _plain(item, definitions, depth + 1) for name, item in plain["properties"].items()}
    if "items" in plain:
        plain["items"] = _plain(plain["items"], definitions, depth + 1)
    if isinstance(plain.get("anyOf"), list):
        plain["anyOf"] = [_plain(item, definitions, depth + 1) for item in plain["anyOf"]]
    return plain


def is_strict(schema: Any) -> bool:
    """Whether each object of a schema requires all of its properties and allows no others: only such ones may be
    declared `strict`."""
    if isinstance(schema, list):
        return all(is_strict(item) for item in schema)
    if not isinstance(schema, dict):
        return True
    properties = schema.get("properties")
    if schema.get("type") == "object" or properties is not None:
        if not isinstance(properties, dict) or schema.get("additionalProperties") is not False:
            return False
        if sorted(schema.get("required") or []) != sorted(properties):
            return False
        return all(is_strict(item) for item in properties.values())
    return all(is_strict(value) for key, value in schema.items() if key not in ("enum", "const", "default"))
