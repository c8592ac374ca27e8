"""Whether a tool's plugin may do what the tool does: it holds the permissions that the tool declares, and, for a
service tool, that of the method, which is one that tools may reach.

Without this a tool file would lend its plugin, or a third-party project, the rights of this one. Who may call
a tool is not decided here.
"""

from __future__ import annotations

from dataclasses import dataclass

from tavern_host.context import ServiceMethod, Services
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.plugins import PluginInfo, Plugins
from tavern_host.contracts.services import MethodInfo
from tavern_host.contracts.tools import ToolDefinition, ToolImplementation
from tavern_tools.api.patterns import fits
from tavern_tools.api.toolcalls import ToolErrorType

_DOCUMENT_NAMES = {"ExternalScriptExecutionService": "scriptExecution"}
_DOCUMENT_METHODS = {("scriptExecution", "executeScript"): "execute"}


@dataclass(frozen=True)
class Unmet:
    """A requirement of a tool that is not met: why it cannot be called, and how a call to it fails."""

    reason: str
    type: ToolErrorType = ToolErrorType.SERVICE_UNAVAILABLE


def service_name(name: str) -> str:
    """Return the name here of a service that published tool files may name otherwise."""
    return _DOCUMENT_NAMES.get(name, name)


def service_and_method(implementation: ToolImplementation) -> tuple[str, str]:
    """Return the service and method that a service tool names, by their names here; tool files may write others."""
    service = service_name(implementation.service or "")
    method = implementation.method or ""
    return service, _DOCUMENT_METHODS.get((service, method), method)


def service_method(services: Services, definition: ToolDefinition) -> ServiceMethod | Unmet:
    """Return the method that a service tool names, or the reason why it cannot be called."""
    service, method = service_and_method(definition.implementation)
    if not services.has(service):
        return Unmet(f"needs service {service}")
    try:
        return services.method(service, method)
    except TavernError as error:
        return Unmet(error.message)


async def unmet_service(plugins: Plugins, definition: ToolDefinition, info: MethodInfo) -> Unmet | None:
    """Return why a tool of this method cannot be called, or None where it can."""
    if info.level == "override":
        service, method = service_and_method(definition.implementation)
        return Unmet(f"{service}.{method} is the operator's alone", ToolErrorType.PERMISSION_DENIED)
    if definition.plugin is not None and not _may_use(await plugins.get(definition.plugin), info):
        missing = f"the plugin {definition.plugin} lacks the permission services.use: {info.permission}"
        return Unmet(missing, ToolErrorType.PERMISSION_DENIED)
    return None


async def unmet_permission(plugins: Plugins, definition: ToolDefinition) -> Unmet | None:
    """Return which of the permissions that the tool declares its plugin does not hold, or None.

    A tool of the project has no plugin: what it does, it does with the rights of its caller.
    """
    if not definition.permissions or definition.plugin is None:
        return None
    plugin = await plugins.get(definition.plugin)
    missing = [permission for permission in definition.permissions if not _holds(plugin, permission)]
    if not missing:
        return None
    named = f"permission{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
    return Unmet(f"needs the {named}, which the plugin {plugin.name} does not hold", ToolErrorType.PERMISSION_DENIED)


def _may_use(plugin: PluginInfo, info: MethodInfo) -> bool:
    return info.permission is None or info.level == "add" or _holds(plugin, f"services.use:{info.permission}")


def _holds(plugin: PluginInfo, permission: str) -> bool:
    return plugin.first_party or any(held.granted and fits(held.name, permission) for held in plugin.permissions)
