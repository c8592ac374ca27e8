"""The nodes that make conversations: `History`, `MergeHistory`, `CreateMessage`, `MergeMessages`."""

from __future__ import annotations

import json

from node_bench import Nodes, Row, check_refusals

HI = {"role": "user", "content": "hi"}
HELLO = {"role": "assistant", "content": "你好", "id": "m2"}


async def test_a_history_has_the_messages_that_say_something(nodes: Nodes) -> None:
    inputs = {"role1": "system", "content1": "Be kind.", "role2": "user", "content2": "", "content4": "hi"}
    outputs = await nodes.run("History", inputs)
    assert json.loads(outputs["history"]) == [{"role": "system", "content": "Be kind."}, HI]
    assert await nodes.run("History") == {"history": "[]"}


async def test_histories_are_put_one_after_another(nodes: Nodes) -> None:
    inputs = {"history1": json.dumps([HI]), "history2": "", "history4": json.dumps([HELLO, HI])}
    assert json.loads((await nodes.run("MergeHistory", inputs))["history"]) == [HI, HELLO, HI]


async def test_a_message_is_a_list_of_one(nodes: Nodes) -> None:
    outputs = await nodes.run("CreateMessage", {"role": "user", "content": "hi"})
    assert json.loads(outputs["messages"]) == [HI]


async def test_messages_and_lists_are_merged_in_order_with_all_that_they_hold(nodes: Nodes) -> None:
    parts = [json.dumps(HELLO), [HI], HI, "", json.dumps([])]
    outputs = await nodes.run("MergeMessages", {"message_inputs": parts})
    assert json.loads(outputs["messages"]) == [HELLO, HI, HI]


REFUSED: list[Row] = [
    ("CreateMessage", {"role": "bard"}, {}, "role: expected one of system, user, assistant, tool, "
        "not 'bard'"),
    ("CreateMessage", {"content": 3}, {}, "content must be text, not a number"),
    ("MergeHistory", {"history2": "[{]"}, {}, "history2 is not JSON: Expecting property name enclosed in "
        "double quotes at line 1, column 3"),
    ("MergeHistory", {"history1": "3"}, {}, "history1: expected a list of messages, not a number"),
    ("MergeMessages", {"message_inputs": [[HI], [HI, "x"]]}, {},
        "message_inputs[1][1]: expected an object with role and content, not text"),
    ("MergeMessages", {"message_inputs": [{"role": "user", "content": None}]}, {},
        "message_inputs[0][0].content: expected text, not nothing"),
    ("MergeMessages", {"message_inputs": "[" * 100_000}, {},
        "message_inputs[0] is nested more than 100 deep"),
    ("History", {"content1": "a", "role1": "x"}, {}, "role1: expected one of system, user, assistant, tool, "
        "not 'x'"),
]  # fmt: skip


async def test_what_is_no_message_is_told(nodes: Nodes) -> None:
    await check_refusals(nodes, REFUSED)
