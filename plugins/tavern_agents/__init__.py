"""The services `agentRuntime`, `agentProfiles` and `chatHistory`, their routes and commands, and agents as tools.

The runtime owns the loop; workflows, tools and models belong to the services it calls.
"""

from __future__ import annotations

import asyncio
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING

from tavern_host import CallContext, CommandInfo, PluginContext, RouteInfo, ServiceInfo, hookimpl
from tavern_host.contracts.accounts import SettledWork, WorkFilter
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.plugins import all_started
from tavern_host.contracts.tools import ToolDefinition
from tavern_importers.api.importers import ImporterInfo
from tavern_tools.api.macros import PromptMacroInfo

if TYPE_CHECKING:
    from tavern_agents.account import CallAccount
    from tavern_agents.profiles import ProfileFolder
    from tavern_agents.runtime import Runtime
    from tavern_agents.store import AgentStore
    from tavern_agents.tracing import Tracer
    from tavern_devtools.api.findings import CheckedPlugin, Finding

_LATER = 0.3
"""Seconds after the start, in which the host can answer for the first time."""

_LOOK = 5.0
"""Seconds between two looks for runs whose host ended."""

_EVERY = 1.0
"""Seconds between two looks at the profiles."""


class State:
    """What the parts of this plugin share. `runtime` is None until this plugin's own is used; `runs` are the tracers of
    runs that no agent deliberates by; `experience` is what was shown of earlier calls, by conversation and profile;
    `writing` is held while a profile is changed."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self.runtime: Runtime | None = None
        self.tracers: dict[str, Tracer] = {}
        self.runs: dict[str, Tracer] = {}
        self.accounts: dict[str, CallAccount] = {}
        self.experience: dict[tuple[str, str], list[str]] = {}
        self.writing = asyncio.Lock()

    @cached_property
    def profiles(self) -> ProfileFolder:
        """The profiles of the project."""
        from tavern_agents.profiles import ProfileFolder

        return ProfileFolder(self._context)

    @cached_property
    def store(self) -> AgentStore:
        """The conversations and runs of the project."""
        from tavern_agents.store import AgentStore

        return AgentStore(self._context)

    async def close(self) -> None:
        """Leave active runs to the next host, and close the store."""
        if self.runtime is not None:
            await self.runtime.close()
        if "store" in vars(self):
            await self.store.close()


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Return the services `agentRuntime`, `agentProfiles` and `chatHistory`."""
    return [
        ServiceInfo(service="agentRuntime", handler="tavern_agents.runtime:Runtime"),
        ServiceInfo(service="callAccounts", handler="tavern_agents.account:Accounts"),
        ServiceInfo(service="agentProfiles", handler="tavern_agents.profile_files:ProfileFiles"),
        ServiceInfo(service="chatHistory", handler="tavern_agents.histories:Histories"),
    ]


@hookimpl
async def tavern_startup(context: PluginContext) -> None:
    """Resume the runs that were left over, and look after changes of profiles, in a host that serves."""
    if context.serving:
        context.tasks.spawn(context.own(State).profiles.follow(_EVERY), name="follow profiles of agents")
        context.tasks.spawn(_resume_abandoned(context), name="begin to resume runs of agents")


async def _resume_abandoned(context: PluginContext) -> None:
    """Let the runtime of this plugin, unless another's has taken its place, resume what was left over, and what other
    hosts leave later."""
    await asyncio.sleep(_LATER)
    await asyncio.to_thread(import_module, "tavern_agents.runtime")  # the event loop does not wait for it
    await all_started(context.services)
    told = ""
    while not context.is_stopping():
        try:
            if (runtime := await _runtime(context)) is None:
                return
            await runtime.resume_abandoned()
            told = ""
        except TavernError as error:
            if error.message != told:
                context.log.error("runs of agents that a host left cannot be looked for: %s", error.message)
            told = error.message
        await asyncio.sleep(_LOOK)


@hookimpl
async def tavern_settle_work(which: WorkFilter, call: CallContext, context: PluginContext) -> list[SettledWork]:
    """Stop runs of agents."""
    from tavern_agents.ending_work import end_work

    runtime = await _runtime(context)
    return [] if runtime is None else await end_work(runtime, which, call, context)


async def _runtime(context: PluginContext) -> Runtime | None:
    """Return the runtime of this plugin, unless another's has taken its place."""
    state = context.own(State)
    if state.runtime is None:
        from tavern_agents.api.agents import AGENT_RUNTIME, AgentRunFilter

        await context.services.get(AGENT_RUNTIME).runs(AgentRunFilter(limit=1))  # makes it
    return state.runtime


@hookimpl
async def tavern_shutdown(context: PluginContext) -> None:
    """Leave active runs to the next host, and close the store."""
    await context.own(State).close()


@hookimpl
async def tavern_check_plugin(plugin: CheckedPlugin, context: PluginContext) -> list[Finding]:
    """Say what is wrong with a plugin's agents."""
    from tavern_agents.plugin_check import check_plugin

    return await check_plugin(plugin, context)


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    """Return the routes of agents and of conversations."""
    from tavern_agents import descriptors, history_descriptors

    return [*descriptors.routes(), *history_descriptors.routes()]


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """Return the commands `tavern agent …` and `tavern history …`."""
    from tavern_agents import descriptors, history_descriptors

    return [*descriptors.commands(), *history_descriptors.commands()]


@hookimpl
async def tavern_discover_tools(context: PluginContext) -> list[ToolDefinition]:
    """Return a tool `agent:ID` for each agent."""
    from tavern_agents.subagents import agent_tools

    return await agent_tools(context)


@hookimpl
def tavern_register_prompt_macros() -> list[PromptMacroInfo]:
    """Return the macros `agent:name`, `agent:id`, `agent:description` and `agent:memory`."""
    handler = "tavern_agents.subagents:field"
    remembers = "What the agent remembers: its private state, its goals and its latest notes."
    return [
        PromptMacroInfo(
            name="agent:memory", handler="tavern_agents.memory:memory_text", description=remembers, volatile=True
        ),
        *(
            PromptMacroInfo(name=f"agent:{field}", handler=handler, description=f"The agent's {field}.")
            for field in ("name", "id", "description")
        ),
    ]


@hookimpl
def tavern_register_importers() -> list[ImporterInfo]:
    """Import profiles and conversations."""
    from tavern_agents.importing import importers

    return importers()
