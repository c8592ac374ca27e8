"""The JSON Schemas of types that descriptors name."""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

CONTRACTS = "tavern_host.contracts"
"""The package whose types any descriptor may name."""


def schema_of(reference: str, resolve: Callable[[str], Any] = resolve_name, *, of_answer: bool) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the type that `module:Type` names, or with `[]` behind it of a list of them;
    types that it uses stand in its `$defs`. Raises what `resolve` raises."""
    from pydantic import TypeAdapter

    name = reference.removesuffix("[]")
    found = resolve(name)
    adapter: TypeAdapter[Any] = TypeAdapter(found if name == reference else list[found])  # type: ignore[valid-type]
    return adapter.json_schema(
        mode="serialization" if of_answer else "validation", ref_template="#/components/schemas/{model}"
    )
