"""The services `agentRuntime` and `chatHistory`, their routes and its commands.

The runtime owns the loop; workflows, tools and models belong to the services it calls.
"""

from __future__ import annotations

from tavern_host import CommandInfo, CommandParameter, PluginContext, RouteInfo, ServiceInfo, hookimpl, service_info
from tavern_host.contracts.agents import AGENT_RUNTIME
from tavern_host.contracts.histories import CHAT_HISTORY


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Return the services `agentRuntime` and `chatHistory`."""
    return [
        service_info(AGENT_RUNTIME, "tavern_agents.runtime:Runtime"),
        service_info(CHAT_HISTORY, "tavern_agents.histories:Histories"),
    ]


@hookimpl
async def tavern_shutdown(context: PluginContext) -> None:
    """Let go of the store, once the agents are at rest."""
    from tavern_agents.store import AgentStore

    store = context.state.get("agents.store")
    if isinstance(store, AgentStore):
        await store.close()


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    """Return the routes of agents."""
    return [
        RouteInfo(
            method="GET",
            path="/api/agents",
            handler="tavern_agents.web:list_agents",
            summary="The project's agents.",
        ),
        RouteInfo(
            method="POST",
            path="/api/agents/{id}/run",
            handler="tavern_agents.web:run_agent",
            summary="Give an agent a message and wait for its reply.",
        ),
    ]


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """Return `agent list` and `agent run`."""
    return [
        CommandInfo(
            name="agent list",
            help="List the project's agents.",
            handler="tavern_agents.commands:list_agents",
        ),
        CommandInfo(
            name="agent run",
            help="Give an agent a message and watch it work.",
            handler="tavern_agents.commands:run_agent",
            parameters=[
                CommandParameter(name="profile", help="The agent's id.", required=True),
                CommandParameter(name="--message", help="The message for the agent.", required=True),
                CommandParameter(name="--max-steps", help="How often it may deliberate.", type="integer", default=8),
            ],
        ),
    ]
