"""Values that pass through a view: neither side can change what the other one holds, whatever the value is made of."""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from escape_scene import ACME, context_of, module_of, scene
from helpers.folder_plugins import write_plugin
from pydantic import JsonValue

from tavern_host import TOOL_MANAGER, Host
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import InvalidInput, PluginFailure
from tavern_host.contracts.services import ServiceInterface, interface_methods, reads
from tavern_host.contracts.wire import Model
from tavern_host.contracts.workflows import Workflow, WorkflowNode
from tavern_host.services.views import ViewHandle

SAVE = ["workflowManager:save"]


def with_node() -> Workflow:
    return Workflow(name="Mine", nodes=[WorkflowNode(id="a", type="core:text", input_values={"words": ["one"]})])


# --- what comes out ----------------------------------------------------------------------------------


async def test_results_are_of_their_own_on_each_side(tmp_path: Path) -> None:
    async with scene(tmp_path) as on:
        through, plain = await on.view.get("tale"), await on.plain.get("tale")
        on.plain.stored.workflow.__dict__["name"] = "later"
        assert (through.workflow.name, plain.workflow.name) == ("Tale", "later")
        on.plain.stored = on.plain.stored.model_copy(update={"workflow": with_node()})

        def spoil(result: Any) -> None:
            result.workflow.nodes[0].input_values["words"].append("two")
            result.workflow.nodes[0].input_values["more"] = True
            result.workflow.nodes.append(result.workflow.nodes[0])
            result.workflow.__dict__["name"] = "spoilt"
            object.__setattr__(result, "id", "spoilt")

        spoil(await on.view.get("tale"))
        assert (on.plain.stored.id, on.plain.stored.workflow) == ("tale", with_node())
        spoil(await on.plain.get("tale"))
        assert (on.plain.stored.id, on.plain.stored.workflow.name) == ("spoilt", "spoilt")
        assert on.plain.stored.workflow.nodes[0].input_values == {"words": ["one", "two"], "more": True}
        on.plain.stored.workflow.__dict__["name"] = threading.Lock()
        with pytest.raises(PluginFailure, match=r"^workflowManager\.get returned what cannot be copied: TypeError"):
            await on.view.get("tale")


async def test_changed_settings_do_not_reach_the_host(tmp_path: Path) -> None:
    options = [{"key": "extensions.acme.words", "type": "json", "label": "Words", "defaultValue": {"list": ["one"]}}]
    async with scene(tmp_path, configOptions=options) as on:
        on.context.settings.get("words")["list"].append("two")
        assert on.context.settings.get("words") == {"list": ["one"]}


class Chunk(Model):
    """An item of a stream that can be changed."""

    words: list[str]


class Speaker(ServiceInterface, name="speaker"):
    """A service with a stream of what can be changed."""

    @reads
    def chunks(self) -> AsyncIterator[Chunk]:
        """Yield chunks."""
        raise NotImplementedError

    @reads
    async def echo(self, value: JsonValue) -> JsonValue:
        """Return the value."""
        raise NotImplementedError


class KeepsAll:
    """A provider that holds on to all that it is given and gives."""

    def __init__(self) -> None:
        self.kept: list[Any] = [Chunk(words=["one"]), Chunk(words=["two"])]
        self.is_closed = False

    async def chunks(self) -> AsyncIterator[Chunk]:
        try:
            for chunk in self.kept:
                yield chunk
        finally:
            self.is_closed = True

    async def echo(self, value: Any) -> Any:
        self.kept.append(value)
        return value


def speaking() -> tuple[Any, KeepsAll]:
    """Return a view of a provider, and the provider."""
    provider = KeepsAll()
    handle = ViewHandle(Speaker, lambda name, info, call: call or CallContext.model_validate({}))
    handle.bind({name: getattr(provider, name) for name in interface_methods(Speaker)})
    return handle.view, provider


async def test_changed_items_do_not_reach_the_provider() -> None:
    view, provider = speaking()
    async for chunk in view.chunks():
        chunk.words.append("more")
    assert [chunk.words for chunk in provider.kept] == [["one"], ["two"]]
    async for chunk in provider.chunks():
        chunk.words.append("more")
    assert [chunk.words for chunk in provider.kept] == [["one", "more"], ["two", "more"]]
    assert provider.is_closed
    provider.is_closed = False
    stream = view.chunks()
    assert (await anext(stream)).words == ["one", "more"]
    await stream.aclose()
    assert provider.is_closed


# --- what goes in ------------------------------------------------------------------------------------


async def test_changed_arguments_do_not_reach_the_provider(tmp_path: Path) -> None:
    async with scene(tmp_path, use=SAVE) as on:
        for manager, expected in ((on.view, ["one"]), (on.plain, ["one", "two"])):
            document: dict[str, Any] = {"name": "Mine", "words": ["one"]}
            workflow = with_node()
            await manager.parse(document)
            await manager.save("mine", workflow)
            document["words"].append("two")
            workflow.nodes[0].input_values["words"].append("two")  # type: ignore[union-attr]
            parsed, saved = on.plain.seen[-2:]
            assert parsed["words"] == expected
            assert saved.nodes[0].input_values["words"] == expected
        sly = SlyWorkflow(name="Mine")
        assert sly.model_copy(deep=True) is sly
        await on.view.save("mine", sly)
        sly.nodes.append(WorkflowNode(id="a", type="core:text"))
        assert on.plain.seen[-1] is not sly
        assert on.plain.seen[-1].nodes == []


class SlyWorkflow(Workflow):
    """A workflow that says that it has been copied."""

    def __copy__(self) -> SlyWorkflow:
        return self

    def __deepcopy__(self, memo: Any = None) -> SlyWorkflow:
        return self

    def model_copy(self, **options: Any) -> SlyWorkflow:
        return self


