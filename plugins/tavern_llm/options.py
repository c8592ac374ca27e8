"""Says what is wrong with the options of a model, without ever showing a value: one may be a key."""

from __future__ import annotations

from pydantic import ValidationError


def options_problem(adapter: str, error: ValidationError) -> str:
    """Return every problem of an adapter's options in one line."""
    return f"the options of the adapter {adapter!r}: {problems_of(error)}"


def problems_of(error: ValidationError) -> str:
    """Return every problem in one line, each after its place."""
    parts = []
    for problem in error.errors(include_input=False, include_context=False, include_url=False):
        where = ".".join(str(part) for part in problem["loc"])
        text = (
            "unknown option" if problem["type"] == "extra_forbidden" else problem["msg"].removeprefix("Value error, ")
        )
        parts.append(f"{where}: {text[:1].lower()}{text[1:]}" if where else text)
    return "; ".join(parts)
