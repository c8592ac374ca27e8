"""What a type hint says about one slot of a node: `Slot`, `Config`, and how hints become `SlotDefinition`s.

Which parameters and results a node has is read in `decorator`.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import ValidationError

from tavern_host.contracts.blobs import Blob
from tavern_host.contracts.nodes import DataFlowType, SlotDefinition
from tavern_host.contracts.wire import ImmutableJson

_INFER: Any = object()

_TYPES: dict[Any, DataFlowType] = {
    str: DataFlowType.STRING,
    int: DataFlowType.INTEGER,
    float: DataFlowType.FLOAT,
    bool: DataFlowType.BOOLEAN,
    dict: DataFlowType.OBJECT,
    list: DataFlowType.ARRAY,
    bytes: DataFlowType.BINARY,
    Blob: DataFlowType.BINARY,
    Any: DataFlowType.WILDCARD,
}

_STREAMS = (AsyncIterator, AsyncIterable, AsyncGenerator)


class Slot:
    """Describes an input or output slot in an annotation: `Annotated[str, Slot("The text.")]`.

    `key` names an output slot; `required` and `default` are inferred from the signature where they are
    not given. `actions` are the buttons beside the slot, as the platform's pages know them. In the `TypedDict`
    of a node's outputs, `stream` marks the outputs of an async generator that are streams, and `branch` those
    that may be left out: what follows is then skipped. Other keyword arguments (`min`, `max`, `multiline`,
    `suggestions` …) are hints for the slot's control and go into its `config`.
    """

    def __init__(
        self,
        description: str | None = None,
        *,
        key: str | None = None,
        display_name: str | None = None,
        type: DataFlowType | str | None = None,
        required: bool | None = _INFER,
        multi: bool | None = None,
        stream: bool | None = None,
        branch: bool | None = None,
        match_categories: tuple[str, ...] | None = None,
        actions: Sequence[Mapping[str, Any]] | None = None,
        **config: Any,
    ) -> None:
        self.description = description
        self.key = key
        self.display_name = display_name
        self.type = DataFlowType(type) if type is not None else None
        self.required = required
        self.multi = multi
        self.stream = stream
        self.branch = branch
        self.match_categories = match_categories
        self.actions = None if actions is None else tuple(dict(action) for action in actions)
        self.config = config

    def value_type(self, hint: Any) -> Any:
        """Return the type of one value of the slot; a parameter with `multi` is hinted as a list of them."""
        plain, _ = strip_optional(hint)
        return typing.get_args(plain)[0] if self.multi and typing.get_origin(plain) is list else plain

    def define(self, hint: Any, name: str, default: Any = inspect.Parameter.empty) -> SlotDefinition:
        """Return the slot's definition for a parameter `name` with the type `hint`. Raises `TypeError`."""
        config = dict(self.config)
        categories = self.match_categories
        optional = default is not inspect.Parameter.empty or "default" in config
        if default is not inspect.Parameter.empty and default is not None:
            config.setdefault("default", default)
        may_be_none = strip_optional(hint)[1]
        hint = self.value_type(hint)
        if typing.get_origin(hint) is Literal:
            choices = typing.get_args(hint)
            if len({type(c) for c in choices}) > 1:
                raise TypeError(f"slot {name!r}: the choices of {hint} must all be of one type")
            config.setdefault("suggestions", [{"value": c, "label": str(c)} for c in choices])
            categories = categories or ("ComboOption",)
            hint = type(choices[0])
        values: dict[str, Any] = {
            "data_flow_type": self.type or _flow_type(hint, name),
            "display_name": self.display_name or name.replace("_", " "),
            "description": self.description,
            "required": (not optional and not may_be_none) if self.required is _INFER else self.required,
            "multi": self.multi,
            "match_categories": categories,
            "config": config or None,
            "is_stream": self.stream,
            "is_branch": self.branch,
            "actions": self.actions,
        }
        try:
            return SlotDefinition(**{k: v for k, v in values.items() if v is not None})
        except ValidationError as error:
            where = ".".join(str(part) for part in error.errors()[0]["loc"])
            raise TypeError(f"slot {name!r}: {where} is not a JSON value; defaults and hints must be JSON") from None


class Config(Slot):
    """Describes a parameter that comes from the node's configuration instead of an edge."""


