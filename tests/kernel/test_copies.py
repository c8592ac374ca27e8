"""Copies of wire values: equal to what they are copies of, and with nothing in common that can be changed."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.forwarding import overriding
from hypothesis import given
from hypothesis import strategies as st
from plugin_maker import host_with, make_plugin, module_of
from pydantic import BaseModel, Field, JsonValue

from tavern_host import LLM
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.services import ServiceInterface, gives_new, reads, takes_shared
from tavern_host.contracts.wire import Model, OpenModel
from tavern_host.runtime.copying import duplicate
from tavern_host.services.views import ViewHandle
from tavern_llm.api.llm import ChatMessage, LlmToolCall
from tavern_tools.api.toolcalls import ContentPart, ToolCallRequest, ToolResult

WHO = Principal(kind="user", id="a")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def parts(value: Any) -> Iterator[Any]:
    """Yield the models, lists and dicts that a value holds and that can be changed, or hold what can be."""
    if isinstance(value, BaseModel):
        inner = [*value.__dict__.values(), value.__pydantic_extra__]
        if not value.model_config.get("frozen") or any(True for one in inner for _ in parts(one)):
            yield value
    elif isinstance(value, list | dict):
        yield value
        inner = [*value.values()] if isinstance(value, dict) else value
    else:
        inner = value if isinstance(value, tuple) else []
    for one in inner:
        yield from parts(one)


@given(json_values)
def test_copies_share_nothing_that_changes(value: Any) -> None:
    part = ContentPart.construct(type="data", data=value)
    result = ToolResult.construct(tool_id="t", status="done", content=[part, part], structured=value)
    for original in (result, [(result,)], {"x": CallContext(principal=WHO, trace_id="t")}):
        copied = duplicate(original)
        assert (copied, type(copied)) == (original, type(original))
        assert {id(one) for one in parts(original)} & {id(one) for one in parts(copied)} == set()
    copied = duplicate(result)
    assert copied.model_fields_set == result.model_fields_set
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


class Loose(BaseModel):
    text: str


class Open(OpenModel):
    text: str


def test_odd_models_are_copied_too() -> None:
    odd = ToolResult.model_construct(tool_id=["odd"], status="done")
    loose, open_, bare = Loose(text="before"), Open(text="x", words=["one"]), Open(text="x")
    copies = duplicate([odd, loose, open_, bare])
    odd.tool_id.append("later")
    loose.text = "after"
    open_.__pydantic_extra__["words"].append("two")
    bare.__pydantic_extra__["later"] = True
    assert (copies[0].tool_id, copies[1].text, type(copies[1])) == (["odd"], "before", Loose)
    assert [copied.model_extra for copied in copies[2:]] == [{"words": ["one"]}, {}]


def test_deeply_nested_models_are_copied() -> None:
    class Nested(Model):
        inner: Nested | None = None
        words: list[str] = Field(default_factory=list)

    value = Nested(words=["end"])
    for _ in range(10_000):
        value = Nested.construct(inner=value)
    copied: Any = duplicate(value)
    while copied.inner is not None:
        copied = copied.inner
    assert copied.words == ["end"]


# --- results that are new ------------------------------------------------------------------------------


class Shelf(ServiceInterface, name="shelf"):
    """Gives lists."""

    @reads
    async def kept(self) -> JsonValue:
        """Return the stored value."""

    @reads
    async def made(self) -> JsonValue:
        """Return the value made for the caller."""


class Taking(ServiceInterface, name="taking"):
    """Methods that take a value."""

    @reads
    async def marked(self, value: JsonValue) -> int:
        """Return the identity of what is in the value, as the provider gets it."""

    @reads
    async def plain(self, value: JsonValue) -> int:
        """Do the same."""


class Takes(Taking):
    """Changes nothing in what it is given, and says so of one method."""

    @takes_shared
    async def marked(self, value: Any) -> int:
        return id(value["a"])

    async def plain(self, value: Any) -> int:
        return id(value["a"])


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


async def test_arguments_are_shared_among_first_party_plugins_where_the_method_says_so() -> None:
    sent: list[JsonValue] = [1]
    for is_first_party in (True, False):
        handle = ViewHandle(Taking, lambda *_: lambda call: call, is_first_party=is_first_party)
        handle.bind({name: getattr(Takes(), name) for name in ("marked", "plain")})
        seen = [await method({"a": sent}) for method in (handle.view.marked, handle.view.plain)]
        assert [number == id(sent) for number in seen] == [is_first_party, False]


async def test_third_party_results_are_always_copied(tmp_path: Path) -> None:
    body = "    @gives_new\n    async def models(self):\n        return KEPT"
    code = overriding("LLM", body, head="from tavern_host.contracts.services import gives_new\nKEPT = []")
    folder = make_plugin(tmp_path, "acme", code, permissions={"services": {"override": ["llm"]}})
    async with host_with(tmp_path / "p", folder) as host:
        models = await host.services.get(LLM).models()
        assert models == []
        assert models is not module_of("acme").KEPT


# --- models that are made without being validated ------------------------------------------------------


def test_trusted_models_equal_validated_ones() -> None:
    values: dict[str, Any] = {"tool_id": "t", "arguments": {"a": [1]}, "request_id": "r"}
    made, validated = ToolCallRequest.construct(**values), ToolCallRequest(**values)
    assert made == validated
    assert made.model_dump_json() == validated.model_dump_json()
    assert made.model_fields_set == validated.model_fields_set
    for copied in (made.model_copy(deep=True), pickle.loads(pickle.dumps(made)), duplicate(made)):
        assert copied == validated
    assert made.model_copy(update={"index": 2}).model_fields_set == {*values, "index"}
    assert made.model_fields_set == set(values)


def test_models_made_without_validation_share_no_defaults() -> None:
    one, other = ToolCallRequest.construct(tool_id="t"), ToolCallRequest.construct(tool_id="t")
    assert one.arguments is not other.arguments
    assert CallContext.construct(principal=WHO).id != CallContext.construct(principal=WHO).id
    with pytest.raises(TypeError, match="ToolCallRequest has no field tool"):
        ToolCallRequest.construct(tool="t")
    with pytest.raises(TypeError, match="ToolCallRequest needs the field tool_id"):
        ToolCallRequest.construct(index=2)


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("update", [None, {"index": 2, "name": "b", "other": 3}])
def test_copies_of_models_are_those_of_pydantic(update: dict[str, Any] | None, deep: bool) -> None:
    call = ToolCallRequest(tool_id="t", arguments={"a": [1]})
    for model in (call, _Opened.model_validate({"name": "a", "more": [2]})):
        theirs, ours = BaseModel.model_copy(model, update=update, deep=deep), model.model_copy(update=update, deep=deep)
        assert ours == theirs
        assert (ours.model_fields_set, ours.model_extra) == (theirs.model_fields_set, theirs.model_extra)
    assert (call.model_copy(update=update, deep=deep).arguments is call.arguments) is not deep
    assert (call.index, call.model_fields_set) == (1, {"tool_id", "arguments"})


class _Opened(OpenModel):
    name: str
