"""tavern-host: a plugin host for AI workflows, tools and agents.

Everything that a plugin author imports is here, and nothing else. Names are loaded when they are first
used, so that `import tavern_host` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tavern_agents.api.agents import AGENT_RUNTIME
    from tavern_engine.api.executions import EXECUTION_ENGINE
    from tavern_engine.api.nodes import NODE_MANAGER
    from tavern_host.context import NodeContext, PluginContext
    from tavern_host.contracts.audit import AUDIT
    from tavern_host.contracts.blobs import Blob
    from tavern_host.contracts.calls import CallContext, Principal
    from tavern_host.contracts.commands import CommandGroup, CommandInfo, CommandOutput, CommandParameter
    from tavern_host.contracts.errors import InvalidInput, NotFound, TavernError
    from tavern_host.contracts.hooks import Veto, hookspec
    from tavern_host.contracts.http import HttpRequest, HttpResponse, MessageInfo, RouteInfo
    from tavern_host.contracts.nodes import NodeDefinition
    from tavern_host.contracts.plugins import PLUGINS
    from tavern_host.contracts.services import (
        ServiceInfo,
        ServiceInterface,
        ServiceKey,
        acts,
        reads,
        reads_content,
        service_info,
    )
    from tavern_host.contracts.settings import SETTINGS
    from tavern_host.contracts.tools import ToolDefinition, ToolImplementation
    from tavern_host.contracts.ui import UiDeclaration
    from tavern_host.host import Host as Host
    from tavern_host.projects import Folders as Folders
    from tavern_host.sdk.decorator import Config, Slot, hookimpl, node, nodes_of
    from tavern_host.sdk.override import ServiceOverride
    from tavern_llm.api.llm import LLM
    from tavern_tools.api.tools import TOOL_MANAGER
    from tavern_workflows.api.workflows import WORKFLOW_MANAGER

_HOMES = {
    "sdk.decorator": ("Config", "Slot", "hookimpl", "node", "nodes_of"),
    "sdk.override": ("ServiceOverride",),
    "context": ("NodeContext", "PluginContext"),
    "contracts.audit": ("AUDIT",),
    "contracts.blobs": ("Blob",),
    "contracts.calls": ("CallContext", "Principal"),
    "contracts.commands": ("CommandGroup", "CommandInfo", "CommandOutput", "CommandParameter"),
    "contracts.errors": ("InvalidInput", "NotFound", "TavernError"),
    "contracts.hooks": ("Veto", "hookspec"),
    "contracts.http": ("HttpRequest", "HttpResponse", "MessageInfo", "RouteInfo"),
    "contracts.nodes": ("NodeDefinition",),
    "contracts.plugins": ("PLUGINS",),
    "contracts.services": (
        "ServiceInfo",
        "ServiceInterface",
        "ServiceKey",
        "acts",
        "reads",
        "reads_content",
        "service_info",
    ),
    "contracts.settings": ("SETTINGS",),
    "contracts.tools": ("ToolDefinition", "ToolImplementation"),
    "contracts.ui": ("UiDeclaration",),
    "host": ("Host",),
    "projects": ("Folders",),
}
_SERVICES = {
    "AGENT_RUNTIME": "tavern_agents.api.agents",
    "EXECUTION_ENGINE": "tavern_engine.api.executions",
    "LLM": "tavern_llm.api.llm",
    "NODE_MANAGER": "tavern_engine.api.nodes",
    "TOOL_MANAGER": "tavern_tools.api.tools",
    "WORKFLOW_MANAGER": "tavern_workflows.api.workflows",
}
"""Services of the platform, each with the module of the first-party plugin that describes it: for authors alone."""

_HOME_OF = {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names} | _SERVICES

# What a plugin's author imports with a star. `Host` and `Folders`, for programs that have a host, by name alone: a
# plugin in a process of its own need not import the host for them.
__all__ = ["__version__", "hookimpl", "hookspec"]
__all__ += ["CallContext", "InvalidInput", "NotFound", "PluginContext", "Principal", "TavernError", "Veto"]
__all__ += ["AGENT_RUNTIME", "AUDIT", "EXECUTION_ENGINE", "LLM", "NODE_MANAGER", "PLUGINS", "SETTINGS", "TOOL_MANAGER"]
__all__ += ["WORKFLOW_MANAGER"]
__all__ += [
    "ServiceInfo",
    "ServiceInterface",
    "ServiceKey",
    "ServiceOverride",
    "acts",
    "reads",
    "reads_content",
    "service_info",
]
__all__ += ["Blob", "Config", "NodeContext", "NodeDefinition", "Slot", "node", "nodes_of"]
__all__ += ["CommandGroup", "CommandInfo", "CommandOutput", "CommandParameter"]
__all__ += ["ToolDefinition", "ToolImplementation", "UiDeclaration"]
__all__ += ["HttpRequest", "HttpResponse", "MessageInfo", "RouteInfo"]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
