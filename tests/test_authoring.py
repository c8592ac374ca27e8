"""`@node`: what becomes of type hints, and what an author is told where they cannot be read."""

from __future__ import annotations

import sys
import types
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Optional, TypedDict

import pytest
import typing_extensions
from helpers.repetition import Failures

from tavern_host import Config, NodeContext, NodeDefinition, PluginContext, Slot, hookimpl, node, nodes_of
from tavern_host.contracts.nodes import DataFlowType, NodeTraits, SlotDefinition
from tavern_host.sdk.decorator import NodeCode

if TYPE_CHECKING:
    from decimal import Decimal


def code_of(target: Any) -> NodeCode:
    code = target.__tavern_node__
    assert isinstance(code, NodeCode)
    return code


def definition_of(target: Any) -> NodeDefinition:
    return code_of(target).definition


def served(target: Any) -> dict[str, Any]:
    return definition_of(target).to_wire()


# What hints say


def test_names_come_from_the_function_unless_said() -> None:
    @node(category="text")
    def upper_case(text: str) -> str:
        """Write all letters as capitals."""
        return text.upper()

    assert upper_case("a") == "A", "the function is left as it was"
    definition = definition_of(upper_case)
    assert (definition.type, definition.display_name, definition.category) == ("UpperCase", "upper case", "text")
    assert definition.description == "Write all letters as capitals."
    assert definition.handler == f"{__name__}:{upper_case.__qualname__}"
    said = {"type": "Shout", "display_name": "Shout!", "description": "Loud.", "width": 300, "version": "2"}
    loud = definition_of(node(**said)(upper_case))
    assert {name: getattr(loud, name) for name in said} == said
    for name, type in {"to_json": "ToJson", "loadURL": "LoadURL", "Counter": "Counter", "x": "X"}.items():
        upper_case.__name__ = name
        assert definition_of(node()(upper_case)).type == type


def test_every_plain_type_has_a_data_flow_type() -> None:
    @node()
    def everything(
        a: str, b: int, c: float, d: bool, e: dict[str, Any], f: list[int], g: bytes, h: Any, i: list, j: dict
    ) -> None: ...

    types = [slot.data_flow_type.value for slot in definition_of(everything).inputs.values()]
    assert " ".join(types) == "STRING INTEGER FLOAT BOOLEAN OBJECT ARRAY BINARY WILDCARD ARRAY OBJECT"


def test_a_slot_describes_its_input() -> None:
    @node()
    def pick(
        amount: Annotated[
            float, Slot("How much.", display_name="Amount", min=0, max=1, match_categories=("Ratio",), type="INTEGER")
        ],
        max_items: int,
    ) -> None: ...

    assert served(pick)["inputs"] == {
        "amount": {
            "dataFlowType": "INTEGER",
            "displayName": "Amount",
            "description": "How much.",
            "required": True,
            "matchCategories": ["Ratio"],
            "config": {"min": 0, "max": 1},
        },
        "max_items": {"dataFlowType": "INTEGER", "displayName": "max items", "required": True},
    }


def test_defaults_and_optional_hints_make_an_input_optional() -> None:
    @node()
    def many(
        needed: str,
        only_in_slot: Annotated[int, Slot(default=5)],
        with_default: int = 3,
        with_false: bool = False,
        with_none: str | None = None,
        may_be_none: Optional[str] = None,  # noqa: UP045
        none_without_default: str | None = "x",
        in_slot: Annotated[int, Slot(default=5)] = 7,
        in_both: Annotated[int, Slot(default=5)] = 5,
        forced: Annotated[int, Slot(required=True)] = 1,
    ) -> None: ...

    inputs = definition_of(many).inputs
    assert {key for key, slot in inputs.items() if slot.required} == {"needed", "forced"}
    assert {key: slot.default for key, slot in inputs.items() if slot.has_default} == {
        **{"only_in_slot": 5, "with_default": 3, "with_false": False, "none_without_default": "x"},
        **{"in_slot": 5, "in_both": 5, "forced": 1},
    }


