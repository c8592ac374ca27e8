"""Action text: parsed by the registered protocols, carried out step by step."""

from __future__ import annotations

from typing import Any

import pytest

from tavern_host.contracts.calls import system_call
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.macros import MacroRequest
from tavern_host.contracts.settings import SettingsChange
from tavern_host.contracts.toolcalls import ToolCallRequest, ToolErrorType, ToolScope
from tavern_tools.calls.chains import blocks


async def test_calls_remaining_text_and_warnings_are_found(stocked: Any) -> None:
    parsed = await stocked.tools.parse_text("Hello.\n!acme:repeat text=a\n!nope\n", protocols=["lines"])
    assert parsed.text == "Hello.\n"
    assert [(c.tool_id, c.arguments, c.protocol) for c in parsed.calls] == [
        ("acme:repeat", {"text": "a"}, "lines"),
        ("nope", {}, "lines"),
    ]
    assert parsed.warnings == ["lines: nope is not known (at character 0)"]


async def test_an_unknown_protocol_is_the_callers_mistake(stocked: Any) -> None:
    with pytest.raises(InvalidInput, match=r'there is no action protocol "line" \(did you mean lines\?\)'):
        await stocked.tools.parse_text("", protocols=["line"])


async def test_calls_are_carried_out_in_order_with_their_text_coerced(stocked: Any) -> None:
    stocked.write_info("info")
    done = await stocked.tools.call_text("!info name=tavern-tools\n!info Name=tavern-llm\n")
    assert [(r.index, r.status, r.structured["name"]) for r in done.results] == [  # type: ignore[index, call-overload]
        (1, "done", "tavern-tools"),
        (2, "done", "tavern-llm"),
    ]


async def test_a_failed_step_ends_its_block_but_not_the_next_one(stocked: Any) -> None:
    stocked.write_info("info")
    text = "!info name=absent\n!info name=tavern-tools\nnext\n!info name=tavern-llm\n"
    done = await stocked.tools.call_text(text)
    assert [(r.index, r.status) for r in done.results] == [(1, "error"), (1, "done")]
    assert len(done.parsed.calls) == 3


async def test_a_step_that_says_continue_does_not_end_its_block(stocked: Any) -> None:
    stocked.write_info("info")
    done = await stocked.tools.call_text("!?info name=absent\n!info name=tavern-tools\n")
    assert [(r.index, r.status) for r in done.results] == [(1, "error"), (2, "done")]


async def test_only_allowed_tools_are_called(stocked: Any) -> None:
    stocked.write_info("info")
    stocked.write_info("infos")
    done = await stocked.tools.call_text(
        "!?info name=tavern-tools\n!infos name=tavern-tools\n", scope=ToolScope(allowed=["infos"])
    )
    refused, called = done.results
    assert called.status == "done"
    assert refused.error.type == ToolErrorType.PERMISSION_DENIED
    assert refused.error.message == (
        'the tool "info" is not one of those that may be called here (did you mean infos?)'
    )


def test_the_steps_of_one_block_belong_together() -> None:
    def step(index: int, block: int, protocol: str = "tam") -> ToolCallRequest:
        return ToolCallRequest(tool_id="t", index=index, block=block, protocol=protocol)

    steps = [step(1, 0), step(2, 0), step(3, 1), step(1, 2), step(4, 2), step(1, 2, "lines"), step(1, 3, "lines")]
    assert [[s.index for s in block] for block in blocks(steps)] == [[1, 2], [3], [1, 4], [1], [1]]


async def test_the_macro_documents_the_tools_and_the_protocols(stocked: Any) -> None:
    context = stocked.host._manager.active["tavern-tools"].context  # as the agent runtime is given it
    from tavern_tools.protocols.available_tools import available_tools

    def request(*tool_ids: str) -> MacroRequest:
        return MacroRequest(name="system:available_tools", tool_ids=list(tool_ids), call=system_call())

    text = await available_tools(request("acme:measure"), context)
    assert "\n\n- Tool ID: acme:measure\n  - Description: Measures text.\n" in text
    assert "<|[REQUEST_TOOL]|>" in text
    assert await available_tools(request(), context) == "No tools are available."


# --- in the outputs of a run -------------------------------------------------------------------------


async def test_what_outputs_ask_for_is_done_and_the_texts_are_left_without_it(stocked: Any) -> None:
    stocked.write_info("info")
    text = "Before.\n<|[REQUEST_TOOL]|>\ncommand:「始」info「末」\nname:「始」tavern-llm「末」\n<|[END_TOOL]|>\n"
    outputs = {"first": f"{text}After.", "count": 3, "plain": "Nothing <here>.\n", "second": "!info name=absent\n"}
    done = await stocked.tools.call_outputs(outputs)

    assert done["first"].split() == ["Before.", "After."]  # type: ignore[union-attr]
    assert (done["count"], done["plain"], done["second"]) == (3, "Nothing <here>.\n", "")
    told, failed = done["__actions__"]  # type: ignore[misc, union-attr]
    assert (told["output"], told["toolId"], told["status"]) == ("first", "info", "done")  # type: ignore[index, call-overload]
    assert told["structured"]["name"] == "tavern-llm"  # type: ignore[index, call-overload]
    assert (failed["output"], failed["status"]) == ("second", "error")  # type: ignore[index, call-overload]
    assert failed["error"]["message"] == "there is no plugin 'absent'"  # type: ignore[index, call-overload]


async def test_outputs_that_ask_for_nothing_are_left_as_they_are(stocked: Any) -> None:
    outputs = {"text": " !! \n", "list": ["!info name=a"], "none": None, "__actions__": "of somebody else"}
    expected = {"text": " !! \n", "list": ["!info name=a"], "none": None, "__actions__": []}
    assert await stocked.tools.call_outputs(outputs) == expected
    assert await stocked.tools.call_outputs({}) == {"__actions__": []}


async def test_outputs_may_not_ask_for_more_calls_than_the_setting_allows(stocked: Any) -> None:
    stocked.write_info("info")
    await stocked.host.settings.save(SettingsChange(plugin="tavern-tools", values={"maxActions": 3}))
    ask = "!info name=tavern-llm\n" * 2
    done = await stocked.tools.call_outputs({"a": ask, "b": ask, "c": ask})
    results: Any = done["__actions__"]
    assert [(r.get("output"), r["status"]) for r in results] == [
        ("a", "done"),
        ("a", "done"),
        ("b", "done"),
        (None, "error"),
    ]
    assert results[-1]["error"]["message"] == (
        "3 of the calls were not made, info the first of them: the outputs of one run may ask for 3 "
        "(extensions.tavern-tools.maxActions)"
    )
    assert (done["a"], done["b"], done["c"]) == ("", "", "")


async def test_what_outputs_ask_for_is_done_for_who_asked_for_the_run(stocked: Any) -> None:
    stocked.write_info("info")
    events = stocked.host.events.subscribe("TOOL_CALL_UPDATE")
    call = system_call().child(run_id="run_1")
    await stocked.tools.call_outputs({"a": "!info name=tavern-llm\n"}, call=call)
    await events.close()
    seen = [event.payload async for event in events]
    assert [(e["status"], e["runId"], e["caller"]) for e in seen] == [
        ("running", "run_1", "system:host"),
        ("done", "run_1", "system:host"),
    ]