class SlyText(str):
    """A text that is equal to everything and shows itself as another one."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __str__(self) -> str:
        return "another"

    def __deepcopy__(self, memo: Any) -> SlyText:
        return self


class SlyList(list[Any]):
    """A list that hides its items and cannot be copied."""

    def __iter__(self) -> Any:
        return iter(())

    def __deepcopy__(self, memo: Any) -> SlyList:
        return self


class SlyDict(dict[str, Any]):
    """A dict that hides its items and cannot be copied."""

    def items(self) -> Any:
        return ()

    def __deepcopy__(self, memo: Any) -> SlyDict:
        return self


async def test_values_of_derived_types_arrive_as_plain_ones() -> None:
    view, provider = speaking()
    await view.echo(SlyDict({SlyText("key"): SlyList([SlyText("value"), (SlyText("inner"), True)])}))
    arrived = provider.kept[-1]
    assert type(arrived) is dict
    ((key, value),) = arrived.items()
    assert (type(key), type(value), type(value[0]), type(value[1][0])) == (str, list, str, str)
    assert f"{key} {value}" == "key ['value', ('inner', True)]"


async def test_deep_and_shared_values_are_copied_or_refused() -> None:
    view, provider = speaking()
    deep: list[Any] = []
    shared: list[Any] = ["x"]
    inside: list[Any] = []
    inside.append(inside)
    pair: Any = ("x",)
    for _ in range(10_000):
        deep = [deep]
    for _ in range(64):  # written out it would not fit into any memory
        shared, pair = [shared, shared], (pair, pair)
    await view.echo([deep, shared, pair, inside])
    copied = provider.kept[-1]
    assert copied[1][0] is copied[1][1] is not shared[0]
    assert copied[3][0] is copied[3] is not inside
    before = list(provider.kept)
    with pytest.raises(InvalidInput) as caught:
        await view.echo({"lock": threading.Lock()})
    assert str(caught.value).startswith("speaker.echo: the argument value cannot be copied: TypeError: cannot pickle")
    assert provider.kept == before


# --- what hooks are given and answer -----------------------------------------------------------------

OFFERS = """
from tavern_host import ToolDefinition, ToolImplementation, hookimpl

MADE = ToolImplementation(kind="service", service="workflowManager", method="list_workflows")
TOOL = ToolDefinition(id="offers:tales", description="Lists tales.", implementation=MADE)

@hookimpl
def tavern_discover_tools():
    return [TOOL]
"""


async def test_hook_answers_cannot_be_changed_later(tmp_path: Path) -> None:
    hooks = {"hooks": ["hook:server:tools:discover"]}
    folder = write_plugin(tmp_path / "offers", {"__init__.py": OFFERS}, permissions=hooks)
    async with Host(tmp_path / "project", plugins=[folder], trust=["offers"]) as host:
        tools = host.services.get(TOOL_MANAGER)
        before = (await tools.get("offers:tales")).parameters
        module_of("offers").TOOL.parameters["sneaked"] = "in"
        assert (await tools.get("offers:tales")).parameters == before


TELLS = """
from tavern_host import PluginContext, Veto, hookspec
from tavern_host.contracts.wire import Model

class Said(Model):
    words: list[str]

@hookspec(permission="hook:plugin:tells:told", level="intercept", policy="collect", description="Hear.")
def tells_told(words: list[str], context: PluginContext) -> None:
    pass

@hookspec(permission="hook:plugin:tells:asked", level="intercept", policy="first", description="Answer.")
def tells_asked(words: list[str], context: PluginContext) -> str | None:
    pass

@hookspec(permission="hook:plugin:tells:said", level="intercept", policy="filter", description="Change.")
def tells_said(said: Said, words: list[str], context: PluginContext) -> Said | Veto | None:
    pass
"""
HEARS = """
from tavern_host import hookimpl

HEARD = []

def hear(words):
    HEARD.append(list(words))
    words.append("spoilt")

@hookimpl
def tells_told(words):
    hear(words)

@hookimpl
def tells_asked(words):
    hear(words)

@hookimpl
def tells_said(said, words):
    hear(said.words)
    hear(words)
"""
TELLS_HOOKS = [
    {"spec": f"api:tells_{word}", "permission": f"hook:plugin:tells:{word}", "allows": allows}
    for word, allows in (("told", "Hear."), ("asked", "Answer."), ("said", "Change."))
]


async def test_each_plugin_gets_its_own_hook_arguments(tmp_path: Path) -> None:
    permissions = {"hooks": [hook["permission"] for hook in TELLS_HOOKS]}
    startup = {"hooks": ["hook:server:host:startup"]}
    code = {"__init__.py": ACME, "api.py": TELLS}
    folders = [write_plugin(tmp_path / "tells", code, permissions=startup, publishes={"hooks": TELLS_HOOKS})]
    for name in ("one", "two"):
        requires = {"plugins": {"tells": ">=1"}}
        code = {"__init__.py": HEARS}
        folders.append(write_plugin(tmp_path / name, code, permissions=permissions, requires=requires))
    async with Host(tmp_path / "project", plugins=folders, trust=["tells", "one", "two"]):
        call, words = context_of("tells").hooks, ["hi"]
        said = sys.modules["tavern_plugins.tells.api"].Said(words=["hi"])
        await call.collect("tells_told", words=words)
        await call.first("tells_asked", words=words)
        await call.filter("tells_said", said, words=words)
        assert module_of("one").HEARD == module_of("two").HEARD == [["hi"]] * 4
        assert words == said.words == ["hi"]
