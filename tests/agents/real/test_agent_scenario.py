"""One conversation in which an agent meets everything that can come of a call, in each protocol."""

from __future__ import annotations

import asyncio
import shutil
from typing import Any

import pytest
from helpers.stub_llm import Call, last, said, written
from helpers.tavern_project import Tavern
from helpers.workflow_documents import function

from tavern_agents.api.agents import AgentReply
from tavern_tools.api.toolcalls import ToolResult
from tests.agents.agent_bench import AgentBench, agent, tool

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROTOCOLS = ("tam", "action", "tool_call", "native")

SHOUT, HUSH = ("shout", {"text": "ale"}), ("hush", {"text": "ALE"})


def script(id: str, code: str, **parameters: Any) -> tuple[dict[str, Any], str]:
    """Return a tool that is a script, and the script."""
    schema = {"type": "object", "properties": parameters, "required": [*parameters]}
    run = {"type": "script", "command": f"python scripts/{id}.py", "timeout": 20_000}
    return {"id": id, "implementation": run, "parameters": schema}, code


def prepare(project: Tavern) -> None:
    more = {"pay": {"requiresApproval": True}, "secret": {}, "look": {"readOnly": True}, "slow": {"async": True}}
    for name, about in more.items():
        project.write(f"tools/{name}.tool.json", tool(name, **about))
    count = "import json, sys\nprint(json.dumps({'sum': json.load(sys.stdin)['n'] + 1}))\n"
    for made, code in (
        script("fail", "import sys\nprint('the barrel is empty', file=sys.stderr)\nsys.exit(3)\n"),
        script("count", count, n={"type": "integer"}),
    ):
        project.write(f"tools/{made['id']}.tool.json", made)
        project.write(f"scripts/{made['id']}.py", code)
    edges = ("in.who > up.text", "up.text > out.greeting")
    types = {"takes": {"who": "STRING"}, "gives": {"greeting": "STRING"}}
    project.write("workflows/greet.json", function("Greet", {"up": "core:UpperCase"}, *edges, **types))
    inventory = ["shout", "hush", "look", "pay", "slow", "fail", "count", "system:task_*", "CodeInterpreter:execute"]
    skills = ["workflows/greet.json"]
    project.profile(tool_ids_inventory=[*inventory, "agent:helper"], skill_workflow_ids_inventory=skills)
    project.write("agents/helper.json", agent("helper", "shout"))


class Talk:
    """One conversation with the agent in one protocol."""

    def __init__(self, bench: AgentBench, protocol: str) -> None:
        self.bench = bench
        self.protocol = protocol
        self.conversation = f"talk-{protocol}"
        self.native_names: dict[str, str] = {}

    async def say(self, *steps: tuple[Call, ...] | str, chain: bool = False) -> AgentReply:
        """Let the model ask for calls step by step, then say `Done.`; return the reply."""
        answers = [said(s) if isinstance(s, str) else self.written(*s, chain=chain) for s in steps]
        self.model = self.bench.answers(*answers, said("Done."))
        return await self.bench.run("Go.", conversation_id=self.conversation)

    def written(self, *calls: Call, chain: bool = False) -> Any:
        named = [(self.native_names.get(name, name), arguments) for name, arguments in calls]
        return written(self.protocol, *(named if self.protocol == "native" else calls), chain=chain)

    def observed(self, *parts: str) -> None:
        """Check that the model was told of something before its latest answer."""
        messages = self.model.asked[-1].messages
        text = "\n".join(message.content for message in messages[-6:])
        for part in parts:
            assert part in text, text


def only(reply: AgentReply) -> ToolResult:
    (result,) = reply.tool_results
    return result


