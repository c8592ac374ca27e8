"""JSON Schemas of tools: checked when a tool is loaded, prepared once, asked on every call. Each is of the draft that
its `$schema` names, else of 2020-12.

A schema refers to nothing outside of itself, and what it asks of a value takes time in proportion to the value:
patterns are those of regular languages, references do not multiply.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pydantic import JsonValue

from tavern_host.contracts.documents import canonical, json_path, json_type
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.wire import Model
from tavern_tools.catalog.drafts import DRAFTS, LATEST, draft_of, meta_validator, validator_of
from tavern_tools.catalog.names import quoted

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator, ValidationError

Location = tuple[str | int, ...]
"""A place in a document: the keys and indices that lead there."""

Mistake = tuple[Location, str]

_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_IN_PLACE = ("not", "if", "then", "else")
_OF_OBJECTS = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_SINGLE = frozenset((*_IN_PLACE, *_OF_OBJECTS, "items", "additionalItems", "contains", "unevaluatedItems"))
_LISTED = frozenset(("prefixItems", "items", *_IN_PLACE_LISTS))
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"})
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_ANCHORS = frozenset({"$anchor", "$dynamicAnchor"})

_JSON_HINT = "; write it as JSON"
_MAX_MESSAGE = 300
_MAX_MISTAKES = 20
_MAX_TYPES = 16
MAX_DEPTH = 200
"""How deeply a value may be nested."""
_MAX_SCHEMA_DEPTH = 100
_MAX_VALUES = 50_000
_MAX_PATTERNS = 500
_MAX_PATTERN_BYTES = 1 << 20
_MAX_EXPANSION = 10_000


class ValueProblem(Model):
    """One thing that is wrong with a value: where (`$.a.b`), which parameter it is in, and what."""

    path: str
    message: str
    parameter: str | None = None

    def __str__(self) -> str:
        return f"{self.path.removeprefix('$.')}: {self.message}" if self.path != "$" else self.message


# --- a schema itself --------------------------------------------------------------------------------


def schema_problems(schema: Any, at: Location) -> list[Mistake]:
    """Return the mistakes of a JSON Schema, each with its place; `at` is the schema's own."""
    if not isinstance(schema, dict):
        return [(at, f"expected a JSON Schema (an object), got {json_type(schema)}")]
    unusable = _size_problem(schema)
    if unusable is None:
        try:
            canonical(schema)
        except ValueError as error:
            unusable = f"holds what JSON has no form for: {error}"
    if unusable is not None:
        return [(at, unusable)]
    draft = draft_of(schema)
    if draft not in DRAFTS:
        known = ", ".join(map(quoted, DRAFTS))
        return [((*at, "$schema"), f"expected one of {known}, got {quoted(schema['$schema'])}")]
    mistakes = list(
        _content_mistakes(schema) if meta_validator(draft).is_valid(schema) else _keyword_mistakes(schema, draft)
    )
    if not mistakes and _multiplies(schema):
        mistakes = [((), "its references lead too far: one value would be compared with thousands of schemas")]
    if not mistakes:
        try:
            compiled(schema)
        except ValueError as error:  # a validator cannot be built for a reason that was not looked for
            mistakes = [((), _cut(str(error).partition("\n")[0]))]
    return [((*at, *place), message) for place, message in mistakes]


def _size_problem(schema: Any) -> str | None:
    level, values = [schema], 0
    for _ in range(_MAX_SCHEMA_DEPTH):
        values += len(level)
        if values > _MAX_VALUES:
            return f"the schema has more than {_MAX_VALUES} values"
        level = [inner for value in level for inner in _inner(value)]
        if not level:
            return None
    return "the schema is nested too deeply"