def define_input(slot: Slot | None, hint: Any, name: str, default: Any) -> SlotDefinition:
    """Return the definition of an input or of a configuration value. Raises `TypeError`."""
    slot = slot or Slot()
    if slot.branch:
        raise TypeError(f"slot {name!r}: branch=True is for outputs")
    plain, may_be_none = strip_optional(hint)
    item, streams = stream_item(plain)
    if not streams:
        if slot.stream:
            raise TypeError(f"slot {name!r}: an input that is a stream is hinted AsyncIterator[…]")
        return slot.define(hint, name, default)
    if isinstance(slot, Config):
        raise TypeError(f"slot {name!r}: a configuration value cannot be a stream")
    if slot.multi or slot.stream is False:
        raise TypeError(f"slot {name!r}: {plain!r} is a stream, which Slot(multi=True) and Slot(stream=False) are not")
    definition = slot.define(item | None if may_be_none else item, name, default)
    return definition.model_copy(update={"is_stream": True})


def define_output(slot: Slot | None, hint: Any, name: str, *, single: bool, streams: bool) -> SlotDefinition:
    """Return the definition of an output; `streams` says whether it may be (a `single` one: is) a stream.

    Raises `TypeError`.
    """
    slot = slot or Slot()
    if slot.stream and not streams:
        raise TypeError(f"slot {name!r}: stream=True is for the outputs of async generators")
    if slot.stream is False and single and streams:
        raise TypeError(f"slot {name!r}: what an async generator yields is a stream")
    if slot.branch and single:
        raise TypeError(f"slot {name!r}: branch=True is for the fields of a TypedDict, which can be left out")
    if stream_item(hint)[1]:
        raise TypeError(f"slot {name!r}: hint the type of one item, and say Slot(stream=True)")
    update = {"required": None, **({"is_stream": True} if single and streams else {})}
    return slot.define(hint, name).model_copy(update=update)


def split(hint: Any) -> tuple[Any, Slot | None]:
    """Return a hint without what annotates it, and the `Slot` that did, also where that is within an
    `Optional` or annotates the items of a stream."""
    if typing.get_origin(hint) in (typing.Required, typing.NotRequired):
        hint = typing.get_args(hint)[0]
    rest, may_be_none = strip_optional(hint)
    if may_be_none and (typing.get_origin(rest) is Annotated or stream_item(rest)[1]):
        inner, slot = split(rest)
        return inner | None, slot
    if typing.get_origin(hint) is Annotated:
        inner, *metadata = typing.get_args(hint)
        slot = next((m for m in metadata if isinstance(m, Slot)), None)
        rest, inner_slot = split(inner)
        return rest, slot or inner_slot
    item, streams = stream_item(hint)
    if streams and typing.get_origin(item) is Annotated:
        inner, slot = split(item)
        return AsyncIterator[inner], slot  # type: ignore[valid-type]
    return hint, None


def strip_optional(hint: Any) -> tuple[Any, bool]:
    """Return `X` of `X | None` and whether the hint was one."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        rest = [a for a in typing.get_args(hint) if a is not type(None)]
        if len(rest) == 1:
            return rest[0], True
    return hint, False


def strip_immutable(hint: Any) -> tuple[Any, bool]:
    """Return a hint without `ImmutableJson`, and whether it took that beside lists and objects."""
    members = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else ()
    rest = tuple(one for one in members if not (isinstance(one, type) and issubclass(one, ImmutableJson)))
    return (typing.Union[rest], True) if len(rest) < len(members) else (hint, False)  # noqa: UP007


def stream_item(hint: Any) -> tuple[Any, bool]:
    """Return `X` of `AsyncIterator[X]` and whether the hint was one."""
    if (typing.get_origin(hint) or hint) not in _STREAMS:
        return hint, False
    return next(iter(typing.get_args(hint)), Any), True


def _flow_type(hint: Any, name: str) -> DataFlowType:
    base = typing.get_origin(hint) or hint
    if base in _TYPES:
        return _TYPES[base]
    allowed = "str, int, float, bool, dict, list, bytes, Blob, Any or Literal"
    raise TypeError(f"slot {name!r}: {hint!r} has no data-flow type; use {allowed}, or give Slot(type=…)")
