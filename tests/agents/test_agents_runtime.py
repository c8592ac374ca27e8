"""Agents in a running host: deliberate, act, observe, reply."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from contextlib import closing

import pytest
from helpers.folder_plugins import write_plugin
from helpers.stub_llm import said, written
from helpers.tavern_project import Tavern, action

from tavern_host import EXECUTION_ENGINE
from tavern_host.contracts.errors import NotFound
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.workflows import Workflow
from tavern_llm.api.llm import LlmRequest, LlmResponse
from tavern_operations.api.metrics import METRICS
from tests.agents.agent_bench import AgentBench, agent, thinking

pytestmark = pytest.mark.asyncio(loop_scope="module")

OPTIONS = {"settings": {"extensions.tavern-engine.maxConcurrentRuns": 1}}

ACME = """
from tavern_host import AGENT_RUNTIME, NodeContext, hookimpl, node
from tavern_agents.api.agents import AgentRequest
from tavern_tools.api.macros import PromptMacroInfo

async def sun(request, context):
    return f"the sun, for {request.tool_ids} by {request.call.principal}"

async def moon(request, context):
    raise RuntimeError("clouds")

@node(type="AskKeeper", namespace="acme")
async def ask_keeper(context: NodeContext) -> str:
    request = AgentRequest(profile_id="keeper", message="Hello.")
    return (await context.plugin.services.get(AGENT_RUNTIME).run(request, call=context.call)).text

@hookimpl
def tavern_register_nodes():
    return [ask_keeper.__tavern_node__.definition]

@hookimpl
def tavern_register_prompt_macros():
    names = {"acme:sun": "sun", "acme:moon": "moon", "system:available_tools": "sun"}
    return [PromptMacroInfo(name=name, handler=f"{__name__}:{handler}") for name, handler in names.items()]
