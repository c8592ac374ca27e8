"""Whether a service tool may call the method that it names: the service is there, the method is one that
tools may reach, and the plugin that brought the tool holds the permission itself (DESIGN §3, rule 6).

Without this a tool file would lend its plugin, or a project that somebody sent, the rights of this one.
"""

from __future__ import annotations

from dataclasses import dataclass

from tavern_host.contracts.catalogue import interfaces
from tavern_host.contracts.errors import NotFound
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.plugins import PluginInfo, Plugins
from tavern_host.contracts.services import MethodInfo, interface_methods
from tavern_host.contracts.tools import ToolDefinition, ToolErrorType, ToolImplementation

_DOCUMENT_NAMES = {"ExternalScriptExecutionService": "scriptExecution"}
_DOCUMENT_METHODS = {("scriptExecution", "executeScript"): "execute"}


@dataclass(frozen=True)
class Lack:
    """Why a tool cannot be called, and how a call to it fails."""

    reason: str
    type: ToolErrorType = ToolErrorType.SERVICE_UNAVAILABLE


def service_and_method(implementation: ToolImplementation) -> tuple[str, str]:
    """Return the service and method that a service tool names, by their names here (`spec/003` writes others)."""
    service = _DOCUMENT_NAMES.get(implementation.service or "", implementation.service or "")
    method = implementation.method or ""
    return service, _DOCUMENT_METHODS.get((service, method), method)


async def service_lack(plugins: Plugins, definition: ToolDefinition) -> Lack | None:
    """Return why this service tool cannot be called, or None where it can."""
    service, method = service_and_method(definition.implementation)
    try:
        await plugins.service_stack(service)
    except NotFound:
        return Lack(f"needs service {service}")
    methods = interface_methods(interfaces()[service]) if service in interfaces() else {}
    if method not in methods:
        return Lack(f"needs a method {method} of service {service}{did_you_mean(method, methods)}")
    info = methods[method]
    if info.level == "override":
        return Lack(f"{service}.{method} is the operator's alone", ToolErrorType.PERMISSION_DENIED)
    if definition.plugin is not None and not _holds(await plugins.get(definition.plugin), info):
        missing = f"the plugin {definition.plugin} lacks the permission services.use: {info.permission}"
        return Lack(missing, ToolErrorType.PERMISSION_DENIED)
    return None


def _holds(plugin: PluginInfo, info: MethodInfo) -> bool:
    if plugin.first_party or info.permission is None or info.level == "add":
        return True
    wanted = ("services.use:*", f"services.use:{info.permission}")
    return any(permission.granted and permission.name in wanted for permission in plugin.permissions)
