"""The first-party plugin `tavern-scripts`: scripts of agents and plugins, each in a sandbox of its own."""

from __future__ import annotations

from tavern_host.authoring import hookimpl
from tavern_host.contracts.commands import CommandInfo
from tavern_host.contracts.scripts import SCRIPT_EXECUTION
from tavern_host.contracts.scripttools import SCRIPT_TOOLS
from tavern_host.contracts.services import ServiceInfo, service_info


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Return what runs scripts, and what runs them for agents."""
    from tavern_scripts.agenttools import AgentTools
    from tavern_scripts.service import Scripts

    return [service_info(SCRIPT_EXECUTION, Scripts), service_info(SCRIPT_TOOLS, AgentTools)]


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """Return `tavern scripts doctor` and `tavern scripts run`."""
    from tavern_scripts.commands import script_commands

    return script_commands()
