"""Keeps the history of workflows in git: an override of `workflowManager`, and nodes and tools that read it."""

from __future__ import annotations

from tavern_host import WORKFLOW_MANAGER, ServiceInfo, hookimpl, service_info


@hookimpl
def tavern_override_services() -> list[ServiceInfo]:
    """Stand in front of `workflowManager`."""
    from .workflows import GitWorkflows

    return [service_info(WORKFLOW_MANAGER, GitWorkflows)]
