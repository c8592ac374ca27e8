"""Native function calling: names for tools that a model's interface allows, and the calls turned back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tavern_host.contracts.tools import ToolDefinition, ToolImplementation
from tavern_tools.protocols.native import aliases, native_schemas

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def names_of(*tool_ids: str) -> list[str]:
    return list(aliases(tool_ids))


def test_what_a_name_may_not_hold_is_replaced() -> None:
    assert aliases(["workflow:summarize_text", "FileOperator.WriteFile", "plain-one"]) == {
        "workflow_summarize_text": "workflow:summarize_text",
        "FileOperator_WriteFile": "FileOperator.WriteFile",
        "plain-one": "plain-one",
    }


def test_ids_that_would_get_the_same_name_get_a_hash() -> None:
    first, second = names_of("a:b", "a.b")
    assert first.startswith("a_b_")
    assert second.startswith("a_b_")
    assert first != second


def test_an_id_that_is_a_name_keeps_it() -> None:
    exact, other = names_of("a_b", "a:b")
    assert exact == "a_b"
    assert other.startswith("a_b_")


def test_names_do_not_depend_on_the_order_of_the_ids() -> None:
    ids = ["a:b", "a.b", "a_b", "工具:一", "工具:二", "x" * 100]
    turned = aliases(reversed(ids))
    assert {turned[name] == tool for name, tool in aliases(ids).items()} == {True}


def test_letters_that_get_lost_and_long_ids_are_told_by_a_hash() -> None:
    chinese, long = names_of("工具:查询", "n" * 80)
    assert re.fullmatch(r"tool_[0-9a-f]{8}", chinese)
    assert re.fullmatch(r"n{55}_[0-9a-f]{8}", long)


def test_a_hashed_name_does_not_take_the_name_of_another_tool() -> None:
    (hashed,) = (name for name in names_of("a:b", "a.b") if aliases(["a:b", "a.b"])[name] == "a:b")
    found = aliases(["a:b", "a.b", hashed])
    assert found[hashed] == hashed
    assert sorted(found.values()) == sorted(["a:b", "a.b", hashed])


@given(st.lists(st.text(st.sampled_from("ab_:.-中文1"), max_size=4) | st.text(max_size=80), max_size=12))
def test_every_id_has_a_name_of_its_own_that_is_allowed(ids: list[str]) -> None:
    found = aliases(ids)
    assert sorted(found.values()) == sorted(set(ids))
    assert all(NAME.fullmatch(name) for name in found)


def test_schemas_have_the_shape_that_models_interfaces_take() -> None:
    parameters = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    node = ToolImplementation(kind="node", node_type="n")
    tools = {
        "kb:Query": ToolDefinition(id="kb:Query", description="Asks.", implementation=node, parameters=parameters),
        "bare": ToolDefinition(id="bare", display_name="Bare", implementation=node, parameters={}),
    }
    assert native_schemas(["kb:Query", "gone", "bare"], tools) == [
        {"type": "function", "function": {"name": "kb_Query", "description": "Asks.", "parameters": parameters}},
        {
            "type": "function",
            "function": {"name": "bare", "description": "Bare", "parameters": {"type": "object", "properties": {}}},
        },
    ]


@pytest.mark.parametrize("ids", [[], [""], ["", "_"]])
def test_even_odd_ids_have_names(ids: list[str]) -> None:
    assert sorted(aliases(ids).values()) == sorted(ids)
