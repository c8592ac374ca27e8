"""A tool's parameters, prepared once: arguments in, values that the schema allows or everything wrong out."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from tavern_host.contracts.names import did_you_mean
from tavern_tools.coercion import coerce, match_keys
from tavern_tools.schemas import Schema, ValueProblem

_OPEN_KEYWORDS = (
    *("additionalProperties", "patternProperties", "unevaluatedProperties"),
    *("$ref", "allOf", "anyOf", "oneOf"),
)


@dataclass(frozen=True)
class Bound:
    """Arguments as the tool gets them, what was converted on the way, and what is wrong with them."""

    arguments: dict[str, JsonValue]
    coercions: list[str]
    problems: list[ValueProblem]


class Parameters:
    """Binds arguments to the parameters of one tool.

    A name that the schema does not know is an error (`spec/003` §3.2) unless the schema says what further
    properties may be.
    """

    def __init__(self, schema: Mapping[str, JsonValue]) -> None:
        self._schema = Schema(schema)
        properties = schema.get("properties")
        self.properties: dict[str, JsonValue] = properties if isinstance(properties, dict) else {}
        self._closed = not any(keyword in schema for keyword in _OPEN_KEYWORDS)

    def bind(self, arguments: Mapping[str, JsonValue], *, text: bool = False) -> Bound:
        """Return the arguments with defaults filled in and all problems listed.

        With `text` the arguments come from an action protocol: names are matched and text is converted.
        """
        values, coercions = match_keys(arguments, self.properties) if text else (dict(arguments), [])
        if text:
            for name in values.keys() & self.properties.keys():
                values[name], note = coerce(self._schema, name, self.properties[name], values[name])
                if note:
                    coercions.append(note)
        for name, part in self.properties.items():
            if name not in values and isinstance(part, dict) and "default" in part:
                values[name] = copy.deepcopy(part["default"])
        return Bound(values, coercions, [*self._unknown(values), *self._schema.problems(values)])

    def _unknown(self, values: Mapping[str, JsonValue]) -> list[ValueProblem]:
        if not self._closed:
            return []
        return [
            ValueProblem(
                path=f"$.{name}",
                message=f"is no parameter of this tool{did_you_mean(name, self.properties)}",
                parameter=name,
            )
            for name in values
            if name not in self.properties
        ]
