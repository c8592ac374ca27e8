"""JSON Schemas (draft 2020-12) of tools: checked when a tool is loaded, prepared once, asked on every call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from tavern_host.contracts.documents import json_type
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.wire import Model
from tavern_tools.naming import quoted

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
_MAX_MESSAGE = 300
_MAX_DEPTH = 16


class ValueProblem(Model):
    """One thing that is wrong with a value: where (`$.a.b`), which parameter it is in, and what."""

    path: str
    message: str
    parameter: str | None = None

    def __str__(self) -> str:
        return f"{self.path.removeprefix('$.')}: {self.message}" if self.path != "$" else self.message


def schema_problems(schema: Any, path: str) -> list[tuple[str, str]]:
    """Return what is wrong with a JSON Schema as (JSON path, message) pairs; `path` is the schema's own place."""
    from jsonschema import Draft202012Validator

    if not isinstance(schema, dict):
        return [(path, f"expected a JSON Schema (an object), got {json_type(schema)}")]
    meta = Draft202012Validator(Draft202012Validator.META_SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER)
    try:
        errors = [(path + error.json_path[1:], _cut(_said_of_schema(error))) for error in meta.iter_errors(schema)]
        return list(dict.fromkeys(errors)) or list(_reference_problems(schema, path))
    except RecursionError:
        return [(path, "the schema is nested too deeply")]


def _said_of_schema(error: Any) -> str:
    if error.validator != "anyOf":  # only that of the keyword `type`, in the schema of schemas
        return str(error.message)
    near = did_you_mean(error.instance, _TYPES) if isinstance(error.instance, str) else ""
    return f"expected one of {', '.join(map(quoted, _TYPES))} or a list of them, got {quoted(error.instance)}{near}"


def _reference_problems(schema: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    from referencing.exceptions import Unresolvable

    resolver = _resolver(schema)
    for place, reference in _references(schema, path):
        if not reference.startswith("#"):
            yield place, f"refers to {reference!r}, but a schema may only refer to parts of itself (#/…)"
            continue
        try:
            resolver.lookup(reference)
        except Unresolvable:
            yield place, f"refers to {reference!r}, which is not in the schema"


def _references(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "$ref" and isinstance(inner, str):
                yield f"{path}.$ref", inner
            elif key not in ("const", "enum", "default", "examples"):
                yield from _references(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _references(inner, f"{path}[{index}]")


def _resolver(schema: Mapping[str, Any]) -> Any:
    from referencing import Registry
    from referencing.jsonschema import DRAFT202012

    resource = DRAFT202012.create_resource(schema)
    registry: Registry[Any] = Registry().with_resource("", resource)
    return registry.resolver("")


class Schema:
    """A JSON Schema with its validator, which is built on first use and then kept."""

    def __init__(self, schema: Mapping[str, JsonValue]) -> None:
        self.schema = schema

    @cached_property
    def _validator(self) -> Draft202012Validator:
        from jsonschema import Draft202012Validator
        from referencing.jsonschema import EMPTY_REGISTRY

        # The library's own registry would fetch unknown references from the network.
        return Draft202012Validator(dict(self.schema), registry=EMPTY_REGISTRY)

    def problems(self, value: Any) -> list[ValueProblem]:
        """Return everything that is wrong with `value`, in order of place."""
        try:
            errors = sorted(self._validator.iter_errors(value), key=lambda e: [str(p) for p in e.absolute_path])
        except RecursionError:
            return [ValueProblem(path="$", message="the value is nested too deeply")]
        return [_problem(error) for error in errors]

    def types(self, schema: Any = None) -> frozenset[str]:
        """Return the JSON types that a value may have by `schema`, a part of this one; empty means any."""
        return self._types(self.schema if schema is None else schema, _MAX_DEPTH)

    def _types(self, schema: Any, depth: int) -> frozenset[str]:
        if not isinstance(schema, dict) or depth == 0:
            return frozenset()
        if "type" in schema:
            named = schema["type"]
            return frozenset([named] if isinstance(named, str) else named)
        if "const" in schema or "enum" in schema:
            values = [schema["const"]] if "const" in schema else schema["enum"]
            return frozenset(type_name(v) for v in values)
        if "$ref" in schema:
            return self._types(_resolver(self.schema).lookup(schema["$ref"]).contents, depth - 1)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                kinds = [self._types(s, depth - 1) for s in schema[keyword]]
                return frozenset().union(*kinds) if all(kinds) else frozenset()
        if "allOf" in schema:
            return next(filter(None, (self._types(s, depth - 1) for s in schema["allOf"])), frozenset())
        return frozenset()


def type_name(value: Any) -> str:
    """Return the name that JSON Schema has for the type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    names = {str: "string", int: "integer", float: "number", list: "array", dict: "object"}
    return names.get(type(value), type(value).__name__)


def _problem(error: Any) -> ValueProblem:
    path, message = error.json_path, _cut(error.message)
    parts = list(error.absolute_path)
    parameter = parts[0] if parts and isinstance(parts[0], str) else None
    if error.validator == "required":
        # One error per missing name; the library gives the name only inside its text.
        name = next((n for n in error.validator_value if error.message.startswith(f"{n!r} is ")), None)
        if name is not None:
            path, message, parameter = f"{path}.{name}", "is required and missing", parameter or name
    if error.validator == "type" and isinstance(error.instance, str) and error.validator_value in ("array", "object"):
        message = f"{message}; write it as JSON"
    return ValueProblem(path=path, message=message, parameter=parameter)


def _cut(message: str) -> str:
    return message if len(message) <= _MAX_MESSAGE else f"{message[:_MAX_MESSAGE]}…"
