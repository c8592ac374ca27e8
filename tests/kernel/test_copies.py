"""Copies of wire values: equal to what they are copies of, and with nothing in common that can be changed."""

from __future__ import annotations

import enum
import importlib
import pickle
import pkgutil
import types
import typing
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from helpers.repetition import Failures
from hypothesis import given
from hypothesis import strategies as st
from plugin_maker import host_with, make_plugin, module_of
from pydantic import BaseModel, Field, JsonValue

from tavern_host import LLM, contracts
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.llm import ChatMessage, LlmToolCall
from tavern_host.contracts.services import ServiceInterface, gives_new, reads
from tavern_host.contracts.toolcalls import ContentPart, ToolCallRequest, ToolResult
from tavern_host.contracts.wire import SCALARS, Model, OpenModel
from tavern_host.runtime.copying import duplicate
from tavern_host.services.views import ViewHandle

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
SAMPLES: dict[Any, Any] = {str: "text", int: 3, float: 0.5, bool: True, bytes: b"x", datetime: MOMENT, type(None): None}


def contract_models() -> list[type[BaseModel]]:
    """Return every model of the contracts."""
    found: dict[type[BaseModel], None] = {}
    for module in pkgutil.iter_modules(contracts.__path__):
        for value in vars(importlib.import_module(f"{contracts.__name__}.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Model) and value not in (Model, OpenModel):
                found[value] = None
    return list(found)


def sample(annotation: Any, depth: int) -> Any:
    """Return a value of a wire type that holds something wherever it can, down to a depth."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation in SAMPLES:
        return SAMPLES[annotation]
    if annotation is JsonValue:
        return {"list": [1, {"inner": []}], "text": "x"}
    if origin is Annotated:
        return sample(arguments[0], depth)
    if origin is Literal:
        return arguments[0]
    if origin in (typing.Union, types.UnionType):
        return sample(next(kind for kind in arguments if kind is not type(None)), depth)
    if origin is list:
        return [sample(arguments[0], depth - 1)] if depth > 0 else []
    if origin is dict:
        return {"key": sample(arguments[1], depth - 1)} if depth > 0 else {}
    if origin is tuple:
        return tuple(sample(kind, depth - 1) for kind in arguments if kind is not Ellipsis)
    if issubclass(annotation, enum.Enum):
        return next(iter(annotation))
    return full(annotation, depth - 1)


def full(model: type[BaseModel], depth: int = 3) -> BaseModel:
    """Return a model all of whose fields hold something."""
    fields = model.model_fields.items()
    return model.model_construct(**{name: sample(field.annotation, depth) for name, field in fields if depth > -3})


def parts(value: Any) -> Iterator[Any]:
    """Yield all values that a value holds, itself first."""
    waiting, seen = [value], set()
    while waiting:
        part = waiting.pop()
        if id(part) in seen or type(part) in SCALARS:
            continue
        seen.add(id(part))
        yield part
        if isinstance(part, BaseModel):
            waiting += [*part.__dict__.values(), part.__pydantic_extra__, part.__pydantic_private__]
        elif isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, list | tuple):
            waiting += part


def can_be_changed(value: Any) -> bool:
    """Return whether a value is a list or dict, or a model that holds one."""
    if isinstance(value, BaseModel):
        return not value.model_config.get("frozen") or any(isinstance(part, list | dict) for part in parts(value))
    return isinstance(value, list | dict)


def in_common(value: Any, copied: Any) -> list[Any]:
    """Return what two values hold both that can be changed."""
    held = {id(part): part for part in parts(value)}
    return [part for part in parts(copied) if id(part) in held and can_be_changed(part)]


def test_a_copy_of_any_contract_model_shares_nothing() -> None:
    with Failures() as failures:
        for model in contract_models():
            for value in (full(model), full(model, 0)):
                for copied in (duplicate(value), duplicate([value])[0]):
                    with failures.row(model.__name__):
                        assert copied == value
                        assert type(copied) is model
                        assert copied.model_fields_set == value.model_fields_set
                        assert in_common(value, copied) == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_copies_share_no_json(value: Any) -> None:
    part = ContentPart.trusted(type="data", data=value)
    result = ToolResult.trusted(tool_id="t", status="done", content=[part, part], structured=value)
    copied = duplicate(result)
    assert copied == result
    assert in_common(result, copied) == []
    assert copied.content[0] is copied.content[1]
    if isinstance(value, list | dict) and value:
        assert copied.structured is copied.content[0].data


def test_deeply_frozen_models_are_shared() -> None:
    part = ContentPart(type="text", text="hello")
    copied = duplicate(ToolResult(tool_id="t", status="done", content=[part]))
    assert copied.content[0] is part
    call = LlmToolCall(id="c", name="look")
    said, marked = (
        ChatMessage(role="assistant", tool_calls=calls) for calls in ((call,), (call.model_copy(update={"extra": {}}),))
    )
    assert duplicate([said])[0] is said
    assert duplicate([marked])[0] is not marked


def test_values_of_the_wrong_type_are_copied() -> None:
    odd = ToolResult.model_construct(tool_id=["odd"], status="done", extra_field=["more"])
    copied = duplicate(odd)
    odd.tool_id.append("later")  # type: ignore[attr-defined]
    assert copied.tool_id == ["odd"]


def test_mutable_models_are_always_copied() -> None:
    class Loose(BaseModel):
        text: str

    class Known(Loose):
        more: str = ""

    duplicate(Known(text="prepared before its base"))
    loose = Loose(text="before")
    copied = duplicate({"loose": loose})["loose"]
    loose.text = "after"
    assert (copied.text, type(copied)) == ("before", Loose)


def test_extra_keys_of_open_models_are_copied() -> None:
    class Open(OpenModel):
        text: str

    value = Open(text="x", words=["one"])  # type: ignore[call-arg]
    copied, bare = duplicate(value), Open(text="x")
    value.__pydantic_extra__["words"].append("two")  # type: ignore[index]
    assert copied.model_extra == {"words": ["one"]}
    copied = duplicate(bare)
    bare.__pydantic_extra__["later"] = True  # type: ignore[index]
    assert copied.model_extra == {}


def test_deeply_nested_models_are_copied() -> None:
    class Nested(Model):
        inner: Nested | None = None
        words: list[str] = Field(default_factory=list)

    value = Nested(words=["end"])
    for _ in range(10_000):
        value = Nested.trusted(inner=value)
    copied: Any = duplicate(value)
    while copied.inner is not None:
        copied = copied.inner
    assert copied.words == ["end"]


# --- results that are new ------------------------------------------------------------------------------


class Shelf(ServiceInterface, name="shelf"):
    """Gives lists."""

    @reads
    async def kept(self) -> JsonValue:
        """Return what is kept."""

    @reads
    async def made(self) -> JsonValue:
        """Return what was made for the caller."""


class Keeps(Shelf):
    """Gives the very list that it keeps, whatever it says of its methods."""

    def __init__(self) -> None:
        self.list: list[Any] = []

    async def kept(self) -> JsonValue:
        return self.list

    @gives_new
    async def made(self) -> JsonValue:
        return self.list


async def test_only_results_marked_new_are_not_copied() -> None:
    provider = Keeps()
    handle = ViewHandle(Shelf, lambda name, info: lambda call: call or CallContext.model_validate({}))
    handle.bind({"kept": provider.kept, "made": provider.made})
    assert await handle.view.kept() is not provider.list
    assert await handle.view.made() is provider.list
    handle.bind({"kept": provider.kept, "made": provider.kept})  # another provider, that says nothing of the kind
    assert await handle.view.made() is not provider.list


async def test_third_party_results_are_always_copied(tmp_path: Path) -> None:
    code = """
from tavern_host import LLM, hookimpl, service_info
from tavern_host.contracts.llm import Llm
from tavern_host.contracts.services import gives_new

KEPT = []

class Mine(Llm):
    @gives_new
    async def models(self):
        return KEPT

    async def complete(self, request, *, call=None):
        raise NotImplementedError

    async def stream(self, request, *, call=None):
        yield None

@hookimpl
def tavern_override_services():
    return [service_info(LLM, Mine)]
"""
    folder = make_plugin(tmp_path, "acme", code, permissions={"services": {"override": ["llm"]}})
    (tmp_path / "project").mkdir()
    async with host_with(tmp_path / "project", folder) as host:
        models = await host.services.get(LLM).models()
        assert models == []
        assert models is not module_of("acme").KEPT


# --- models that are made without being validated ------------------------------------------------------


def test_trusted_models_equal_validated_ones() -> None:
    values: dict[str, Any] = {"tool_id": "t", "arguments": {"a": [1]}, "request_id": "r"}
    made, validated = ToolCallRequest.trusted(**values), ToolCallRequest(**values)
    assert made == validated
    assert made.model_dump_json() == validated.model_dump_json()
    assert made.model_fields_set == validated.model_fields_set
    for copied in (made.model_copy(deep=True), pickle.loads(pickle.dumps(made)), duplicate(made)):
        assert copied == validated
    assert made.model_copy(update={"index": 2}).model_fields_set == {*values, "index"}
    assert made.model_fields_set == set(values)


def test_models_made_without_validation_share_no_defaults() -> None:
    one, other = ToolCallRequest.trusted(tool_id="t"), ToolCallRequest.trusted(tool_id="t")
    assert one.arguments is not other.arguments
    who = Principal(kind="user", id="a")
    assert CallContext.trusted(principal=who).id != CallContext.trusted(principal=who).id


def test_making_without_validation_takes_known_and_needed_fields() -> None:
    with pytest.raises(TypeError, match="ToolCallRequest has no field tool"):
        ToolCallRequest.trusted(tool="t")
    with pytest.raises(TypeError, match="ToolCallRequest needs the field tool_id"):
        ToolCallRequest.trusted(index=2)
