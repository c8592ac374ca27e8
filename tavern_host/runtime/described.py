"""The JSON Schemas of types that descriptors name."""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any


def schema_of(reference: str, resolve: Callable[[str], Any] = resolve_name) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the type that `module:Type` names, or with `[]` behind it of a list of them;
    types that it uses stand in its `$defs`. Raises what `resolve` raises."""
    from pydantic import TypeAdapter

    name = reference.removesuffix("[]")
    found = resolve(name)
    adapter: TypeAdapter[Any] = TypeAdapter(found if name == reference else list[found])  # type: ignore[valid-type]
    # As it is read: what is written leaves out what is None, so that nothing more is required of it.
    return adapter.json_schema(ref_template="#/components/schemas/{model}")
