"""Which agents are offered, by the list that clients of every protocol get, and the cards that say what they do."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from tavern_a2a.versions import VERSIONS
from tavern_agents.api.agents import AGENT_RUNTIME, AgentProfile
from tavern_host.context import PluginContext
from tavern_host.contracts.errors import NotFound, TavernError
from tavern_host.contracts.http import HttpRequest
from tavern_mcp.api.servers import MCP_SERVERS
from tavern_tools.api.patterns import fits

_PICTURES = ["image/png", "image/jpeg", "image/webp", "image/gif"]
TAKEN = ["text/plain", "application/json", *_PICTURES]
"""The media types of what an agent is given."""

_SCHEME = {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}, "type": "http", "scheme": "bearer"}}


async def offered(context: PluginContext) -> list[str]:
    """Return the ids of the agents that are offered."""
    patterns = await context.services.get(MCP_SERVERS).offer()
    if not patterns:
        return []
    agents = await context.services.get(AGENT_RUNTIME).list_agents()
    return [agent.id for agent in agents if _is_offered(agent.id, patterns)]


async def require_offered(context: PluginContext, agent: str) -> AgentProfile:
    """Return the profile of an agent. Raises `NotFound` for one that is not there or not offered, in the same words."""
    if _is_offered(agent, await context.services.get(MCP_SERVERS).offer()):
        try:
            return await context.services.get(AGENT_RUNTIME).get(agent)
        except NotFound:
            pass
    raise NotFound(f"no agent {agent!r:.300} is offered; GET /a2a lists those that are", agent=agent)


async def cards_of(context: PluginContext, request: HttpRequest) -> list[dict[str, Any]]:
    """Return the cards of all agents that are offered and can be read."""
    found = []
    for agent in await offered(context):
        try:
            found.append(card_of(await require_offered(context, agent), context, request))
        except TavernError as error:
            context.log.warning("the agent %s has no card: %s", agent, error.message)
    return found


def card_of(profile: AgentProfile, context: PluginContext, request: HttpRequest) -> dict[str, Any]:
    """Return a card that clients of both versions read: what differs between them stands in it twice."""
    url = f"{request.base}/projects/{context.project.id}/a2a/{quote(profile.id, safe='')}"
    description = profile.description or f"The agent {profile.name}."
    skill = {"id": profile.id, "name": profile.name, "description": description, "tags": ["agent"]}
    return {
        "name": profile.name,
        "description": description,
        "version": profile.version,
        "supportedInterfaces": [
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": version} for version in VERSIONS
        ],
        "capabilities": {"streaming": True, "pushNotifications": False, "extendedAgentCard": False},
        "defaultInputModes": TAKEN,
        "defaultOutputModes": ["text/plain"],
        "skills": [skill],
        "securitySchemes": _SCHEME,
        "securityRequirements": [{"schemes": {"bearer": {"list": []}}}],
        "url": url,
        "preferredTransport": "JSONRPC",
        "protocolVersion": "0.3.0",
        "security": [{"bearer": []}],
    }


def _is_offered(agent: str, patterns: list[str]) -> bool:
    return any(fits(pattern, f"agent:{agent}") for pattern in patterns)
