"""An example of a whole plugin: what it registers is here, the work is in the modules beside it."""

from __future__ import annotations

from tavern_host import WORKFLOW_MANAGER, PluginContext, ServiceInfo, UiDeclaration, hookimpl, service_info
from tavern_host.contracts.executions import RunRequest


@hookimpl
async def tavern_before_execute(request: RunRequest, context: PluginContext) -> RunRequest | None:
    """Fill in the greeting of a run that left it out."""
    from .greeting import with_greeting

    return await with_greeting(request, context)


@hookimpl
def tavern_override_services() -> list[ServiceInfo]:
    """Stand in front of `workflowManager`, to keep earlier versions."""
    from .workflows import VersionedWorkflows

    return [service_info(WORKFLOW_MANAGER, VersionedWorkflows)]


@hookimpl
def tavern_declare_ui() -> list[UiDeclaration]:
    """Mark the plugin's own node on the canvas."""
    return [
        UiDeclaration(kind="outlet", target="node:header:right", export="OwnNodeBadge"),
        UiDeclaration(kind="wrap", target="ui:BaseNode", export="frameOwnNodes"),
    ]
