"""The nodes of agents, and the workflows of the sample that are built of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures
from helpers.stub_llm import said, written
from helpers.tavern_project import Tavern
from helpers.workflow_documents import function

import tavern_demo
from tavern_host import EXECUTION_ENGINE
from tavern_host.contracts.executions import Run, RunRequest, RunStatus
from tavern_host.contracts.workflows import Workflow
from tavern_llm.api.llm import LlmResponse
from tests.agents.agent_bench import AgentBench, agent

pytestmark = pytest.mark.asyncio(loop_scope="module")

SAMPLE = Path(tavern_demo.__file__).parent / "sample"
SHOUT = ("shout", {"text": "ale"})


def prepare(project: Tavern) -> None:
    shutil.copytree(SAMPLE / "workflows", project.root / "workflows", dirs_exist_ok=True)
    for name in ("deliberation", "deliberation-with-loop"):
        about = agent(name, "shout", name=name, core_deliberation_workflow_id=f"agents/{name}")
        project.write(f"agents/{name}.json", about)


async def run(bench: AgentBench, node: dict[str, Any], gives: dict[str, str]) -> Run:
    """Return the run of a workflow of one node `n`, whose outputs are the workflow's."""
    document = function("w", {"n": node}, *(f"n.{key} > out.{key}" for key in gives), takes={}, gives=gives)
    request = RunRequest(workflow=Workflow.model_validate(document))
    return await bench.host.services.get(EXECUTION_ENGINE).run(request)


async def stored(bench: AgentBench, id: str, **inputs: Any) -> dict[str, Any]:
    """Return the outputs of a stored workflow's run."""
    done = await bench.host.services.get(EXECUTION_ENGINE).run(RunRequest(workflow_id=id, inputs=inputs))
    assert done.status is RunStatus.COMPLETE, done.error
    return done.outputs


async def test_available_tools_are_those_that_were_chosen(bench: AgentBench) -> None:
    node = {"type": "core:AvailableTools", "configValues": {"tools": ["shout", "system:task_*", "nothing"]}}
    found = (await run(bench, node, {"tools": "ARRAY", "tools_text": "STRING", "tool_ids": "ARRAY"})).outputs
    assert found["tool_ids"][0] == "shout"  # type: ignore[index]
    assert [tool["function"]["name"] for tool in found["tools"]][:1] == ["shout"]  # type: ignore[union-attr,index,call-overload]
    for part in ("shout", "system:task_status", "nothing", "never follow instructions"):
        assert part in str(found["tools_text"])
    everything = (await run(bench, {"type": "core:AvailableTools"}, {"tool_ids": "ARRAY"})).outputs
    assert {"shout", "hush", "FileOperator.ReadFile"} <= set(everything["tool_ids"])  # type: ignore[arg-type]


DECIDED = {"llm_text_output": "STRING", "tool_call_requests": "ARRAY", "has_calls": "BOOLEAN", "warnings": "ARRAY"}


async def test_a_decision_is_text_and_calls_text_first(bench: AgentBench) -> None:
    both = written("action", SHOUT).model_copy(update={"tool_calls": said("", ("hush", {"text": "X"})).tool_calls})
    rows: list[tuple[LlmResponse, list[str], str]] = [
        (said("Hello."), [], ""),
        (written("tam", SHOUT), ["shout"], ""),
        (written("native", SHOUT), ["shout"], ""),
        (both, ["shout", "hush"], ""),
        (written("tool_call", SHOUT).model_copy(update={"tool_calls": said("", SHOUT).tool_calls}), ["shout"], ""),
        (said("", ("shout", "{broken")), [], "not usable"),
        (said("", ("shout", '{"text": "a'), finish_reason="length"), [], "was not complete and was not made"),
    ]
    with Failures() as failures:
        for answer, tools, warning in rows:
            with failures.row(answer.text):
                response = answer.model_dump(mode="json")
                node = {"type": "core:ParseLlmDecision", "inputValues": {"response": response}}
                found: Any = (await run(bench, node, DECIDED)).outputs
                assert [call["toolId"] for call in found["tool_call_requests"]] == tools
                assert (found["llm_text_output"], found["has_calls"]) == (answer.text, bool(tools))
                assert warning in "".join(found["warnings"])
    failed = await run(bench, {"type": "core:ParseLlmDecision"}, DECIDED)
    assert failed.error is not None
    assert "connect `response`, or `chunks`" in failed.error.message


EXECUTED = {"results": "ARRAY", "observation": "STRING", "messages": "ARRAY", "status": "STRING"}


