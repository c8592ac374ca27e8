"""How the host finds, opens and calls the code that the descriptors of a plugin name.

A class of descriptors says so in its attribute `KIND`. The core and the runtimes look at that alone, so that they know
no feature by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator


def _named(handler: Any) -> Any:
    return f"{handler.__module__}:{handler.__qualname__}" if callable(handler) else handler


_BY_NAME = BeforeValidator(_named)

Handler = Annotated[str, _BY_NAME]
"""`module:name` in the plugin. The function or class itself may be given, where it is at hand: its name is kept. What a
descriptor names in a field `handler` of this type has to be there."""


def handler_of(descriptor: Any) -> str:
    """Return the name in a descriptor's field `handler` of that type; empty where it has none."""
    field = getattr(type(descriptor), "model_fields", {}).get("handler")
    return str(descriptor.handler) if field is not None and _BY_NAME in field.metadata else ""


@dataclass(frozen=True)
class ContributionKind:
    """One kind of contributions. `name` and `title` list them: their kind, and the attribute that names each.

    `collector` is a `module:function` of the host; `opener` and `transport` are of first-party plugins, and counted
    from their packages. They are imported when they are used:

    - `collector(module, plugin=…, **options)` returns the descriptors in the module that a plugin's manifest names as
      `entry` under the hook's `field`; `options` are the other keys there.
    - `opener(target, descriptor, context, source)` returns what runs `target`, the object behind the descriptor's
      `handler`; `source` is the `FolderSource` of a folder plugin, else None.
    - `transport(opened, plugin, descriptor)` returns the same, with its values encoded and decoded.

    `protocol` has the methods of the class behind a `handler`; `answer` is the annotation of what the function behind
    a `handler` returns. Each is None where there is none.
    """

    name: str = ""
    title: str = ""
    collector: str | None = None
    opener: str | None = None
    transport: str | None = None
    protocol: type | None = None
    answer: Any = None


def kind_of(descriptor: type) -> ContributionKind:
    """Return the kind of a class of descriptors; one that says nothing is of an empty kind."""
    kind = getattr(descriptor, "KIND", None)
    return kind if isinstance(kind, ContributionKind) else ContributionKind()
