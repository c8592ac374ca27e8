"""Every place at which a tool is called on behalf of an agent, and the project of agents that call there."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

from helpers.folder_plugins import write_plugin
from helpers.stub_llm import Call, said, written
from helpers.tavern_project import Tavern
from helpers.workflow_documents import function

import tavern_demo
from tavern_llm.api.llm import LlmResponse
from tests.agents.agent_bench import agent, tool

SAMPLE = Path(tavern_demo.__file__).parent / "sample"

NODE = """
from typing import Any
from tavern_host import NodeContext, node
from tavern_tools.api.toolcalls import ToolCallRequest, ToolScope
from tavern_tools.api.tools import TOOL_MANAGER

@node(type="Act", category="Test", display_name="Act")
async def act(context: NodeContext, calls: list[Any]) -> str:
    '''Call tools, as if all were allowed.'''
    tools, found = context.plugin.services.get(TOOL_MANAGER), []
    for call in calls:
        asked, scope = ToolCallRequest.model_validate(call), ToolScope(allowed=["*"])
        result = await tools.call(asked, scope=scope, call=context.call.child())
        found.append(result.error.message if result.error else str(result.structured))
    return " ".join(found)
"""

_READ = {"llm": {"type": "core:LlmApiRequest"}, "parse": "core:ParseLlmDecision"}
_EDGES = ("in.messages > llm.messages", "llm.response > parse.response")


def _deliberation(node: Any, into: str, out: str) -> dict[str, Any]:
    """Return a deliberation whose node carries out the calls of a model's answer, and that says what came of them."""
    edges = (*_EDGES, f"parse.tool_call_requests > act.{into}", f"act.{out} > out.response")
    return function("Act", {**_READ, "act": node}, *edges, takes={"messages": "ARRAY"}, gives={"response": "STRING"})


DELIBERATIONS = {
    "node": _deliberation("core:ExecuteTool", "tool_call_requests", "observation"),
    "group": _deliberation(
        {"type": "core:NodeGroup", "configValues": {"referencedWorkflowId": "acts"}}, "calls", "text"
    ),
    "plugin": _deliberation("acme:Act", "calls", "result"),
}
"""Deliberations that carry out calls themselves."""

WITHIN = ["loop", *DELIBERATIONS]
"""Places within a deliberation."""

PLACES = [*WITHIN, "tool", "deep"]
"""These, a workflow that the agent calls as a tool, and one that its deliberation calls."""


def prepare(project: Tavern, *inventory: str) -> None:
    """Write an agent for each place."""
    project.write("tools/mark.tool.json", tool("mark", "told:Mark"))
    project.write("tools/look.tool.json", tool("look", "told:Mark", readOnly=True))
    project.write("tools/pay.tool.json", tool("pay", "told:Mark", requiresApproval=True))
    act = {"act": "core:ExecuteTool"}
    edges = ("in.calls > act.tool_call_requests", "act.observation > out.text")
    project.write("workflows/acts.json", function("A", act, *edges, takes={"calls": "ARRAY"}, gives={"text": "STRING"}))
    shutil.copytree(SAMPLE / "workflows" / "agents", project.root / "workflows" / "agents", dirs_exist_ok=True)
    for name, document in DELIBERATIONS.items():
        project.write(f"workflows/{name}.json", document)
    workflows = {"loop": "agents/deliberation-with-loop", "deep": "node", "tool": "think"}
    allowed = inventory or ("mark", "look", "pay")
    for place in PLACES:
        about = {"core_deliberation_workflow_id": workflows.get(place, place)}
        project.write(f"agents/{place}.json", agent(place, *allowed, "workflow:acts", **about))
    folder = project.root.parent / "plugins" / "acme"
    if not folder.exists():
        folder.parent.mkdir()
        files = {"__init__.py": "", "nodes/__init__.py": "", "nodes/act.py": NODE}
        uses = {"services": {"use": ["toolManager:execute"]}}
        write_plugin(folder, files, name="acme", nodes={"entry": "./nodes", "namespace": "acme"}, permissions=uses)


def asked(place: str, *calls: Call) -> LlmResponse:
    """Return the answer by which an agent has calls made at a place."""
    if place not in ("tool", "deep"):
        return written("tam", *calls)
    requests = [{"toolId": name, "arguments": arguments} for name, arguments in calls]
    return said("", ("workflow:acts", {"calls": requests}))


def beside(place: str) -> int:
    """Return how many calls the agent makes so that those at the place are made."""
    return int(place in ("tool", "deep"))


_numbers = itertools.count()


def mark(**more: float) -> Call:
    """Return a call that nobody has made yet: what nodes gave is cached."""
    return "mark", {"text": f"m{next(_numbers)}", **more}


def texts(*calls: Call) -> list[str]:
    """Return the texts that calls of `mark` write."""
    return [arguments["text"] for _, arguments in calls]
