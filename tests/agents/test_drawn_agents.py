"""Agents as creators draw them: whatever the shape, the answer comes piece by piece, and each step is told, in the chat
and in a run by hand."""

from __future__ import annotations

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
from tavern_host.contracts.events import Event
from tavern_host.contracts.executions import RunRequest, RunStatus
from tavern_host.contracts.workflows import Workflow
from tests.agents.agent_bench import AgentBench, agent

pytestmark = pytest.mark.asyncio(loop_scope="module")

SAMPLE = Path(tavern_demo.__file__).parent / "sample"
ASKS = {"type": "core:LlmApiRequest"}
TAKES = {"messages": "ARRAY"}
STREAM = {"isStream": True, "matchCategories": ["TextStream"]}
LONG = "The answer is long enough to come in several pieces."
CALL = ("shout", {"text": "ale"})


def streaming(document: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return a workflow whose interface outputs of these names are streams."""
    for name in names:
        document["interfaceOutputs"][name] |= STREAM
    return document


SHAPES: dict[str, dict[str, Any]] = {
    # no node that parses: the host's loop reads the calls in the answer
    "raw": streaming(
        function(
            "raw",
            {"llm": ASKS},
            *("in.messages > llm.messages", "llm.response > out.response", "llm.text_stream > out.text_stream"),
            takes=TAKES,
            gives={"response": "OBJECT", "text_stream": "STRING"},
        ),
        "text_stream",
    ),
    # the stream itself is the answer
    "direct": function(
        "direct",
        {"llm": ASKS},
        *("in.messages > llm.messages", "llm.text_stream > out.text"),
        takes=TAKES,
        gives={"text": "STRING"},
    ),
    # the stream of the whole interface, in the creator's own words for it
    "named": streaming(
        function(
            "named",
            {"llm": ASKS, "tools": "core:AvailableTools"},
            *("in.messages > llm.messages", "tools.tools > llm.tools", "llm.response > out.response"),
            "llm.chunks > out.live",
            takes=TAKES,
            gives={"response": "OBJECT", "live": "OBJECT"},
        ),
        "live",
    ),
    # the first shape within a group
    "grouped": streaming(
        function(
            "grouped",
            {"group": {"type": "core:NodeGroup", "configValues": {"referencedWorkflowId": "raw"}}},
            *("in.messages > group.messages", "group.response > out.response", "group.text_stream > out.text_stream"),
            takes=TAKES,
            gives={"response": "OBJECT", "text_stream": "STRING"},
        ),
        "text_stream",
    ),
    # a first model plans, and its calls are read; a second one answers
    "planned": streaming(
        function(
            "planned",
            {"plan": ASKS, "parse": "core:ParseLlmDecision", "answer": ASKS},
            *("in.messages > plan.messages", "plan.chunks > parse.chunks", "in.messages > answer.messages"),
            *("parse.llm_text_output > answer.system_prompt", "answer.text > out.response"),
            "answer.text_stream > out.text_stream",
            takes=TAKES,
            gives={"response": "STRING", "text_stream": "STRING"},
        ),
        "text_stream",
    ),
}


def prepare(project: Tavern) -> None:
    shutil.copytree(SAMPLE / "workflows", project.root / "workflows", dirs_exist_ok=True)
    for name, document in SHAPES.items():
        project.write(f"workflows/{name}.json", document)
        project.write(f"agents/{name}.json", agent(name, "shout", core_deliberation_workflow_id=name))
    for name in ("deliberation", "deliberation-with-loop"):
        about = agent(name, "shout", name=name, core_deliberation_workflow_id=f"agents/{name}")
        project.write(f"agents/{name}.json", about)


def pieces(steps: list[dict[str, Any]]) -> list[str]:
    return [step["text"] for step in steps if step["kind"] == "fragment"]


def since_thinking(steps: list[dict[str, Any]]) -> list[str]:
    """Return the pieces of the last step."""
    last = max(place for place, step in enumerate(steps) if step["kind"] == "thinking")
    return pieces(steps[last:])


async def test_the_answer_of_each_shape_comes_piece_by_piece(bench: AgentBench) -> None:
    calls = written("tam", CALL)
    rows: list[tuple[str, list[Any], int]] = [
        ("raw", [calls, said(LONG)], 2),
        ("direct", [calls, said(LONG)], 2),
        ("named", [written("action", CALL), said(LONG)], 2),
        ("grouped", [calls, said(LONG)], 2),
        ("planned", [said("I plan. " * 9), said(LONG)], 2),
        ("deliberation", [written("native", CALL), said(LONG)], 2),
        ("deliberation-with-loop", [calls, written("native", CALL), said(LONG)], 3),
    ]
    with Failures() as failures:
        for name, answers, count in rows:
            with failures.row(name):
                bench.answers(*answers).pause = 0.1
                reply, steps = await bench.traced(agent=name)
                assert (reply.outcome, reply.text) == ("reply", LONG), reply
                assert "".join(since_thinking(steps)) == LONG and len(since_thinking(steps)) > 2
                assert "TOOL" not in "".join(pieces(steps)) and "<ACTION>" not in "".join(pieces(steps))
                thinking = [step["step"] for step in steps if step["kind"] == "thinking"]
                assert thinking == [*range(1, count + 1)], steps
                kept = await bench.trace(reply.agent_run_id)
                assert [step.seq for step in kept] == [*range(1, len(kept) + 1)]
                if name != "planned":
                    assert [step.data["toolId"] for step in kept if step.kind == "tool_call"] == ["shout"] * (count - 1)
    # a piece that was taken back does not stay in the answer
    model = bench.answers(said(LONG))
    model.void = "Never mind"
    _, steps = await bench.traced(agent="deliberation")
    assert [step["data"]["restarted"] for step in steps if step["data"].get("restarted")] == ["the server broke off"]


async def by_hand(bench: AgentBench, request: RunRequest) -> tuple[str, dict[str, list[dict[str, Any]]]]:
    """Return the id of a run, and what is published of it, by type."""
    engine = bench.host.services.get(EXECUTION_ENGINE)
    events = bench.host.events.subscribe("AGENT_TRACE", "NODE_YIELD", "WORKFLOW_INTERFACE_YIELD")
    run = await engine.wait(await engine.submit(request))
    assert run.status is RunStatus.COMPLETE, run.error
    await events.close()
    found: dict[str, list[dict[str, Any]]] = {}
    async for event in events:
        if isinstance(event, Event):
            found.setdefault(event.type, []).append(event.payload)
    return run.id, found


async def test_a_run_by_hand_tells_its_steps_too(bench: AgentBench) -> None:
    rows: list[tuple[str, list[Any], list[str]]] = [
        ("raw", [said(LONG)], ["1 thinking"]),
        ("direct", [said(LONG)], ["1 thinking"]),
        ("named", [said(LONG)], ["1 thinking"]),
        ("grouped", [said(LONG)], ["1 thinking"]),
        ("planned", [said("I plan."), said(LONG)], ["1 thinking", "1 thought", "2 thinking"]),
        ("agents/deliberation", [said(LONG)], ["1 thinking", "1 thought"]),
        (
            "agents/deliberation-with-loop",
            [written("tam", CALL), written("native", CALL), said(LONG)],
            [
                *(f"1 {kind}" for kind in ("thinking", "thought", "tool_call", "tool_running", "tool_output")),
                *(f"2 {kind}" for kind in ("thinking", "thought", "tool_call", "tool_running", "tool_output")),
                *("3 thinking", "3 thought"),
            ],
        ),
    ]
    kept = len(bench.state.runs)
    with Failures() as failures:
        for name, answers, expected in rows:
            with failures.row(name):
                bench.answers(*answers)
                inputs = {"messages": [{"role": "user", "content": "Go."}]}
                run_id, found = await by_hand(bench, RunRequest(workflow_id=name, inputs=inputs))  # type: ignore[arg-type]
                steps = found["AGENT_TRACE"]
                assert [f"{step['step']} {step['kind']}" for step in steps] == expected
                assert {(step["agentRunId"], step["profileId"]) for step in steps} == {(run_id, "")}
                if name != "agents/deliberation-with-loop":
                    texts = [one for one in found["WORKFLOW_INTERFACE_YIELD"] if not one["isLastChunk"]]
                    assert texts, found
    assert len(bench.state.runs) == kept + len(rows)
    outputs = [step["text"] for step in steps if step["kind"] == "tool_output"]
    assert outputs == ["Tool shout executed successfully. Output: ALE"] * 2


async def test_what_streaming_tools_give_is_passed_on(bench: AgentBench) -> None:
    items = {"type": "core:ListToStream", "inputValues": {"items": ["one", "two", "three"]}}
    count = streaming(
        function("count", {"list": items}, "list.stream > out.items", takes={}, gives={"items": "STRING"}), "items"
    )
    bench.project.write("workflows/count.json", count)
    calls = [{"toolId": "workflow:count"}, {"toolId": "shout", "arguments": {"text": "ale"}, "block": 1}]
    node = {"type": "core:ExecuteTool", "inputValues": {"tool_call_requests": calls}}
    gives = {"stream": "WILDCARD", "results": "ARRAY", "status": "STRING"}
    document = function("w", {"n": node}, *(f"n.{key} > out.{key}" for key in gives), takes={}, gives=gives)
    request = RunRequest(workflow=Workflow.model_validate(streaming(document, "stream")))
    _, found = await by_hand(bench, request)
    yielded = [one["yieldedContent"]["content"] for one in found["NODE_YIELD"] if one["sourceNodeId"] == "n"]
    assert "".join(yielded) == "onetwothree"
    [counted, shouted] = (await bench.host.services.get(EXECUTION_ENGINE).run(request)).outputs["results"]  # type: ignore[misc]
    assert counted["status"] == shouted["status"] == "done"  # type: ignore[index,call-overload]
    assert "three" in str(counted["structured"])  # type: ignore[index,call-overload]