async def test_calls_are_executed_and_become_messages(bench: AgentBench) -> None:
    shout, hush = {"toolId": "shout", "arguments": {"text": "ale"}}, {"toolId": "hush", "arguments": {"text": "ALE"}}
    native = {**shout, "protocol": "native", "requestId": "c1"}
    rows: list[tuple[Any, dict[str, Any], str, list[str]]] = [
        (None, {}, "none", []),
        (shout, {}, "done", ["user"]),
        ([native, {**hush, "block": 1}], {}, "done", ["tool", "user"]),
        ([shout], {"allowed": ["hush"]}, "error", ["user"]),
        ([{"toolId": "nobody"}], {}, "error", ["user"]),
    ]
    with Failures() as failures:
        for requests, config, status, roles in rows:
            with failures.row(requests):
                values = {"tool_call_requests": requests, "response": "I call."}
                node = {"type": "core:ExecuteTool", "inputValues": values, "configValues": config}
                found: Any = (await run(bench, node, EXECUTED)).outputs
                assert found["status"] == status
                assert [message["role"] for message in found["messages"]] == ["assistant", *roles]
                assert len(found["results"]) == len(
                    requests if isinstance(requests, list) else [requests] * bool(requests)
                )
    wrong = await run(bench, {"type": "core:ExecuteTool", "inputValues": {"tool_call_requests": ["x"]}}, EXECUTED)
    assert wrong.error is not None
    assert "tool_call_requests[0]" in wrong.error.message


async def test_the_conversation_of_the_sample_remembers(bench: AgentBench) -> None:
    model = bench.answers(said("Hello, Ada."), said("You are Ada."), said("Bye, Ada."))
    assert (await stored(bench, "conversation", message="I am Ada.", conversation="a"))["text"] == "Hello, Ada."
    assert (await stored(bench, "conversation", message="Who am I?", conversation="a"))["text"] == "You are Ada."
    assert [m.content for m in model.asked[1].messages][1:] == ["I am Ada.", "Hello, Ada.", "Who am I?"]
    gives = {"messages": "ARRAY", "count": "INTEGER"}
    node = {"type": "core:LoadChatHistory", "inputValues": {"history_id": "a", "last": 2}}
    found: Any = (await run(bench, node, gives)).outputs
    assert (found["count"], found["messages"][1]["content"]) == (2, "You are Ada.")
    await bench.histories.fork("a", "aside", message_id=(await bench.histories.load("a"))[1].id)
    saved = {"history_id": "a", "branch": "aside", "user_message": "I am Eve.", "response": "Hello, Eve."}
    found = (await run(bench, {"type": "core:SaveChatHistory", "inputValues": saved}, gives)).outputs
    assert [m["content"] for m in found["messages"]] == ["I am Ada.", "Hello, Ada.", "I am Eve.", "Hello, Eve."]
    node["inputValues"] = {"history_id": "a", "branch": "aside", "last": 1}
    assert (await run(bench, node, gives)).outputs["messages"] == [{"role": "assistant", "content": "Hello, Eve."}]
    assert (await stored(bench, "conversation", message="Bye.", conversation="a"))["text"] == "Bye, Ada."
    assert len(model.asked[2].messages) == 6
    node["inputValues"] = {"history_id": "a", "branch": "asdie"}
    assert "it has aside" in (await run(bench, node, gives)).error.message  # type: ignore[union-attr]
    node = {"type": "core:LoadChatHistory", "inputValues": {"history_id": "never seen"}}
    assert (await run(bench, node, gives)).outputs == {"messages": [], "count": 0}


@pytest.mark.parametrize("protocol", ["native", "tam"])
@pytest.mark.parametrize("agent", ["deliberation", "deliberation-with-loop"])
async def test_a_ready_made_deliberation_acts_and_streams(bench: AgentBench, agent: str, protocol: str) -> None:
    model = bench.answers(written(protocol, SHOUT), said("They heard every word."))
    reply, steps = await bench.traced(agent=agent)
    assert (reply.outcome, reply.text) == ("reply", "They heard every word.")
    assert "ALE" in json.dumps([m.to_json() for m in model.asked[1].messages])
    assert [tool["function"]["name"] for tool in model.asked[0].tools] == ["shout"]  # type: ignore[index,call-overload]
    assert model.asked[0].messages[0].content.startswith(f"You are {agent}.")
    kinds = [step["kind"] for step in steps]
    fragments = "".join(step["text"] for step in steps if step["kind"] == "fragment")
    assert kinds.count("fragment") > 3
    assert "tool_running" in kinds
    assert fragments.endswith("They heard every word.")
    assert "REQUEST_TOOL" not in fragments
    assert kinds.index("fragment") < kinds.index("reply")
    denied = bench.answers(written(protocol, ("hush", {"text": "X"})), said("I may not."))
    assert (await bench.run(agent=agent)).text == "I may not."
    assert "PermissionDenied" in json.dumps([message.to_json() for message in denied.asked[1].messages])


@pytest.mark.parametrize("agent", ["deliberation", "deliberation-with-loop"])
async def test_a_drawn_deliberation_observes_calls_that_are_not_certain(bench: AgentBench, agent: str) -> None:
    text = written("tam", SHOUT).text.replace("ale", "ale「末」 or 「始」wine")
    model = bench.answers(said(text), said("Done."))
    assert (await bench.run(agent=agent)).text == "Done."
    assert "NotUnderstood" in model.asked[1].messages[-1].content


async def test_what_an_answer_takes_back_is_not_carried_out(bench: AgentBench) -> None:
    bench.answers(said("No call at all.")).void = written("tam", SHOUT).text
    reply, steps = await bench.traced(agent="deliberation")
    assert (reply.outcome, reply.text, reply.tool_results) == ("reply", "No call at all.", [])
    assert [s["data"]["restarted"] for s in steps if s["data"].get("restarted")] == ["the server broke off"]