def test_none_may_stand_inside_or_outside_of_the_annotation() -> None:
    @node()
    def both(
        inside: Annotated[str | None, Slot("In.")] = None, outside: Annotated[str, Slot("Out.")] | None = None
    ) -> None: ...

    inputs = definition_of(both).inputs
    assert [(s.data_flow_type, s.description, s.required) for s in inputs.values()] == [
        (DataFlowType.STRING, "In.", False),
        (DataFlowType.STRING, "Out.", False),
    ]


def test_literals_become_suggestions() -> None:
    @node()
    def choose(size: Literal["small", "large"] = "small", level: Literal[1, 2] | None = None) -> None: ...

    inputs = served(choose)["inputs"]
    assert inputs["size"] == {
        "dataFlowType": "STRING",
        "displayName": "size",
        "required": False,
        "matchCategories": ["ComboOption"],
        "config": {
            "default": "small",
            "suggestions": [{"value": "small", "label": "small"}, {"value": "large", "label": "large"}],
        },
    }
    assert inputs["level"]["dataFlowType"] == "INTEGER"
    assert inputs["level"]["config"] == {"suggestions": [{"value": 1, "label": "1"}, {"value": 2, "label": "2"}]}


def test_a_multi_input_has_the_type_of_one_edge() -> None:
    @node()
    def merge(
        texts: Annotated[list[str], Slot(multi=True)], lists: Annotated[list[list[int]], Slot(multi=True)]
    ) -> None: ...

    inputs = definition_of(merge).inputs
    assert [(slot.data_flow_type, slot.multi) for slot in inputs.values()] == [
        (DataFlowType.STRING, True),
        (DataFlowType.ARRAY, True),
    ]


def test_neither_configuration_nor_the_context_is_an_input() -> None:
    @node()
    def scale(value: float, context: NodeContext, factor: Annotated[float, Config("How much.")] = 2.0) -> float:
        return value * factor

    wire = served(scale)
    assert list(wire["inputs"]) == ["value"]
    assert wire["configSchema"] == {
        "factor": {
            "dataFlowType": "FLOAT",
            "displayName": "factor",
            "description": "How much.",
            "required": False,
            "config": {"default": 2.0},
        }
    }
    code = code_of(scale)
    assert (code.parameters, code.config_parameters, code.context_parameter) == (("value",), ("factor",), "context")


# Outputs


def test_a_plain_result_is_one_output_or_none() -> None:
    @node()
    def plain() -> int:
        return 1

    @node()
    def named() -> Annotated[str, Slot("The text.", key="text")]:
        return ""

    @node()
    def log(text: str) -> None: ...

    assert served(plain)["outputs"] == {"result": {"dataFlowType": "INTEGER", "displayName": "result"}}
    assert served(named)["outputs"] == {
        "text": {"dataFlowType": "STRING", "displayName": "text", "description": "The text."}
    }
    assert served(log)["outputs"] == {}
    assert [code_of(one).single_output for one in (plain, named, log)] == ["result", "text", None]
    assert "handler" not in served(plain) and "traits" not in served(plain), "neither is ever sent out"
    assert (served(plain)["execute"], served(plain)["_executes"]) == ({"__function__": True}, True)


class Parts(TypedDict):
    head: Annotated[str, Slot("The first.")]
    rest: NotRequired[list[str]]


class ExtendedParts(typing_extensions.TypedDict):
    head: Annotated[str, Slot("The first.")]
    rest: NotRequired[list[str]]


@pytest.mark.parametrize("result", [Parts, ExtendedParts])
def test_a_typed_dict_is_several_outputs(result: Any) -> None:
    def cut(text: str) -> Any: ...

    cut.__annotations__["return"] = result
    code = code_of(node()(cut))
    assert code.definition.to_wire()["outputs"] == {
        "head": {"dataFlowType": "STRING", "displayName": "head", "description": "The first."},
        "rest": {"dataFlowType": "ARRAY", "displayName": "rest"},
    }
    assert code.single_output is None


# Class nodes, raw nodes


def test_a_class_takes_configuration_in_its_constructor_and_inputs_in_run() -> None:
    @node(category="flow")
    class Tally:
        """Counts."""

        def __init__(self, start: int = 0) -> None:
            self.count = start

        async def run(self, text: str, step: Annotated[int, Config("Added.")] = 1) -> int:
            self.count += step
            return self.count

    code = code_of(Tally)
    assert code.is_class
    assert (code.definition.type, code.definition.description) == ("Tally", "Counts.")
    assert list(code.definition.inputs) == ["text"]
    assert list(code.definition.config_schema or {}) == ["step", "start"]
    assert code.config_parameters == ("step",)

    @node()
    class Plain:
        def run(self, text: str) -> str:
            return text

    assert "configSchema" not in served(Plain), "it needs no constructor"