"""


def prepare(project: Tavern) -> None:
    hooks = ["hook:server:nodes:register", "hook:server:prompts:register-macros"]
    permissions = {"hooks": hooks, "services": {"use": ["agentRuntime:run"]}}
    write_plugin(project.root.parent / "plugins" / "acme", {"__init__.py": ACME}, permissions=permissions)
    project.write("workflows/think.json", thinking("You keep the bar."))
    project.write("agents/lost.json", agent("lost", core_deliberation_workflow_id="workflows/thnik.json"))
    project.write("workflows/odd.json", {**thinking(), "nodes": [{"id": "llm", "type": "core:Nonsense"}]})
    project.write("agents/odd.json", agent("odd", core_deliberation_workflow_id="odd"))


async def test_an_agent_calls_a_tool_observes_and_replies(bench: AgentBench) -> None:
    call = f"I shall shout.\n{action('shout', text='last orders')}"
    bench.project.write("workflows/think.json", thinking("You keep the bar."))
    bench.answers(said(call), said("I did shout LAST ORDERS."), said("  Welcome!  "))
    reply, steps = await bench.traced(message="Tell them: last orders!")
    assert (reply.outcome, reply.text, reply.steps, reply.error) == ("reply", "I did shout LAST ORDERS.", 2, None)
    (result,) = reply.tool_results
    assert (result.tool_id, result.status, result.structured) == ("shout", "done", "LAST ORDERS")
    assert [message.role for message in reply.history] == ["user", "assistant", "user", "assistant"]
    observed = "Tool shout executed successfully. Output: LAST ORDERS"
    assert [message.content for message in reply.history[1:]] == [
        call,
        f"<OBSERVATION>\n<tool_id>shout</tool_id>\n{observed}\n</OBSERVATION>",
        "I did shout LAST ORDERS.",
    ]
    steps = [step for step in steps if step["kind"] != "fragment"]
    assert [(step["step"], step["kind"]) for step in steps] == [
        *((0, "started"), (1, "thinking"), (1, "thought"), (1, "tool_call"), (1, "tool_running"), (1, "observation")),
        *((2, "thinking"), (2, "reply")),
    ]
    assert {(step["agentRunId"], step["profileId"]) for step in steps} == {(reply.agent_run_id, "keeper")}
    assert [step["text"] for step in (steps[2], steps[5], steps[7])] == ["I shall shout.", observed, reply.text]
    about = {"toolId": "shout", "place": 0, "index": 1, "arguments": {"text": "last orders"}}
    used = {"model": "m", "promptTokens": 10, "completionTokens": 5, "runId": steps[2]["data"]["runId"]}
    assert steps[3]["data"] == {**about, **used}

    reply = await bench.run("Hello.")
    assert (reply.outcome, reply.text, reply.steps, reply.tool_results) == ("reply", "Welcome!", 1, [])


async def test_requests_and_their_tokens_are_counted_for_the_metrics(bench: AgentBench) -> None:
    bench.answers(said("Hello."))
    await bench.run("Hello.")
    figures = await bench.host.services.get(METRICS).figures()
    found = {(one.name, *one.labels.values()): one.value for one in figures}
    requests = found["tavern_llm_requests_total", "m", "done"]
    assert requests > 0
    tokens = [found["tavern_llm_tokens_total", "m", kind] for kind in ("prompt", "completion")]
    assert tokens == [10 * requests, 5 * requests]


async def test_macros_that_people_and_tools_say_stay(bench: AgentBench) -> None:
    macro = "{{{agent:id}}} {{{acme:sun}}}"
    model = bench.answers(written("tam", ("shout", {"text": macro})), said(f"Still {macro}."))
    bench.project.write("workflows/think.json", thinking(macro))
    assert (await bench.run(f"Say {macro}")).text == f"Still {macro}."
    system, *messages = model.asked[1].messages
    assert system.content == "keeper the sun, for ['shout'] by agent:keeper"
    assert [part in one.content for one, part in zip(messages, (macro, macro, macro.upper()), strict=True)] == [
        True
    ] * 3


async def test_a_macro_that_fails_costs_only_itself(bench: AgentBench) -> None:
    left = ("{{{acme:moon}}}", "{{{acme:star}}} {{{system:tiem}}}")
    bench.project.write("workflows/think.json", thinking(f"{left[0]} {{{{{{acme:sun}}}}}} {left[1]}"))
    model = bench.answers(written("tam", ("shout", {"text": "a"})), said("Sunny."))
    reply = await bench.run("Weather?")
    assert reply.text == "Sunny."
    for request in model.asked:
        assert request.messages[0].content == f"{left[0]} the sun, for ['shout'] by agent:keeper {left[1]}"
    assert sorted(step.text for step in await bench.trace(reply.agent_run_id, "warning")) == [
        "acme failed in the macro 'acme:moon': RuntimeError: clouds; left as it is",
        "no plugin provides the macro 'acme:star' (did you mean acme:sun?); left as it is",
        "no plugin provides the macro 'system:tiem' (did you mean system:time?); left as it is",
    ]
    taken = (
        "the macro 'system:available_tools' is not used: it is tavern-tools's already, and tavern-tools keeps it "
        "(choose another name)"
    )
    failed = (
        "the macro 'acme:moon' failed: RuntimeError: clouds "
        "(mend it there, or keep it out with `tavern plugins disable acme`)"
    )
    assert sorted(map(str, bench.host.plugin("acme").problems)) == [failed, taken]
    assert bench.host.plugin("tavern-tools").problems == []


async def test_a_workflow_that_cannot_deliberate_is_told(bench: AgentBench) -> None:
    runs = await bench.runtime.runs()
    with pytest.raises(NotFound) as caught:
        await bench.run(agent="lost")
    told = "the agent 'lost' (core_deliberation_workflow_id: 'workflows/thnik.json'): there is no workflow 'thnik'"
    assert caught.value.message.startswith(told)
    assert await bench.runtime.runs() == runs
    reply = await bench.run(agent="odd")
    assert reply.outcome == "error"
    assert "core:Nonsense" in str(reply.error)


async def test_what_cannot_be_resumed_is_said_once(
    bench: AgentBench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("tavern"), "propagate", True)
    bench.answers(said("One."), said("Two."))
    for message in ("First.", "Second."):
        await bench.run(message, conversation_id="stuck")
    context = bench.host._manager.active["tavern-agents"].context
    kept = context.operator_dir / "agents" / "agents.sqlite3"
    told = []
    for is_open in (1, 1, 0, 1):  # each of the two runs is in the other's way; those that are gone are forgotten
        with closing(sqlite3.connect(kept)) as store, store:
            store.execute("UPDATE runs SET owner = NULL, is_open = ? WHERE conversation = 'stuck'", [is_open])
        await bench.state.runtime.resume_abandoned()
        told.append(caplog.text.count("of an agent cannot be resumed"))
    assert told == [2, 2, 2, 4]
    with closing(sqlite3.connect(kept)) as store, store:
        store.execute("UPDATE runs SET is_open = 0 WHERE conversation = 'stuck'")


async def test_cancelling_ends_the_request_to_the_model(bench: AgentBench) -> None:
    asked, ended = asyncio.Event(), asyncio.Event()

    async def say(request: LlmRequest) -> LlmResponse:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return said("never")

    bench.model(say)
    task = asyncio.create_task(bench.run())
    async with asyncio.timeout(60):
        await asked.wait()
        task.cancel()
        await ended.wait()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert (await bench.host.services.get(EXECUTION_ENGINE).queue()).running == []
    (newest, *_) = await bench.runtime.runs()
    assert [step.text for step in await bench.trace(newest.id, "interrupted")] == ["Stopped on request"]


async def test_an_agent_within_a_run_needs_no_room(bench: AgentBench) -> None:
    bench.answers(said("Welcome!"))
    document = {"nodes": [{"id": "ask", "type": "acme:AskKeeper"}], "edges": []}
    request = RunRequest(workflow=Workflow.model_validate(document))
    async with asyncio.timeout(60):
        run = await bench.host.services.get(EXECUTION_ENGINE).run(request)
    assert run.nodes["ask"].output == {"result": "Welcome!"}