def _keyword_mistakes(schema: dict[str, Any], draft: str) -> list[Mistake]:
    import jsonschema

    kind = getattr(jsonschema, DRAFTS[draft])
    found: dict[Mistake, None] = {}  # the schema of schemas says the same thing several times
    for error in kind(kind.META_SCHEMA).iter_errors(schema):
        found[tuple(error.absolute_path), _cut(_said_of_schema(error))] = None
        if len(found) == _MAX_MISTAKES:
            break
    return list(found)


def _said_of_schema(error: Any) -> str:
    if error.absolute_path and error.absolute_path[-1] == "items" and isinstance(error.instance, list):
        older = "http://json-schema.org/draft-07/schema#"
        return f'expected one schema; a list of them is "prefixItems", or say "$schema": "{older}"'
    if error.validator != "anyOf":  # only that of the keyword `type`, in the schema of schemas
        return str(error.message)
    near = did_you_mean(error.instance, _TYPES) if isinstance(error.instance, str) else ""
    return f"expected one of {', '.join(map(quoted, _TYPES))} or a list of them, got {quoted(error.instance)}{near}"


def _content_mistakes(schema: dict[str, Any]) -> Iterator[Mistake]:
    """Yield what is wrong with the patterns and references of a schema whose keywords are right."""
    anchors = {f"#{part[key]}" for _, part in _parts(schema) for key in _ANCHORS & part.keys()}
    patterns = 0
    for place, part in _parts(schema):
        if place and "$id" in part:
            yield (*place, "$id"), "a schema within a schema has no name of its own; use $anchor"
        if place and "$schema" in part:
            yield (*place, "$schema"), "a schema within a schema has no draft of its own; say it for the whole"
        for keyword in sorted(_REFERENCES & part.keys()):
            problem = _reference_problem(schema, part[keyword], anchors)
            if problem:
                yield (*place, keyword), f"refers to {quoted(part[keyword])}, {problem}"
        found = [((*place, "patternProperties", key), key) for key in part.get("patternProperties", ())]
        found += [((*place, "pattern"), part["pattern"])] if isinstance(part.get("pattern"), str) else []
        patterns += len(found)
        if patterns > _MAX_PATTERNS:
            yield place, f"the schema has more than {_MAX_PATTERNS} patterns"
            return
        for where, pattern in found:
            problem = _pattern_problem(pattern)
            if problem:
                yield where, problem


def _reference_problem(schema: dict[str, Any], reference: Any, anchors: set[str]) -> str | None:
    if not isinstance(reference, str) or not reference.startswith("#"):
        return "but a schema may only refer to parts of itself (#/…)"
    if reference in anchors or referred(schema, reference) is not None:
        return None
    return "which is not in the schema"


def _pattern_problem(pattern: str) -> str | None:
    from jsonschema_rs import Draft202012Validator, FancyRegexOptions

    try:
        compiled({"pattern": pattern})
        return None
    except ValueError:
        shown = quoted(pattern)
    try:
        Draft202012Validator({"pattern": pattern}, offline=True, pattern_options=FancyRegexOptions())
    except ValueError:
        return f"{shown} is not a regular expression"
    reason = "look-around and references to groups may take endless time, large repeats much memory"
    return f"the pattern {shown} cannot be used: {reason}"


def _parts(schema: dict[str, Any]) -> Iterator[tuple[Location, dict[str, Any]]]:
    """Yield every schema within a schema whose keywords are right, itself first, each with its place."""
    waiting: deque[tuple[Location, Any]] = deque([((), schema)])
    while waiting:
        place, part = waiting.popleft()
        if not isinstance(part, dict):
            continue
        yield place, part
        for key, value in part.items():
            if key in _SINGLE and isinstance(value, dict):
                waiting.append(((*place, key), value))
            elif key in _LISTED and isinstance(value, list):
                waiting += [((*place, key, index), inner) for index, inner in enumerate(value)]
            elif key in _NAMED and isinstance(value, dict):
                waiting += [((*place, key, name), inner) for name, inner in value.items()]


