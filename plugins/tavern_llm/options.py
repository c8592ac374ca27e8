"""Says what is wrong with options and other data, without ever showing a value: one may be a key."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pydantic import JsonValue, ValidationError

_PLAIN = {
    "extra_forbidden": "unknown option",
    "model_type": "must be keys and values",
    "tuple_type": "input should be a valid list",
}

_WHOLE = frozenset({"max_tokens", "max_completion_tokens", "n", "seed", "top_k"})
_NUMBERS = _WHOLE | {"temperature", "top_p", "presence_penalty", "frequency_penalty"}


def parameters_problem(parameters: Mapping[str, JsonValue]) -> str | None:
    """Return which parameter of a request is no number and must be one. Which numbers are too large or too small its
    server knows and says."""
    for name in sorted(_NUMBERS & parameters.keys()):
        value = parameters[name]
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf
        if value is not None and not (is_number and (name not in _WHOLE or value == int(value))):  # type: ignore[arg-type]
            return f"{name}: must be a {'whole ' * (name in _WHOLE)}number"
    return None


def options_problem(adapter: str, error: ValidationError) -> str:
    """Return every problem of an adapter's options in one line."""
    return f"the options of the adapter {adapter!r}: {problems_of(error)}"


def problems_of(error: ValidationError) -> str:
    """Return every problem in one line, each after its place."""
    return "; ".join(text for _, text in mistakes(error))


def mistakes(error: ValidationError) -> list[tuple[tuple[str | int, ...], str]]:
    """Return the place of each problem, and its text, which begins with the place."""
    found = []
    for problem in error.errors(include_input=False, include_context=False, include_url=False):
        where = ".".join(str(part) for part in problem["loc"])
        text = _PLAIN.get(problem["type"]) or problem["msg"].removeprefix("Value error, ")
        found.append((problem["loc"], f"{where}: {text[:1].lower()}{text[1:]}" if where else text))
    return found