def test_with_a_definition_nothing_is_read_from_the_hints() -> None:
    definition = NodeDefinition(type="Raw", namespace="acme", dynamic_slots=True)

    @node(definition=definition)
    def raw(inputs, config):  # type: ignore[no-untyped-def]
        return {}

    assert code_of(raw).raw
    traits = NodeTraits(wants_call=False)
    assert definition_of(raw) == definition.model_copy(
        update={"handler": f"{__name__}:{raw.__qualname__}", "traits": traits}
    )
    assert definition.handler == ""


# Streams


class Told(TypedDict):
    text: Annotated[str, Slot("Word by word.", stream=True)]
    whole: NotRequired[str]
    refused: NotRequired[Annotated[str, Slot(branch=True)]]


def test_an_async_generator_has_one_output_that_is_a_stream() -> None:
    @node()
    async def count(to: int) -> AsyncIterator[int]:
        yield to

    @node()
    async def named() -> Annotated[AsyncGenerator[str, None], Slot("The words.", key="words")]:
        yield ""

    @node()
    async def inside() -> AsyncIterator[Annotated[str, Slot("The words.", key="words")]]:
        yield ""

    assert served(count)["outputs"] == {
        "result": {"dataFlowType": "INTEGER", "displayName": "result", "isStream": True}
    }
    for target in (named, inside):
        assert served(target)["outputs"] == {
            "words": {"dataFlowType": "STRING", "displayName": "words", "description": "The words.", "isStream": True}
        }

    @node()
    class Ticker:
        async def run(self, to: int) -> AsyncIterator[int]:
            yield to

    assert definition_of(count).traits.streams
    assert (definition_of(Ticker).traits.streams, definition_of(Ticker).traits.stateful) == (True, True)
    assert code_of(named).single_output == "words"


def test_an_async_generator_of_a_typed_dict_has_streams_beside_other_outputs() -> None:
    @node()
    async def tell(text: str) -> AsyncIterator[Told]:
        yield {"text": text}

    outputs = definition_of(tell).outputs
    assert [(key, slot.is_stream, slot.is_branch) for key, slot in outputs.items()] == [
        ("text", True, None),
        ("whole", None, None),
        ("refused", None, True),
    ]
    assert served(tell)["outputs"]["refused"]["isBranch"] is True
    assert (code_of(tell).single_output, definition_of(tell).traits.streams) == (None, True)


def test_an_input_hinted_as_an_iterator_is_a_stream() -> None:
    @node()
    async def join(
        words: Annotated[AsyncIterator[str], Slot("The words.")],
        more: AsyncIterator[Annotated[int, Slot("Numbers.")]] | None = None,
        anything: AsyncIterable | None = None,  # type: ignore[type-arg]
    ) -> str: ...

    assert served(join)["inputs"] == {
        "words": {
            "dataFlowType": "STRING",
            "displayName": "words",
            "description": "The words.",
            "required": True,
            "isStream": True,
        },
        "more": {
            "dataFlowType": "INTEGER",
            "displayName": "more",
            "description": "Numbers.",
            "required": False,
            "isStream": True,
        },
        "anything": {"dataFlowType": "WILDCARD", "displayName": "anything", "required": False, "isStream": True},
    }
    assert not definition_of(join).traits.streams


# Traits, buttons, bypass


BUTTON = {"id": "reroll", "icon": "Dice", "handlerType": "emit_event", "handlerArgs": {"event": "roll"}}


def test_a_slot_has_buttons() -> None:
    @node(actions={"reroll": lambda inputs, config: {"value": 4}})
    def dice(value: Annotated[int, Slot(actions=[BUTTON])] = 0) -> int: ...

    assert served(dice)["inputs"]["value"]["actions"] == [BUTTON]
    assert definition_of(dice).traits.actions == ("reroll",)