def _multiplies(schema: dict[str, Any]) -> bool:
    """Return whether references make one value be compared with very many schemas, of however few they are."""
    counts: dict[int, int] = {}

    def count(part: Any) -> int:
        if not isinstance(part, dict):
            return 1
        if id(part) not in counts:
            counts[id(part)] = 1  # a schema that leads to itself is not counted again
            counts[id(part)] = min(_MAX_EXPANSION, 1 + sum(count(inner) for inner in _in_place(schema, part)))
        return counts[id(part)]

    try:
        return any(count(part) == _MAX_EXPANSION for _, part in _parts(schema))
    except RecursionError:
        return True


def _in_place(schema: Mapping[str, Any], part: dict[str, Any]) -> Iterator[Any]:
    """Yield the schemas that are asked about the same value as `part`."""
    for keyword in _IN_PLACE_LISTS:
        yield from part.get(keyword, ())
    for keyword in _IN_PLACE:
        if keyword in part:
            yield part[keyword]
    for keyword in ("dependentSchemas", "dependencies"):
        yield from part.get(keyword, {}).values()
    for keyword in _REFERENCES & part.keys():
        yield referred(schema, part[keyword])


def in_place(schema: Mapping[str, Any], part: Any) -> Iterator[dict[str, Any]]:
    """Yield a part of a schema, and then all that are asked about the same value, each once."""
    waiting, seen = [part], set[int]()
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict) and id(part) not in seen:
            seen.add(id(part))
            yield part
            waiting += _in_place(schema, part)


def property_names(schema: Mapping[str, Any]) -> dict[str, None]:
    """Return the names of members of an object that a schema says something about."""
    parts = list(in_place(schema, schema))
    return dict.fromkeys(name for part in parts for name in (*part.get("properties", ()), *part.get("required", ())))


def has_format(schema: Mapping[str, Any], name: str) -> bool:
    """Return whether a schema asks anything of a value to have this format."""
    return any(part.get("format") == name for _, part in _parts(dict(schema)))


def referred(schema: Mapping[str, Any], reference: str) -> Any:
    """Return the part of a schema that `#/a/b` refers to, or None; anchors are not looked for."""
    found: Any = schema
    if reference == "#":
        return found
    if not reference.startswith("#/"):
        return None
    for part in unquote(reference[2:]).split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        elif isinstance(found, dict) and key in found:
            found = found[key]
        else:
            return None
    return found


# --- values -----------------------------------------------------------------------------------------


def compiled(schema: Mapping[str, Any]) -> Draft202012Validator:
    """Return a validator of a schema. It fetches nothing, checks formats, and its patterns take linear time.

    Raises `ValueError` for a schema that `schema_problems` finds something wrong with.
    """
    from jsonschema_rs import RegexOptions

    options = RegexOptions(size_limit=_MAX_PATTERN_BYTES)
    kind = validator_of(draft_of(schema) or LATEST)
    return kind(dict(schema), offline=True, pattern_options=options, validate_formats=True)


class Schema:
    """A JSON Schema with its validator, which is built on first use and then kept."""

    def __init__(self, schema: Mapping[str, JsonValue]) -> None:
        self.schema = schema

    @cached_property
    def _validator(self) -> Draft202012Validator:
        return compiled(self.schema)

    @cached_property
    def allows(self) -> Callable[[Any], bool]:
        """Says whether a value is right, as quickly as that can be said. Never raises."""
        is_valid = self._validator.is_valid
        follows = any(_REFERENCES & part.keys() for _, part in _parts(dict(self.schema)))

        def allows(value: Any) -> bool:
            # Only through references does the validator go as deep as the value does, and then without a bound.
            if follows and is_too_deep(value):
                return False
            try:
                return is_valid(value)
            except ValueError:  # no JSON at all
                return False

        return allows

    def mistakes(self, value: Any) -> list[Mistake]:
        """Return everything that is wrong with `value`, in order of place."""
        if is_too_deep(value):
            return [((), "the value is nested too deeply")]
        try:
            found = [mistake for error in self._validator.iter_errors(value) for mistake in _said(error, value)]
        except ValueError as error:
            return [((), f"the value is no JSON: {_cut(str(error))}")]
        return sorted(found, key=lambda mistake: [str(part) for part in mistake[0]])

    def problems(self, value: Any) -> list[ValueProblem]:
        """Return everything that is wrong with `value`, in order of place."""
        return [] if self.allows(value) else problems_of(self.mistakes(value))

    def types(self, schema: Any = None) -> frozenset[str]:
        """Return the JSON types that a value may have by `schema`, a part of this one; empty means any."""
        return self._types(self.schema if schema is None else schema, _MAX_TYPES)

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
            return self._types(referred(self.schema, schema["$ref"]), depth - 1)
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


