"""Results that are too long for a prompt, and arguments that nobody is to see."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from helpers.stub_llm import last, said, written
from helpers.tavern_project import Tavern
from helpers.workflow_documents import function

from tavern_agents.conversation import READER
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.settings import MASK
from tavern_llm.api.llm import LlmRequest, LlmResponse
from tests.agents.agent_bench import AgentBench, agent, tool

pytestmark = pytest.mark.asyncio(loop_scope="module")


def prepare(project: Tavern) -> None:
    project.write("tools/look.tool.json", tool("look", "told:Mark", readOnly=True))
    secret = {"type": "object", "properties": {"text": {"type": "string", "writeOnly": True}}}
    project.write("tools/login.tool.json", tool("login", "told:Mark", parameters=secret, requiresApproval=True))
    project.profile(tool_ids_inventory=["look", "login"])
    cut = {"cut": {"type": "core:TruncateText", "inputValues": {"length": 30, "ellipsis": "(cut)"}}}
    ends = ("in.observation > cut.text", "cut.text > out.summary")
    shorten = function("Shorten", cut, *ends, takes={"observation": "STRING"}, gives={"summary": "STRING"})
    project.write("workflows/shorten.json", shorten)


async def test_a_long_result_is_read_part_by_part(bench: AgentBench) -> None:
    text = "a" * 30_000 + "needle" + "z" * 30_000
    model = bench.answers(written("tam", ("look", {"text": text})), said("Long."))
    reply = await bench.run(conversation_id="parts")
    shown = last(model.asked[1]).content
    assert 16_000 < len(shown) < 16_400
    assert "characters left out" in shown
    assert "ZZZ" in shown[-200:]
    assert reply.tool_results[0].structured == text.upper()
    whole = f"Tool look executed successfully. Output: {text.upper()}"
    asked: list[tuple[str, dict[str, str]]] = []

    def say(request: LlmRequest) -> LlmResponse:
        [handle] = set(re.findall(r"with handle (result:\d+:0)", "".join(m.content for m in request.messages)))
        assert READER in str(request.messages[0].content)
        steps = [{"length": "40"}, {"find": "NEEDLE", "length": "10"}, {"offset": "60000"}, {"handle": "result:1:7"}]
        if len(asked) == len(steps):
            return said("Read.")
        asked.append((READER, {"handle": handle, **steps[len(asked)]}))
        return written("tam", asked[-1])

    model = bench.model(say)
    assert (await bench.run(conversation_id="parts")).text == "Read."
    assert f"reads all {len(whole)} characters of it]" in model.asked[0].messages[-3].content
    found = [last(request).content for request in model.asked[1:]]
    for part, (begin, end) in zip(
        found, [(0, 40), (whole.index("N"), whole.index("N") + 10), (60_000, len(whole))], strict=False
    ):
        following = None if end == len(whole) else end
        page = {"text": whole[begin:end], "offset": begin, "total": len(whole), "next": following}
        assert json.dumps(page) in part
    assert "this conversation has no result 'result:1:7'" in found[3]

    bench.answers(written("tam", asked[0]), said("No."))
    reply = await bench.run(conversation_id="elsewhere")
    assert reply.tool_results[0].status == "error"  # it is of another conversation
    with pytest.raises(InvalidInput):
        await bench.runtime.read_result(asked[0][1]["handle"])


async def test_a_workflow_shortens_long_results(bench: AgentBench) -> None:
    model = bench.answers(*[written("tam", ("look", {"text": "b" * 30_000})), said("Seen.")] * 2)
    for workflow, expected in (("shorten", "Tool look executed succes(cut)"), ("missing", "characters left out")):
        bench.project.write("agents/brief.json", agent("brief", "look", observation_workflow_id=workflow))
        reply = await bench.run(agent="brief")
        shown = last(model.asked[-1]).content
        assert expected in shown and "with handle result:" in shown
        warned = [step.text for step in await bench.trace(reply.agent_run_id, "warning")]
        assert any("could not be shortened by 'missing'" in text for text in warned) == (workflow == "missing")


async def test_secret_arguments_are_in_no_step(bench: AgentBench) -> None:
    secret = {"text": "hunter2"}
    for protocol in ("tam", "native"):
        bench.answers(written(protocol, ("login", secret)), said("In."))
        working = asyncio.create_task(bench.run())
        [task] = await bench.waiting()
        await bench.tools.decide(task.id, "approve")
        reply = await working
        assert reply.tool_results[0].structured == "HUNTER2"
        steps = await bench.trace(reply.agent_run_id)
        assert [step.data["arguments"] for step in steps if "arguments" in step.data] == [{"text": MASK}] * 2
        assert "hunter2" not in str(steps)