def test_a_plain_function_asks_nothing_of_who_runs_it() -> None:
    @node()
    async def plain(text: str) -> str: ...

    @node()
    async def with_context(text: str, context: NodeContext) -> str: ...

    assert definition_of(plain).traits == NodeTraits(wants_call=False)
    assert definition_of(with_context).traits == NodeTraits(wants_call=True)


@node(isolated=True)
def heavy(text: str, rounds: Annotated[int, Config()] = 1) -> str: ...


@node(isolated=True, definition=NodeDefinition(type="Raw", namespace="acme"))
def raw_heavy(inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]: ...


def test_where_a_function_runs_is_a_trait() -> None:
    @node(blocking=True)
    def slow(text: str) -> str: ...

    @node(blocking=True)
    class Slow:
        def run(self, text: str) -> str: ...

    assert [definition_of(target).traits.placement for target in (slow, Slow, heavy, raw_heavy)] == [
        "thread",
        "thread",
        "process",
        "process",
    ]


def test_a_node_says_whether_its_outputs_may_be_kept() -> None:
    async def stamp(inputs: dict[str, Any], config: dict[str, Any], context: PluginContext) -> str: ...

    @node(cached=False)
    def now() -> str: ...

    @node(is_changed=stamp)
    def read(path: str) -> str: ...

    assert (definition_of(now).traits.cached, definition_of(read).traits.cached) == (False, True)
    assert (definition_of(now).traits.checks_change, definition_of(read).traits.checks_change) == (False, True)
    assert code_of(read).change is not None and code_of(read).change.context_parameter == "context"


def test_what_a_bypassed_node_gives_is_said_with_it() -> None:
    @node(bypass={"result": "text"}, version="2.1")
    def upper(text: str) -> str: ...

    @node(bypass="mute")
    def drop(text: str) -> str: ...

    assert served(upper)["bypassBehavior"] == {"passThrough": {"result": "text"}}
    assert (served(upper)["version"], served(drop)["bypassBehavior"]) == ("2.1", "mute")


def test_what_is_said_of_a_raw_node_is_added_to_its_definition() -> None:
    written = NodeDefinition(
        type="Raw",
        namespace="acme",
        inputs={"a": SlotDefinition(data_flow_type=DataFlowType.STRING)},
        outputs={"b": SlotDefinition(data_flow_type=DataFlowType.STRING, is_stream=True)},
        traits=NodeTraits(cached=False),
    )

    @node(definition=written, bypass={"b": "a"}, version="3", actions={"go": lambda inputs, config: None})
    async def raw(inputs: dict[str, Any], config: dict[str, Any], *, where: NodeContext) -> AsyncIterator[Any]:
        yield {}

    definition = definition_of(raw)
    assert definition.traits == NodeTraits(streams=True, cached=False, wants_call=True, actions=("go",))
    assert code_of(raw).context_parameter == "where"
    assert definition.to_wire()["bypassBehavior"] == {"passThrough": {"b": "a"}}
    assert definition.version == "3"
    assert written.version is None


# What an author is told


def no_hint(text) -> str: ...  # type: ignore[no-untyped-def]


def no_return_hint(text: str): ...  # type: ignore[no-untyped-def]


def unknown_type(text: set[str]) -> str: ...


def unknown_output() -> complex: ...


def two_types(value: int | str) -> str: ...


def mixed_literal(value: Literal["a", 1]) -> str: ...


def star(*texts: str) -> str: ...


def only_checked(price: Decimal) -> str: ...


def default_not_json(value: Any = object()) -> str: ...  # noqa: B008


def hint_not_json(value: Annotated[int, Slot(min=1j)]) -> str: ...


def generator(text: str) -> str:  # type: ignore[misc]
    yield text


async def returns_a_stream() -> AsyncIterator[str]: ...


async def streams_a_value() -> str:  # type: ignore[misc]
    yield ""


class NoStream(TypedDict):
    text: str


async def no_stream() -> AsyncIterator[NoStream]:
    yield {"text": ""}


def stream_without_generator() -> Told: ...


def a_stream_said_of_an_input(text: Annotated[str, Slot(stream=True)]) -> str: ...


async def a_stream_of_several(text: Annotated[AsyncIterator[str], Slot(multi=True)]) -> str: ...


