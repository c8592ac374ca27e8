"""A node that does something which is not to be done twice."""

from __future__ import annotations

from tavern_host import EXECUTION_ENGINE, NodeContext, node
from tavern_host.contracts.executions import RunRequest

from ..interfaces import mark


@node(type="Mark", cached=False)
async def make_mark(name: str, seconds: float, context: NodeContext) -> str:
    """Make a mark."""
    return await mark(context.plugin.project.root, name, seconds)


@node(cached=False)
async def nested(name: str, seconds: float, context: NodeContext) -> str:
    """Make a mark by a run within this one."""
    engine = context.plugin.services.get(EXECUTION_ENGINE)
    await engine.run(RunRequest(workflow_id="mark", inputs={"name": name, "seconds": seconds}), call=context.call)
    return name
