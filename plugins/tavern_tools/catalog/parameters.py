"""A tool's parameters, prepared once: arguments in, values that the schema allows or everything wrong out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from pydantic import JsonValue

from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.names import did_you_mean
from tavern_tools.api.projectfiles import PROJECT_FILE
from tavern_tools.catalog.coercion import Coercion
from tavern_tools.catalog.names import quoted
from tavern_tools.catalog.project_paths import read_path
from tavern_tools.catalog.schemas import (
    Location,
    Mistake,
    Schema,
    ValueProblem,
    has_format,
    in_place,
    is_too_deep,
    problems_of,
)

_OPEN_KEYWORDS = (
    *("additionalProperties", "patternProperties", "unevaluatedProperties", "propertyNames", "minProperties"),
    *("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies"),
)


class Bound(NamedTuple):
    """Arguments as the tool gets them, what was converted on the way, and what is wrong with them."""

    arguments: dict[str, JsonValue]
    coercions: list[str]
    problems: list[ValueProblem]


class Taken(NamedTuple):
    """What the method, workflow or node behind a tool takes: the JSON Schema of each argument, and the argument that
    each name means, of several names the one for JSON first."""

    schemas: Mapping[str, Mapping[str, Any]] = {}
    names: Mapping[str, str] = {}


NOTHING = Taken()


class Parameters:
    """Binds arguments to the parameters of one tool; behind it is what takes them.

    A name that the schema does not know is an error unless the schema says what further
    properties may be. An argument has one name, and a path of the project's files one form.
    """

    def __init__(self, schema: Mapping[str, JsonValue], taken: Taken = NOTHING) -> None:
        properties = schema.get("properties")
        self.properties: dict[str, JsonValue] = properties if isinstance(properties, dict) else {}
        self._closed = not any(keyword in schema for keyword in _OPEN_KEYWORDS)
        self._schema = Schema({**schema, "additionalProperties": False} if self._closed else schema)
        self._defaults = {
            name: part["default"]
            for name, part in self.properties.items()
            if isinstance(part, dict) and "default" in part
        }

        self._name_of = dict[str, str]()
        for name in (*self.properties, *taken.names):
            self._name_of.setdefault(taken.names.get(name, name), name)
        self._renamed = {name: new for name, of in taken.names.items() if (new := self._name_of[of]) != name}
        self.is_closed = self._closed and not self._renamed
        behind = {self._name_of[argument]: part for argument, part in taken.schemas.items()}
        self._left_out = {name: part["default"] for name, part in behind.items() if "default" in part}
        parts: list[tuple[str | None, Mapping[str, Any]]] = [(None, schema), *behind.items()]
        self._paths = [(name, part) for name, part in parts if has_format(part, PROJECT_FILE)]

    @cached_property
    def _coercion(self) -> Coercion:
        return Coercion(self._schema, self.properties)

    @cached_property
    def _allows(self) -> Callable[[Any], bool]:
        return self._schema.allows

    @cached_property
    def secrets(self) -> frozenset[str]:
        """The parameters that the schema marks as secret: `writeOnly`, or with the format `password`."""
        return frozenset(
            name
            for name, part in self.properties.items()
            if isinstance(part, dict) and (part.get("writeOnly") is True or part.get("format") == "password")
        )

    def bind(self, arguments: dict[str, JsonValue], *, text: bool = False) -> Bound:
        """Return the arguments with defaults filled in and all problems listed. `arguments` are never changed; where
        nothing is filled in or converted, they are returned themselves.

        With `text` the arguments come from an action protocol: names are matched and text is converted.
        """
        values, coercions = self._coercion.apply(arguments) if text else (arguments, [])
        if self._renamed:
            renamed = {name: new for name, new in self._renamed.items() if name in values and new not in values}
            values = values if not renamed else {renamed.get(name, name): value for name, value in values.items()}
        if self._defaults:
            values = self._with_defaults(values)
        values, wrong = self._with_canonical_paths(values) if self._paths else (values, [])
        if not wrong and self._allows(values):
            return Bound(values, coercions, [])
        return Bound(values, coercions, problems_of([*wrong, *self.mistakes(values)]))

    def complete(self, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Return bound arguments with all that is taken for those that are left out: what rules are asked about."""
        return {**self._left_out, **arguments}

    def mistakes(self, arguments: dict[str, JsonValue]) -> list[Mistake]:
        """Return the mistakes of arguments, each with its place; those of unknown names come first."""
        found = self._schema.mistakes(arguments)
        if not self._closed:
            return found
        unknown: list[Mistake] = [
            ((name,), f"is no parameter of this tool{did_you_mean(name, self.properties)}")
            for name in arguments
            if name not in self.properties
        ]
        told = {place for place, _ in unknown}
        return unknown + [(place, said) for place, said in found if place not in told]

    def oddities(self) -> Iterator[tuple[str, Location, str]]:
        """Yield what keeps calls from being right that look so: the keyword, its place, and what is wrong.

        Names in `required` that are no property, and values of `default` that the schema refuses.
        """
        required = self._schema.schema.get("required", [])
        for index, name in enumerate(required if self._closed and isinstance(required, list) else ()):
            if name not in self.properties:
                said = f"{quoted(name)} is no property, so no call is right{did_you_mean(str(name), self.properties)}"
                yield "required", ("required", index), said
        for name, value in self._defaults.items():
            for place, said in self._schema.mistakes({name: value}):
                if place[:1] == (name,):
                    yield (
                        "default",
                        ("properties", name, "default", *place[1:]),
                        f"is not what the schema allows: {said}",
                    )

    def _with_canonical_paths(self, values: dict[str, JsonValue]) -> tuple[dict[str, JsonValue], list[Mistake]]:
        """Return the arguments with each path in its canonical form, and what is wrong with paths."""
        wrong: list[Mistake] = []
        if is_too_deep(values):
            return values, wrong
        found: Any = values
        for name, schema in self._paths:
            if name is None:
                found = _canonical(found, schema, schema, (), wrong)
            elif name in found:
                found = {**found, name: _canonical(found[name], schema, schema, (name,), wrong)}
        return values if found == values else found, wrong

    def _with_defaults(self, values: dict[str, JsonValue]) -> dict[str, JsonValue]:
        missing = self._defaults.keys() - values.keys()
        if not missing:
            return values
        filled = {name: copy.deepcopy(value) for name, value in self._defaults.items() if name in missing}
        return {**values, **filled}


def _canonical(value: Any, schema: Any, part: Any, place: Location, wrong: list[Mistake]) -> Any:
    """Return a value with the canonical form of each path in it, by a part of a schema."""
    for said in in_place(schema, part):
        if isinstance(value, str) and said.get("format") == PROJECT_FILE:
            try:
                value = "/".join(read_path(value))
            except InvalidInput as error:
                wrong.append((place, error.message))
        elif isinstance(value, list) and "items" in said:
            value = [_canonical(v, schema, said["items"], (*place, i), wrong) for i, v in enumerate(value)]
        elif isinstance(value, dict):
            named, others = said.get("properties", {}), said.get("additionalProperties")
            value = {k: _canonical(v, schema, named.get(k, others), (*place, k), wrong) for k, v in value.items()}
    return value