def is_too_deep(value: Any) -> bool:
    """Return whether a value is nested more deeply than `MAX_DEPTH`."""
    level = [value] if isinstance(value, dict | list | tuple) else []
    for _ in range(MAX_DEPTH):
        if not level:
            return False
        level = [inner for outer in level for inner in _inner(outer) if isinstance(inner, dict | list | tuple)]
    return bool(level)


def _inner(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def _said(error: ValidationError, value: Any) -> Iterator[Mistake]:
    place = tuple(error.instance_path)
    about = error.kind.as_dict()
    keyword = error.kind.name
    if error.instance is None and isinstance(number := _value_at(value, place), float):
        yield place, f"expected a number that JSON can write, got {number}"
    elif keyword == "required":
        yield (*place, about["property"]), "is required and missing"
    elif keyword in ("additionalProperties", "unevaluatedProperties") and about.get("unexpected"):
        for name in about["unexpected"]:
            yield (*place, name), "is not allowed here"
    elif keyword == "falseSchema" and _closes(error):
        for name in _value_at(value, place):
            yield (*place, name), "is not allowed here"
    elif keyword == "falseSchema":
        yield place, "is not allowed here"
    elif keyword in ("anyOf", "oneOf") and (types := _types_of(about["context"])):
        yield place, _cut(f"{quoted(error.instance)} is not of type {' or '.join(map(quoted, types))}")
    elif keyword in ("anyOf", "oneOf") and any(about["context"]):
        reasons = dict.fromkeys(_cut(branch[0].message, 80) for branch in about["context"] if branch)
        yield place, _cut(f"{error.message}: {'; '.join(reasons)}")
    else:
        hint = _JSON_HINT if keyword == "type" and isinstance(error.instance, str) and _wants_json(about) else ""
        yield place, _cut(error.message) + hint


def _value_at(value: Any, place: Location) -> Any:
    for part in place:
        value = value[part]
    return value


def _wants_json(about: dict[str, Any]) -> bool:
    return set(about["types"]) <= {"array", "object"}


def _closes(error: ValidationError) -> bool:
    """Return whether it is the object at its place that is not to have members, of which the error names one."""
    return error.schema_path[-1:] in (["additionalProperties"], ["unevaluatedProperties"])


def _types_of(branches: Sequence[Sequence[ValidationError]]) -> list[str]:
    """Return the types that the branches of a choice expect, where nothing but the type is wrong in each."""
    named: dict[str, None] = {}
    for branch in branches:
        if len(branch) != 1 or branch[0].kind.name != "type":
            return []
        named |= dict.fromkeys(branch[0].kind.as_dict()["types"])
    return list(named)


def problems_of(mistakes: list[Mistake]) -> list[ValueProblem]:
    """Return the problems of a value that was refused; one that names none, where no mistake was found."""
    return [
        ValueProblem(
            path=json_path(*place),
            message=message,
            parameter=place[0] if place and isinstance(place[0], str) else None,
        )
        for place, message in mistakes or [((), "is not what the schema allows")]
    ]


def _cut(message: str, limit: int = _MAX_MESSAGE) -> str:
    return message if len(message) <= limit else f"{message[:limit]}…"
