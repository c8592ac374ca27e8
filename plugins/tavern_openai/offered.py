"""Which models there are for clients: what the operator offers to clients of any kind, by one list."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tavern_host.context import PluginContext
from tavern_host.contracts.errors import NotFound
from tavern_llm.api.llm import LLM
from tavern_mcp.api.servers import MCP_SERVERS, MODEL
from tavern_tools.api.patterns import fits
from tavern_tools.api.tools import TOOL_MANAGER, ToolFilter

KINDS = ("agent", "workflow")
"""What a name may begin with: `agent/ID` is the agent that is called as the tool `agent:ID`."""


async def offered(context: PluginContext) -> list[str]:
    """Return the names of the models that are offered: agents, workflows and language models, each by name."""
    patterns = await context.services.get(MCP_SERVERS).offer()
    if not patterns:
        return []
    tools = await context.services.get(TOOL_MANAGER).list_tools(ToolFilter(ids=patterns))
    parts = [tool.id.partition(":") for tool in tools if tool.unavailable is None]
    models = [one.name for one in await context.services.get(LLM).models()]
    return sorted(f"{kind}/{name}" for kind, _, name in parts if kind in KINDS) + [
        name for name in models if _is_offered(f"{MODEL}{name}", patterns)
    ]


async def require_offered(context: PluginContext, model: str) -> tuple[str, str]:
    """Return the kind of a model, `agent`, `workflow` or `model`, and its name as such. Raises `NotFound` for one that
    is not offered; whether there is one, who is asked says."""
    kind, _, name = model.partition("/")
    if kind not in KINDS or not name:
        kind, name = MODEL.removesuffix(":"), model
    if not _is_offered(f"{kind}:{name}", await context.services.get(MCP_SERVERS).offer()):
        raise NotFound(f"no model {model!r:.300} is offered; GET /v1/models lists those that are", model=model)
    return kind, name


@contextmanager
def naming(model: str) -> Iterator[None]:
    """Let `NotFound` inside say which model is meant: one that is offered by a pattern need not be there."""
    try:
        yield
    except NotFound as error:
        raise NotFound(error.message, model=model) from None


def _is_offered(id: str, patterns: list[str]) -> bool:
    return any(fits(pattern, id) for pattern in patterns)
