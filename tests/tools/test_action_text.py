"""Action text in a host: read by the registered protocols, carried out step by step, also in the outputs of runs."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from helpers.systems import on_linux
from helpers.waiting import until
from helpers.workflow_documents import workflow_document

from tavern_host import EXECUTION_ENGINE
from tavern_host.contracts.calls import CallContext, Principal, system_call
from tavern_host.contracts.errors import InvalidInput, TavernError
from tavern_host.contracts.executions import Run, RunActions, RunRequest
from tavern_host.contracts.settings import SettingsChange
from tavern_host.contracts.workflows import Workflow
from tavern_tools import State
from tavern_tools.api.macros import MacroRequest
from tavern_tools.api.protocols import ParserOptions
from tavern_tools.api.toolcalls import ToolErrorType, ToolScope
from tavern_tools.protocols.available_tools import available_tools

TEXT = """One <ACTION><tool_id>info</tool_id><inputs><input name="name">a</input></inputs></ACTION>
two <|[REQUEST_TOOL]|>
command:「始」info「末」
name:「始」b「末」
<|[END_TOOL]|> three <tool_call name="info"><param name="name">c</param></tool_call>
!info name=d
"""


def protocols(bench: Any) -> Any:
    return bench.host._manager.active["tavern-tools"].context.own(State).protocols


# --- reading --------------------------------------------------------------------------------------


async def test_all_or_the_named_protocols_read_a_text(stocked: Any) -> None:
    infos = [(info.name, info.source) for info in await protocols(stocked).infos()]
    assert infos[:4] == [("tam", "text"), ("action", "text"), ("tool_call", "text"), ("native", "native")]
    parsed = await stocked.tools.parse_text(TEXT)
    assert [(call.protocol, call.arguments["name"], call.block) for call in parsed.calls] == [
        *(("action", "a", 0), ("tam", "b", 1), ("tool_call", "c", 2), ("lines", "d", 3))
    ]
    assert parsed.text.split() == ["One", "two", "three"]
    parsed = await stocked.tools.parse_text(TEXT, protocols=["tool_call", "tam"])
    assert [call.protocol for call in parsed.calls] == ["tam", "tool_call"]
    assert "<ACTION>" in parsed.text
    parsed = await stocked.tools.parse_text("Well, <ACTION></ACTION>")
    assert parsed.warnings == ["action: it names no tool; nothing is called (at character 6)"]
    parsed = await stocked.tools.parse_text("Hello.\n!acme:repeat text=a\n!nope\n", protocols=["lines"])
    assert (parsed.text, parsed.warnings) == ("Hello.\n", ["lines: nope is not known (at character 0)"])
    assert [(c.tool_id, c.arguments) for c in parsed.calls] == [("acme:repeat", {"text": "a"}), ("nope", {})]
    for name, said in (
        ("native", "the action protocol 'native' is not for text"),
        ("line", r'there is no action protocol "line" \(did you mean lines\?\)'),
    ):
        with pytest.raises(InvalidInput, match=said):
            await stocked.tools.parse_text("", protocols=[name])


async def test_a_stream_is_read_while_it_comes(bench: Any) -> None:
    fed: list[str] = []

    async def chunks() -> AsyncIterator[str]:
        for piece in ("Hello ", TEXT[:100], TEXT[100:]):
            fed.append(piece)
            yield piece

    seen = [(event.kind, len(fed)) async for event in protocols(bench).parse_stream(chunks(), None, ParserOptions())]
    assert seen[0] == ("text", 1)
    assert ("call", 2) in seen
    assert [kind for kind, _ in seen].count("call") == 3


async def test_native_calls_have_the_names_models_were_given(stocked: Any) -> None:
    ids = ["acme:repeat", "FileOperator.ReadFile"]
    names = [schema["function"]["name"] for schema in await stocked.tools.native_schemas(ids)]
    assert names == ["acme_repeat", "FileOperator_ReadFile"]
    function = {"name": names[0], "arguments": json.dumps({"text": "ab", "times": 3})}
    asked: list[Any] = [{"id": "call_1", "type": "function", "function": function}, "nonsense"]
    parsed = await stocked.tools.native_calls(asked, tool_ids=ids)
    assert (parsed.warnings, parsed.text) == (["native: expected a call, got 'nonsense'"], "")
    (result,) = await stocked.tools.call_all(parsed.calls)
    assert (result.structured, result.request_id, parsed.calls[0].protocol) == ("ababab", "call_1", "native")


NAMED_AS_SHOWN = [
    '<tool_call>{"name": "acme_repeat", "arguments": {"text": "ab", "times": 2}}</tool_call>',
    'TOOL_CALL: {"name": "acme_repeat", "arguments": {"text": "ab", "times": 2}}',
    '<tool_call name="acme_repeat"><param name="text">ab</param><param name="times">2</param></tool_call>',
    '<ACTION><tool_id>acme_repeat</tool_id><input name="text">ab</input><input name="times">2</input></ACTION>',
    "<|[REQUEST_TOOL]|>command:「始」acme_repeat「末」\nText:「始」ab「末」\ntimes:「始」2「末」<|[END_TOOL]|>",
    "!acme_repeat text=ab\n",
]


async def test_texts_may_name_tools_as_they_are_offered_natively(stocked: Any) -> None:
    for text in NAMED_AS_SHOWN:
        done = await stocked.tools.call_text(text)
        assert [(call.tool_id, call.refused) for call in done.parsed.calls] == [("acme:repeat", None)]
        assert [result.structured for result in done.results] == ["abab"], text
    stocked.write_info("acme.repeat")  # one name would do for both: only what was offered says which is meant
    assert "acme.repeat" in await stocked.ids()
    asked = NAMED_AS_SHOWN[0]
    for offered, tool_id in ((None, "acme_repeat"), (["acme:repeat"], "acme:repeat"), (["acme.repeat"], "acme.repeat")):
        [call] = (await stocked.tools.parse_text(asked, tool_ids=offered)).calls
        assert call.tool_id == tool_id
    both = ["acme:repeat", "acme.repeat"]
    names = [schema["function"]["name"] for schema in await stocked.tools.native_schemas(both)]
    for name, tool_id in zip(names, both, strict=True):
        [call] = (await stocked.tools.parse_text(asked.replace("acme_repeat", name), tool_ids=both)).calls
        assert call.tool_id == tool_id
    stocked.write_info("acme_repeat")  # an id comes first
    assert "acme_repeat" in await stocked.ids()
    [call] = (await stocked.tools.parse_text(asked, tool_ids=["acme:repeat"])).calls
    assert call.tool_id == "acme_repeat"


async def test_models_are_told_of_tools_and_one_protocol(stocked: Any) -> None:
    told = protocols(stocked).instructions
    assert "<|[REQUEST_TOOL]|>" in await told()
    assert "!tool" not in await told()
    assert await told([]) == await told(["native"]) == ""
    assert (await told(["tool_call", "lines"])).endswith("\n\nWrite !tool key=value.")
    with pytest.raises(InvalidInput, match=r'there is no action protocol "actions" \(did you mean action\?\)'):
        await told(["actions"])
    for name in ("tam", "action", "tool_call"):  # what they are told holds calls that can be read
        parsed = await stocked.tools.parse_text(await told([name]))
        assert ({call.protocol for call in parsed.calls}, parsed.warnings) == ({name}, [])

    context = stocked.host._manager.active["tavern-tools"].context  # as the agent runtime is given it
    for ids, parts in (
        (["acme:measure"], ("\n\n- Tool ID: acme:measure\n  - Description: Measures text.\n", "<|[REQUEST_TOOL]|>")),
        ([], ("No tools are available.",)),
    ):
        request = MacroRequest(name="system:available_tools", tool_ids=ids, call=system_call())
        text = await available_tools(request, context)
        assert all(part in text for part in parts)
    await stocked.host.settings.save(SettingsChange(plugin="tavern-tools", values={"protocol": "lines"}))
    assert await told() == "Write !tool key=value."
    await stocked.host.settings.save(SettingsChange(plugin="tavern-tools", values={"protocol": None}))


LOOKED_AT: list[str] = []


def _look(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "os.scandir":
        LOOKED_AT.append(str(arguments[0]))


@on_linux
async def test_texts_do_not_look_at_tool_files(stocked: Any) -> None:
    sys.addaudithook(_look)  # there is no way to take it away
    await stocked.tools.parse_text(TEXT)
    LOOKED_AT.clear()
    for _ in range(100):
        await stocked.tools.parse_text(TEXT)
    assert not any(path.endswith("/tools") for path in LOOKED_AT)
    stocked.write_info("late")
    assert "late" in await stocked.ids()
    assert any(path.endswith("/tools") for path in LOOKED_AT)


# --- carrying out ---------------------------------------------------------------------------------


async def test_calls_of_a_text_are_made_in_blocks(stocked: Any) -> None:
    stocked.write_info("info")
    stocked.write_info("infos")
    rows: Any = [
        # a text, the index, status and plugin of its results
        ("!info name=tavern-tools\n!info Name=tavern-llm\n", [(1, "done", "tavern-tools"), (2, "done", "tavern-llm")]),
        # a failed step ends its block, but not the next one, and does not where it says so
        (
            "!info name=absent\n!info name=tavern-llm\nx\n!info name=tavern-llm\n",
            [(1, "error", None), (1, "done", "tavern-llm")],
        ),
        ("!?info name=absent\n!info name=tavern-llm\n", [(1, "error", None), (2, "done", "tavern-llm")]),
    ]
    for text, expected in rows:
        done = await stocked.tools.call_text(text)
        assert [(r.index, r.status, r.structured and r.structured["name"]) for r in done.results] == expected
        assert len(done.parsed.calls) == text.count("!")
    text = "!?info name=tavern-tools\n!infos name=tavern-tools\n"
    refused, called = (await stocked.tools.call_text(text, scope=ToolScope(allowed=["infos"]))).results
    assert (called.status, refused.error.type) == ("done", ToolErrorType.PERMISSION_DENIED)
    assert refused.error.message == 'the tool "info" is not one of those that may be called here (did you mean infos?)'


SLOT = {"v": {"dataFlowType": "STRING"}}
SAME = {"in": "core:GroupInput", "out": "core:GroupOutput"}
TAM = "<|[REQUEST_TOOL]|>\ncommand:「始」{tool}「末」\n{name}:「始」{value}「末」\n<|[END_TOOL]|>"
ACTION = '<ACTION><tool_id>{tool}</tool_id><inputs><input name="{name}">{value}</input></inputs></ACTION>'
TOOL_CALL = '<tool_call name="{tool}"><param name="{name}">{value}</param></tool_call>'


async def test_every_kind_of_tool_is_called_alike(bench: Any) -> None:
    bench.write_workflow("same", **workflow_document(SAME, "in.v > out.v", interfaceInputs=SLOT, interfaceOutputs=SLOT))
    (bench.root / "files").mkdir(exist_ok=True)
    (bench.root / "files" / "a.txt").write_text("x", "utf-8")
    calls = [
        ("workflow:same", "v", "hi"),
        ("node:core:UpperCase", "text", "hi"),
        ("FileOperator.ReadFile", "filePath", "a.txt"),
    ]
    for written in (TAM, ACTION, TOOL_CALL):
        text = "\n".join(written.format(tool=tool, name=name, value=value) for tool, name, value in calls)
        results = (await bench.tools.call_text(text)).results
        assert [result.tool_id for result in results] == [tool for tool, _, _ in calls]
        assert [result.structured for result in results[:2]] == ["hi", "HI"]
        assert results[2].structured["content"] == "x"
    data = {"type": "object", "properties": {"threshold": {"type": "number"}}, "required": ["threshold"]}
    bench.write_info("info", parameters={"type": "object", "properties": {"data": data}, "required": ["data"]})
    [result] = (
        await bench.tools.call_text(ACTION.format(tool="info", name="data", value='{"threshold": "high"}'))
    ).results
    wrong = 'the arguments of info are not right: data.threshold: "high" is not of type "number"'
    assert (result.error.type, result.error.message) == (ToolErrorType.PARAMETER_VALIDATION, wrong)


WRITE = (
    "<|[REQUEST_TOOL]|>\ncommand:「始」FileOperator.WriteFile「末」\n"
    "filePath:「始」a.md「末」\ncontent:{}\n<|[END_TOOL]|>"
)
INPUTS = "<ACTION><tool_id>FileOperator.WriteFile</tool_id><inputs>{}</inputs></ACTION>"
INPUT = '<input name="filePath">a.md</input><input name="content">{}</input>'
COPIED = "as in\nfilePath:「始」b.md「末」\nand so on"
JSON_CALL = (
    '<tool_call>{"name": "FileOperator.WriteFile", "arguments": {"filePath": "a.md", %s"content": "x"}}</tool_call>'
)
NONCE = "between 「始ESCAPE:x」 and 「末ESCAPE:x」"


async def test_a_repaired_call_says_so_in_its_result_and_observation(bench: Any) -> None:
    for content in (COPIED, f"「始」{COPIED}「末」", WRITE.format("「始」c「末」")):
        done = await bench.tools.call_text(WRITE.format(f"「始」{content}「末」"))
        [result] = done.results
        assert (result.status, (bench.root / "files" / "a.md").read_text("utf-8")) == ("done", content)
        assert "holds pairs of its own delimiters; it was read as a whole" in result.warnings[0]
        [told] = await bench.tools.feedback(done.parsed.calls, done.results)
        assert f"Warnings: {result.warnings[0]}" in told.framed
    done = await bench.tools.call_text(WRITE.format(f"「始ESCAPE:n」{COPIED}「末ESCAPE:n」"))
    assert (done.results[0].warnings, done.parsed.warnings) == ([], [])


UNCERTAIN = [
    # a text, what the error says of how to write it
    (WRITE.format(f"「始」x「末」 {COPIED}「末」"), NONCE),
    (WRITE.format(f"「始」x「末」\n{COPIED}「末」"), NONCE),
    (WRITE.format("「始」x「末」\nfilePath:「始」b.md「末」"), NONCE),
    (WRITE.format("「始」use 「始」 to begin「末」"), NONCE),
    (WRITE.format("「始」end with 「末」\n<|[END_TOOL]|>, always「末」"), NONCE),
    (WRITE.format("»»»x««« and «««"), NONCE),
    (INPUTS.format(INPUT.format("x") + '<input name="filePath">b.md</input>'), "within <![CDATA[ and ]]>"),
    (INPUTS.format(INPUT.format("x</input> y")), "within <![CDATA[ and ]]>"),
    (INPUTS.format(INPUT.format("x") + "and more"), "within <![CDATA[ and ]]>"),
    ('<tool_call name="FileOperator.WriteFile">' + INPUT.format("x</input> y") + "</tool_call>", "within <![CDATA["),
    (JSON_CALL % '"filePath": "b.md", ', "each key once"),
    ('<tool_call>{"name": "FileOperator.WriteFile", "args": {}}</tool_call>', "each key once"),
]


async def test_an_uncertain_call_is_refused_and_tells_how_to_write_it(bench: Any) -> None:
    for text, how in UNCERTAIN:
        done = await bench.tools.call_text(f"{text}\n{WRITE.format('「始」later「末」')}")
        assert [result.error.type for result in done.results] == [ToolErrorType.NOT_UNDERSTOOD] * len(done.results), (
            text
        )
        first = done.results[0]
        assert (first.tool_id, first.error.tool_id) == ("FileOperator.WriteFile",) * 2
        assert how in first.error.message
        told = await bench.tools.feedback(done.parsed.calls, done.results)
        assert (
            f"Tool FileOperator.WriteFile failed. Error type: NotUnderstood. Message: {first.error.message}"
            in told[0].text
        )
        assert not list((bench.root / "files").glob("*.md")), text


async def test_uncertain_calls_are_refused_wherever_texts_are_read(bench: Any) -> None:
    text = UNCERTAIN[0][0]
    answer = (await bench.ask("POST", "/api/tools/execute", {"text": text})).data
    assert answer["results"][0]["error"]["type"] == "NotUnderstood"
    engine = bench.host.services.get(EXECUTION_ENGINE)
    run = await engine.run(RunRequest(workflow=says(text), actions=RunActions()))
    assert run.outputs["__actions__"][0]["error"]["type"] == "NotUnderstood"
    [event] = [event async for event in bench.tools.parse_stream(_pieces(text)) if event.call is not None]
    [result] = await bench.tools.call_all([event.call])
    assert result.error.type is ToolErrorType.NOT_UNDERSTOOD


async def _pieces(text: str) -> AsyncIterator[str]:
    for sign in text:
        yield sign


# --- in the outputs of a run -------------------------------------------------------------------------


async def test_calls_in_outputs_are_made_and_left_out(stocked: Any) -> None:
    stocked.write_info("info")
    events = stocked.host.events.subscribe("TOOL_CALL_UPDATE")
    text = "Before.\n<|[REQUEST_TOOL]|>\ncommand:「始」info「末」\nname:「始」tavern-llm「末」\n<|[END_TOOL]|>\n"
    outputs = {"first": f"{text}After.", "count": 3, "plain": "Nothing <here>.\n", "second": "!info name=absent\n"}
    done: Any = await stocked.tools.call_outputs(outputs, call=system_call().child(run_id="run_1"))
    await events.close()
    assert done["first"].split() == ["Before.", "After."]
    assert (done["count"], done["plain"], done["second"]) == (3, "Nothing <here>.\n", "")
    told, failed = done["__actions__"]
    assert (told["output"], told["toolId"], told["status"]) == ("first", "info", "done")
    assert told["structured"]["name"] == "tavern-llm"
    assert (failed["output"], failed["status"]) == ("second", "error")
    assert failed["error"]["message"] == "there is no plugin 'absent'"
    seen = [(event.payload["status"], event.payload["runId"], event.payload["caller"]) async for event in events]
    assert seen == [(status, "run_1", "system:host") for status in ("running", "done", "running", "error")]

    nothing = {"text": " !! \n", "list": ["!info name=a"], "none": None, "__actions__": "of somebody else"}
    assert await stocked.tools.call_outputs(nothing) == {**nothing, "__actions__": []}
    assert await stocked.tools.call_outputs({}) == {"__actions__": []}

    await stocked.host.settings.save(SettingsChange(plugin="tavern-tools", values={"maxActions": 3}))
    done = await stocked.tools.call_outputs(dict.fromkeys("abc", "!info name=tavern-llm\n" * 2))
    await stocked.host.settings.save(SettingsChange(plugin="tavern-tools", values={"maxActions": None}))
    results = [(result.get("output"), result["status"]) for result in done["__actions__"]]
    assert results == [("a", "done"), ("a", "done"), ("b", "done"), (None, "error")]
    assert done["__actions__"][-1]["error"]["message"] == (
        "3 of the calls were not made, info the first of them: the outputs of one run may ask for 3 "
        "(extensions.tavern-tools.maxActions)"
    )
    assert (done["a"], done["b"], done["c"]) == ("", "", "")


def says(text: str) -> Workflow:
    """Return a workflow whose only output is a text."""
    nodes = {"text": {"type": "core:Text", "inputValues": {"text": text}}, "out": "core:GroupOutput"}
    gives = {"reply": {"dataFlowType": "STRING"}}
    return Workflow.model_validate(workflow_document(nodes, "text.text > out.reply", interfaceOutputs=gives))


async def test_a_run_with_actions_carries_out_its_calls(stocked: Any) -> None:
    stocked.write_info("info")
    engine, text = stocked.host.services.get(EXECUTION_ENGINE), "Let me look.\n!info name=tavern-llm\n"
    updates = stocked.host.events.subscribe("TOOL_CALL_UPDATE")
    clerk = Principal(kind="agent", id="clerk")
    run = await engine.run(RunRequest(workflow=says(text), actions=RunActions()))
    failed = await engine.run(RunRequest(workflow=says("!info name=absent\n"), actions=RunActions(principal=clerk)))
    without = await engine.run(RunRequest(workflow=says(text)))
    await updates.close()

    assert (run.status, run.outputs["reply"], without.outputs) == ("complete", "Let me look.\n", {"reply": text})
    (result,) = run.outputs["__actions__"]
    assert (result["status"], result["output"], result["structured"]["name"]) == ("done", "reply", "tavern-llm")
    assert (failed.status, [result["status"] for result in failed.outputs["__actions__"]]) == ("complete", ["error"])
    assert [event.payload["caller"] async for event in updates][-1] == "agent:clerk"
    for_other = RunActions(principal=Principal(kind="user", id="operator"))
    with pytest.raises(TavernError, match="agent:clerk may not have calls made on behalf of user:operator"):
        await engine.run(RunRequest(workflow=says(text), actions=for_other), call=CallContext(principal=clerk))


async def test_a_mapped_stream_is_searched_for_calls(bench: Any) -> None:
    text = "Well. <|[REQUEST_TOOL]|>\ncommand:「始」system:get_current_time「末」\n<|[END_TOOL]|>"
    node = {"id": "says", "fullType": "core:TextToStream", "inputs": {"text": text}, "configValues": {"unit": "words"}}
    mapped = {"said": {"sourceNodeId": "says", "sourceSlotKey": "stream"}}
    body = {"nodes": [node], "edges": [], "outputInterfaceMappings": mapped, "actions": True}
    prompt = (await bench.ask("POST", "/api/prompt", body)).data["promptId"]
    engine = bench.host.services.get(EXECUTION_ENGINE)

    async def ended() -> Run | None:
        run = await engine.get(prompt)
        return run if run.status.is_final else None

    run = await until(ended, "the run has ended")
    assert run.status == "complete"
    assert run.outputs["said"] == "Well. "
    assert [done["toolId"] for done in run.outputs["__actions__"]] == ["system:get_current_time"]
