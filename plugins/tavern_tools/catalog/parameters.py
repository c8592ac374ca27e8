"""A tool's parameters, prepared once: arguments in, values that the schema allows or everything wrong out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from pydantic import JsonValue

from tavern_host.contracts.names import did_you_mean
from tavern_tools.catalog.coercion import Coercion
from tavern_tools.catalog.schemas import Mistake, Schema, ValueProblem, problems_of

_OPEN_KEYWORDS = (
    *("additionalProperties", "patternProperties", "unevaluatedProperties"),
    *("$ref", "allOf", "anyOf", "oneOf"),
)


class Bound(NamedTuple):
    """Arguments as the tool gets them, what was converted on the way, and what is wrong with them."""

    arguments: dict[str, JsonValue]
    coercions: list[str]
    problems: list[ValueProblem]


class Parameters:
    """Binds arguments to the parameters of one tool.

    A name that the schema does not know is an error unless the schema says what further
    properties may be.
    """

    def __init__(self, schema: Mapping[str, JsonValue]) -> None:
        properties = schema.get("properties")
        self.properties: dict[str, JsonValue] = properties if isinstance(properties, dict) else {}
        self._closed = not any(keyword in schema for keyword in _OPEN_KEYWORDS)
        self._schema = Schema({**schema, "additionalProperties": False} if self._closed else schema)
        self._defaults = {
            name: part["default"]
            for name, part in self.properties.items()
            if isinstance(part, dict) and "default" in part
        }

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
        """Return the arguments with defaults filled in and all problems listed. What is given is never changed; where
        nothing is to be filled in or converted, it is what comes back.

        With `text` the arguments come from an action protocol: names are matched and text is converted.
        """
        values, coercions = self._coercion.apply(arguments) if text else (arguments, [])
        if self._defaults:
            values = self._with_defaults(values)
        return Bound(values, coercions, [] if self._allows(values) else problems_of(self.mistakes(values)))

    def mistakes(self, arguments: dict[str, JsonValue]) -> list[Mistake]:
        """Return what is wrong with arguments, each with its place, names that the tool does not know first."""
        found = self._schema.mistakes(arguments)
        if not self._closed:
            return found
        unknown: list[Mistake] = [
            ((name,), f"is no parameter of this tool{did_you_mean(name, self.properties)}")
            for name in arguments
            if name not in self.properties
        ]
        return unknown + [(place, said) for place, said in found if len(place) != 1 or place[0] in self.properties]

    def _with_defaults(self, values: dict[str, JsonValue]) -> dict[str, JsonValue]:
        missing = self._defaults.keys() - values.keys()
        if not missing:
            return values
        filled = {name: copy.deepcopy(value) for name, value in self._defaults.items() if name in missing}
        return {**values, **filled}
