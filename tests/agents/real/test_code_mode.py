"""Agents that work by code: one tool is shown to the model, and code calls all others."""

from __future__ import annotations

import pytest
import pytest_asyncio
from helpers.stub_llm import said, written
from helpers.tavern_project import Tavern

from tavern_agents.api.agents import AgentLimits
from tavern_host.contracts.audit import AUDIT
from tavern_scripts.api.code_mode import CODE_TOOL
from tavern_scripts.api.scripts import SCRIPT_EXECUTION
from tests.agents.agent_bench import AgentBench, agent

pytestmark = pytest.mark.asyncio(loop_scope="module")

INVENTORY = [CODE_TOOL, "FileOperator.*File"]
CODE = """
import tools
for number in range(10):
    tools.write_file(filePath=f"{number}.txt", content=str(number))
print(sum(int(tools.read_file(filePath=f"{number}.txt")["content"]) for number in range(10)))
try:
    tools.call("system:get_current_time")
except tools.ToolError as error:
    print(error.type)
"""


def prepare(project: Tavern) -> None:
    """Write an agent that works by code, and one that does not."""
    project.profile(tool_ids_inventory=INVENTORY, custom_metadata={"code_mode": True})
    project.write("agents/plain.json", agent("plain", *INVENTORY))


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def sandbox(bench: AgentBench) -> None:
    """Skip where no sandbox holds."""
    if not any(report.chosen for report in await bench.host.services.get(SCRIPT_EXECUTION).backends()):
        pytest.skip("no sandbox holds on this machine: see `tavern scripts doctor`")


async def test_twenty_calls_cost_one_request(bench: AgentBench) -> None:
    model = bench.answers(written("tam", (CODE_TOOL, {"language": "python", "code": CODE})), said("45."))

    reply = await bench.run()

    assert reply.text == "45."
    assert len(model.asked) == 2, "one for the work, one for the answer"
    observed = model.asked[1].messages
    assert any("45" in m.content and "PermissionDenied" in m.content for m in observed)
    told = [
        step
        for step in await bench.trace(reply.agent_run_id, "tool_running")
        if str(step.data["toolId"]).startswith("FileOperator")
    ]
    assert reply.usage.calls == 21, "the code itself among them"
    assert [step.data["toolId"] for step in told] == [*["FileOperator.WriteFile"] * 10, *["FileOperator.ReadFile"] * 10]
    entries = await bench.host.services.get(AUDIT).tail(100)
    files = [e for e in entries if e.action == "tool.called" and e.subject.startswith("FileOperator")]
    assert len(files) == 20
    assert {e.actor for e in files} == {"agent:keeper"}


async def test_the_limit_of_calls_holds_for_code(bench: AgentBench) -> None:
    code = "import tools\nfor n in range(9):\n    tools.write_file(filePath=f'limit{n}.txt', content='x')"
    bench.answers(written("tam", (CODE_TOOL, {"language": "python", "code": code})), said("Four."))
    reply = await bench.run(limits=AgentLimits(calls=5))
    assert (reply.outcome, reply.usage.calls) == ("limit", 5)
    assert len(list((bench.project.root / "files").glob("limit*.txt"))) == 4


async def test_the_model_is_shown_code_and_signatures(bench: AgentBench) -> None:
    signature = "def read_file(*, filePath: str, offset: int = …, limit: int = …) -> dict"
    for name, tools, is_told in (("keeper", 1, True), ("plain", 5, False)):
        model = bench.answers(said("Done."))
        await bench.run(agent=name)
        (request,) = model.asked
        text = "\n".join(message.content for message in request.messages)
        assert len(request.tools or ()) in (0, tools)
        assert (signature in text) is is_told
        assert ("def delete_file" in text) is is_told
