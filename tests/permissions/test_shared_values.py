"""The host's own plugins hand frozen values to each other as they are; third-party code that sees them gets copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers.folder_plugins import write_plugin
from helpers.workflow_documents import function

from tavern_host import EXECUTION_ENGINE, TOOL_MANAGER, Host
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.workflows import Workflow
from tavern_tools.api.toolcalls import ToolCallRequest

SPOILER = """
from tavern_host import hookimpl, node

def spoilt(items):
    items.append("spoilt")
    items[0]["x"] = "spoilt"
    return items

@node(type="Spoil", namespace="acme")
async def spoil(items: list) -> list:
    return spoilt(items)

@hookimpl
def tavern_register_nodes():
    return [spoil.__tavern_node__.definition]

@hookimpl
async def tavern_before_execute(request, call):
    if "items" in request.inputs:
        spoilt(request.inputs["items"])

@hookimpl
async def tavern_before_tool_call(request, call):
    spoilt(request.arguments["items"])

@hookimpl
async def tavern_startup(context):
    async def read():
        async for event in context.events.subscribe("TOOL_CALL_UPDATE"):
            event.payload.clear()
    context.tasks.spawn(read(), name="reads")
"""
PERMISSIONS = {
    "hooks": [
        *("hook:server:nodes:register", "hook:server:workflow:before-execute", "hook:server:tool:before-call"),
        *("hook:server:host:startup",),
    ],
    "events": {"subscribe": ["TOOL_CALL_UPDATE"]},
}
LISTS = function(
    "Lists",
    {"n": "acme:Spoil"},
    "in.items > n.items",
    "n.result > out.items",
    takes={"items": "ARRAY"},
    gives={"items": "ARRAY"},
)


def spoiling(folder: Path) -> Host:
    """Return a host with a third-party plugin that changes all that it gets hold of."""
    acme = write_plugin(folder / "acme", {"__init__.py": SPOILER}, permissions=PERMISSIONS)
    return Host(folder / "project", plugins=[acme], trust=["acme"])


async def test_a_third_party_changes_nothing_that_others_see(tmp_path: Path) -> None:
    async with spoiling(tmp_path) as host:
        ours: Any = host._manager.active["tavern-agents"].context
        heard, events = ours.events.subscribe("TOOL_CALL_UPDATE"), []
        items: list[Any] = [{"x": 1}, 2]
        await host.services.get(EXECUTION_ENGINE).queue()  # the first call opens it
        run = await ours.services.get(EXECUTION_ENGINE).run(
            RunRequest(workflow=Workflow.model_validate(LISTS), inputs={"items": items}, inline=True)
        )
        assert (run.outputs, items) == ({"items": [{"x": "spoilt"}, 2, "spoilt"]}, [{"x": 1}, 2])
        asked = ToolCallRequest(tool_id="node:acme:Spoil", arguments={"items": items})
        result = await ours.services.get(TOOL_MANAGER).call(asked, call=host.call())
        await heard.close()
        events = [event.payload async for event in heard]
    assert result.error is None, result.error
    assert (result.structured, items) == ([{"x": "spoilt"}, 2, "spoilt"], [{"x": 1}, 2])
    assert asked.arguments == {"items": items}
    assert {payload["toolId"] for payload in events} == {"node:acme:Spoil"}