async def a_stream_configured(text: Annotated[AsyncIterator[str], Config()]) -> str: ...


def a_branch_into(text: Annotated[str, Slot(branch=True)]) -> str: ...


def only_branch() -> Annotated[str, Slot(branch=True)]: ...


class IteratorField(TypedDict):
    text: AsyncIterator[str]


async def hinted_twice() -> AsyncIterator[IteratorField]:
    yield {}  # type: ignore[typeddict-item]


class NoRun:
    pass


class UnhintedConstructor:
    def __init__(self, start=0) -> None: ...  # type: ignore[no-untyped-def]

    def run(self) -> None: ...


class Twice:
    def __init__(self, start: int = 0) -> None: ...

    def run(self, start: int) -> None: ...


ALLOWED = "use str, int, float, bool, dict, list, bytes, Blob, Any or Literal, or give Slot(type=…)"

MISTAKES = [
    (no_hint, "parameter 'text' has no type hint"),
    (no_return_hint, "the return type has no hint"),
    (unknown_type, f"slot 'text': set[str] has no data-flow type; {ALLOWED}"),
    (unknown_output, f"slot 'result': <class 'complex'> has no data-flow type; {ALLOWED}"),
    (two_types, f"slot 'value': int | str has no data-flow type; {ALLOWED}"),
    (mixed_literal, "slot 'value': the choices of typing.Literal['a', 1] must all be of one type"),
    (
        star,
        "parameter 'texts' cannot be a slot; "
        "slots are passed by name, so *args, **kwargs and positional-only parameters are not possible",
    ),
    (
        only_checked,
        "a type hint uses 'Decimal', which its module does not have when it runs; import it outside `if TYPE_CHECKING`",
    ),
    (default_not_json, "slot 'value': config.default is not a JSON value; defaults and hints must be JSON"),
    (hint_not_json, "slot 'value': config.min is not a JSON value; defaults and hints must be JSON"),
    (generator, "a node that streams is an async generator; make it `async def`"),
    (returns_a_stream, "its return type must be that of a value; only async generators stream"),
    (streams_a_value, "its return type must be AsyncIterator[…] of what it yields"),
    (
        no_stream,
        "no field of NoStream is marked Slot(stream=True); "
        "for a stream of dicts the hint is AsyncIterator[dict[str, Any]]",
    ),
    (stream_without_generator, "slot 'text': stream=True is for the outputs of async generators"),
    (a_stream_said_of_an_input, "slot 'text': an input that is a stream is hinted AsyncIterator[…]"),
    (
        a_stream_of_several,
        "slot 'text': collections.abc.AsyncIterator[str] is a stream, "
        "which Slot(multi=True) and Slot(stream=False) are not",
    ),
    (a_stream_configured, "slot 'text': a configuration value cannot be a stream"),
    (a_branch_into, "slot 'text': branch=True is for outputs"),
    (only_branch, "slot 'result': branch=True is for the fields of a TypedDict, which can be left out"),
    (hinted_twice, "slot 'text': hint the type of one item, and say Slot(stream=True)"),
    (NoRun, "a class node needs a method `run`"),
    (UnhintedConstructor, "parameter 'start' has no type hint"),
    (Twice, "both the constructor and `run` take 'start'; rename one of them"),
]


def test_what_cannot_be_read_is_told_with_its_name() -> None:
    with Failures() as failures:
        for target, message in MISTAKES:
            with failures.row(target.__name__):
                with pytest.raises(TypeError) as refused:
                    node()(target)
                assert str(refused.value) == f"{target.__name__}: {message}"


async def isolated_coroutine(text: str) -> str: ...


def isolated_stream(text: AsyncIterator[str]) -> str: ...


class IsolatedClass:
    def run(self) -> str: ...


def plain(text: str) -> str: ...


OF_A_MODULE = "isolated=True is for `def` functions of a module, which another process can import"


