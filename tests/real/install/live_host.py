"""A program that embeds the host: grants the plugin and revokes it while the host runs, and prints as JSON
what a user of the host sees before, in between and after. Run by the tests in an environment of its own."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from pathlib import Path
from typing import Any

from tavern_host import EXECUTION_ENGINE, NODE_MANAGER, PLUGINS, TOOL_MANAGER, WORKFLOW_MANAGER, Host, TavernError
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.workflows import Workflow
from tavern_tools.api.toolcalls import ToolCallRequest

NAME = "my-awesome-plugin"
TOOL = "MyAwesomePlugin:splitItems"


async def attempt(awaitable: Any) -> Any:
    """Return the result of a call, or the code and message of its error."""
    try:
        return await awaitable
    except TavernError as error:
        return f"{error.info.code}: {error.message}"


async def look(host: Host) -> dict[str, Any]:
    """Return the plugin's state and contributions as a user sees them now."""
    services = host.services
    greeting = await attempt(
        services.get(EXECUTION_ENGINE).run(RunRequest(workflow_id="greet", inputs={"name": "Ada"}))
    )
    item = await services.get(TOOL_MANAGER).call(ToolCallRequest(tool_id=TOOL, arguments={"input": "- tea"}))
    info = host.plugin(NAME)
    return {
        "state": info.state,
        "contributions": info.contributions,
        "greeting": greeting if isinstance(greeting, str) else greeting.outputs,
        "stack": [layer.plugin for layer in await services.get(PLUGINS).service_stack("workflowManager")],
        "names": [w.name for w in await services.get(WORKFLOW_MANAGER).list_workflows()],
        "nodes": [n.full_type for n in await services.get(NODE_MANAGER).list_nodes() if n.namespace == NAME],
        "tools": [t.id for t in await services.get(TOOL_MANAGER).list_tools() if t.plugin == NAME],
        "item": item.structured if item.error is None else item.error.type,
        "front end": host.frontend_files(NAME) is not None,
    }


def held_by_the_plugin() -> list[Any]:
    """Return the methods that code of the plugin has taken out of its views and could still call."""
    (override,) = [o for o in gc.get_objects() if type(o).__name__ == "VersionedWorkflows"]
    own_view = override._context.services.get(WORKFLOW_MANAGER)
    return [override.original.list_workflows, own_view.list_workflows]


async def main(project: Path) -> dict[str, Any]:
    """Run the host on a project and return what is seen."""
    seen: dict[str, Any] = {}
    async with Host(project) as host:
        workflows = host.services.get(WORKFLOW_MANAGER)
        list_workflows = workflows.list_workflows
        seen["plugins"] = [plugin.to_json() for plugin in host.plugins()]
        seen["refused"] = await look(host)
        seen["imported while refused"] = [name for name in list(sys.modules) if name.startswith("my_awesome_plugin")]
        await host.grant(NAME)
        await workflows.save("tale", Workflow(name="Second tale"), call=host.call())
        seen["granted"] = await look(host)
        seen["earlier"] = (await workflows.get("tale@1")).workflow.name
        held = held_by_the_plugin()
        seen["held while granted"] = [len(await method()) for method in held]
        await host.revoke(NAME)
        seen["held after"] = [await attempt(method()) for method in held]
        seen["taken out by the operator"] = [w.name for w in await list_workflows()]
        seen["revoked"] = await look(host)
    return seen


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(Path(sys.argv[1])))))