async def decide(bench: AgentBench, decision: Any, **more: Any) -> None:
    (task,) = await bench.waiting()
    await bench.tools.decide(task.id, decision, **more)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_an_agent_meets_everything_in_one_conversation(bench: AgentBench, protocol: str) -> None:
    talk = Talk(bench, protocol)
    ids = (await bench.runtime.get("keeper")).inventory
    ids = [i for i in ids if "*" not in i] + ["system:task_result"]
    for id in ids:  # the names under which native calls know the tools
        talk.native_names[id] = "".join(c if c.isalnum() or c in "_-" else "_" for c in id)

    reply = await talk.say("Welcome!")
    assert (reply.outcome, reply.text, reply.tool_results) == ("reply", "Welcome!", [])

    reply = await talk.say((SHOUT,))
    assert (reply.text, only(reply).status) == ("Done.", "done")
    talk.observed("Tool shout executed successfully. Output:", "ALE")

    reply = await talk.say((SHOUT, HUSH, ("shout", {"text": "mead"})), chain=True)
    assert [r.tool_id for r in reply.tool_results] == ["shout", "hush", "shout"]
    talk.observed("ALE", "ale", "MEAD")

    reply = await talk.say((("look", {"text": "left"}), ("look", {"text": "right"})))
    assert [r.status for r in reply.tool_results] == ["done", "done"]
    talk.observed("LEFT", "RIGHT")

    reply = await talk.say((("shuot", {"text": "x"}),), (SHOUT,))
    assert [r.status for r in reply.tool_results] == ["error", "done"]
    assert reply.tool_results[0].error is not None
    assert "did you mean" in reply.tool_results[0].error.message

    reply = await talk.say((("count", {"n": "many"}),), (("count", {"n": 41}),))
    found = [r.error.type.value if r.error else r.structured for r in reply.tool_results]
    assert found == ["ParameterValidationError", {"sum": 42}]

    reply = await talk.say((("secret", {"text": "x"}),))
    assert only(reply).status == "error"
    talk.observed("secret", "PermissionDenied")

    for decision, expected in (("approve", "PENNY"), ("refuse", "APPROVAL")):
        async with asyncio.TaskGroup() as together:
            together.create_task(decide(bench, decision))
            working = together.create_task(talk.say((("pay", {"text": "penny"}),)))
        reply = working.result()
        assert (reply.text, only(reply).status) == ("Done.", "done" if decision == "approve" else "error")
        talk.observed(expected if decision == "approve" else "ApprovalRefused")
        kinds = [step.kind for step in await bench.trace(reply.agent_run_id)]
        assert kinds.index("awaiting_approval") < kinds.index("observation")

    reply = await talk.say((("slow", {"text": "wait"}),))
    assert only(reply).status == "pending"
    task = only(reply).task_id
    reply = await talk.say((("system:task_result", {"task_id": task, "wait": 20}),))
    talk.observed("WAIT")

    reply = await talk.say((("workflow:greet", {"who": "ada"}),))
    talk.observed("Tool workflow:greet executed successfully", "ADA")

    if shutil.which("bwrap"):
        reply = await talk.say((("CodeInterpreter:execute", {"language": "python", "code": "print(6 * 7)"}),))
        talk.observed("42")
        reply = await talk.say((("fail", {}),))
        assert only(reply).error is not None
        talk.observed("the barrel is empty")

    helper = said("I helped.")
    talk.model = bench.answers(talk.written(("agent:helper", {"message": "Help!"})), helper, said("Helped."))
    reply = await bench.run("Go.", conversation_id=talk.conversation)
    assert (reply.text, only(reply).structured) == ("Helped.", "I helped.")
    runs = await bench.runtime.runs()
    child = next(run for run in runs if run.profile_id == "helper")
    assert child.parent_run_id == reply.agent_run_id
    assert last(talk.model.asked[1]).content == "Help!"

    kinds = [step.kind for step in await bench.trace(reply.agent_run_id)]
    assert kinds[3:] == ["tool_call", "tool_running", "observation", "thinking", "reply"]
    assert {run.status.value for run in await bench.runtime.runs()} == {"reply"}