MISFITS: list[tuple[Any, dict[str, Any], str]] = [
    (isolated_coroutine, {"blocking": True}, "blocking=True is for `def` functions; this one is `async def`"),
    (isolated_coroutine, {"isolated": True}, "isolated=True is for `def` functions; this one is `async def`"),
    (isolated_stream, {"isolated": True}, "isolated=True is for functions without streams; 'text' is one"),
    (isolated_stream, {"blocking": True}, "blocking=True is for functions without streams; 'text' is one"),
    (IsolatedClass, {"isolated": True}, OF_A_MODULE),
    (plain, {"isolated": True, "blocking": True}, "blocking=True and isolated=True exclude each other"),
    (plain, {"bypass": "pass"}, "bypass is 'mute' or a dict of outputs and inputs, got 'pass'"),
    (plain, {"bypass": {"resul": "text"}}, "bypass names the output 'resul', which the node does not have"),
    (plain, {"bypass": {"result": "txt"}}, "bypass names the input 'txt', which the node does not have"),
    (plain, {"is_changed": "always"}, "is_changed must be a function that returns, got 'always'"),
    (
        plain,
        {"is_changed": lambda inputs: 1},
        "is_changed is called with (inputs, config): too many positional arguments",
    ),
    (
        plain,
        {"actions": {"go": lambda inputs, config, more: 1}},
        "actions['go'] is called with (inputs, config), and a context in a parameter annotated PluginContext; "
        "'more' is none of them",
    ),
]


def test_options_that_do_not_fit_the_function_are_told_with_its_name() -> None:
    with Failures() as failures:
        for target, options, message in MISFITS:
            with failures.row(message):
                with pytest.raises(TypeError) as refused:
                    node(**options)(target)
                assert str(refused.value) == f"{target.__qualname__}: {message}"


def test_a_function_that_another_process_cannot_import_is_not_isolated() -> None:
    def local(inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]: ...

    for target in (local, lambda inputs, config: {}):
        with pytest.raises(TypeError, match=OF_A_MODULE):
            node(isolated=True, definition=NodeDefinition(type="Raw", namespace="acme"))(target)


def test_a_raw_class_or_a_raw_function_with_more_parameters_is_refused() -> None:
    definition = NodeDefinition(type="Raw", namespace="acme")

    class Raw:
        def run(self) -> None: ...

    def more(inputs: dict[str, Any], config: dict[str, Any], colour: str) -> dict[str, Any]: ...

    with pytest.raises(TypeError, match="with `definition` a function is expected, not a class"):
        node(definition=definition)(Raw)
    with pytest.raises(TypeError, match="in a parameter annotated NodeContext; 'colour' is none of them"):
        node(definition=definition)(more)


# Collecting, hookimpl


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    folder = tmp_path / "sample_nodes"
    (folder / "deep").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "deep" / "__init__.py").write_text("")
    (folder / "a.py").write_text(
        "from tavern_host import node\n\n@node()\ndef first(text: str) -> str:\n    return text\n\nalias = first\n"
    )
    (folder / "deep" / "b.py").write_text(
        "from sample_nodes.a import first\nfrom tavern_host import node\n\n"
        "@node()\nclass Second:\n    def run(self) -> None: ...\n\n"
        "class Unmarked(Second):\n    pass\n\n"
        "def helper(text: str) -> str:\n    return text\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield __import__("sample_nodes")
    for name in [name for name in list(sys.modules) if name.partition(".")[0] == "sample_nodes"]:
        del sys.modules[name]


def test_nodes_of_finds_each_node_once_where_it_is_defined(package: types.ModuleType) -> None:
    assert [definition.handler for definition in nodes_of(package)] == [
        "sample_nodes.a:first",
        "sample_nodes.deep.b:Second",
    ]


def test_nodes_of_lets_the_error_of_a_broken_module_through(package: types.ModuleType, tmp_path: Path) -> None:
    (tmp_path / "sample_nodes" / "broken.py").write_text("raise ValueError('broken on purpose')\n")
    with pytest.raises(ValueError, match="broken on purpose"):
        nodes_of(package)


def test_hookimpl_marks_with_and_without_parentheses() -> None:
    @hookimpl
    def tavern_startup() -> None: ...

    @hookimpl(specname="tavern_startup", tryfirst=True)
    def begin() -> None: ...

    marks = [f.tavern_impl for f in (tavern_startup, begin)]  # type: ignore[attr-defined]
    assert [(m["specname"], m["tryfirst"], m["trylast"]) for m in marks] == [
        (None, False, False),
        ("tavern_startup", True, False),
    ]
