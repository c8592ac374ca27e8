"""All service interfaces of the host's contracts, and the permissions that their acting methods name."""

from __future__ import annotations

from functools import cache

from tavern_host.contracts.accounts import Accounts
from tavern_host.contracts.agents import AgentRuntime
from tavern_host.contracts.assistant import Assistant
from tavern_host.contracts.audit import Audit
from tavern_host.contracts.callaccounts import CallAccounts
from tavern_host.contracts.clusters import NodeCluster
from tavern_host.contracts.databases import SharedDatabases
from tavern_host.contracts.executions import ExecutionEngine
from tavern_host.contracts.histories import ChatHistory
from tavern_host.contracts.knowledge import KnowledgeBase
from tavern_host.contracts.llm import Llm
from tavern_host.contracts.metrics import Metrics
from tavern_host.contracts.nodes import NodeManager
from tavern_host.contracts.plugins import Plugins
from tavern_host.contracts.profilefiles import AgentProfiles
from tavern_host.contracts.projectfiles import ProjectFiles
from tavern_host.contracts.runs import RunStore
from tavern_host.contracts.scenes import SceneManager
from tavern_host.contracts.scripts import ScriptExecution
from tavern_host.contracts.scripttools import ScriptTools
from tavern_host.contracts.services import Level, ServiceInterface, interface_methods
from tavern_host.contracts.settings import Settings
from tavern_host.contracts.systemtools import SystemTools
from tavern_host.contracts.toolfiles import ToolFiles
from tavern_host.contracts.tools import ToolManager
from tavern_host.contracts.workflows import WorkflowManager

INTERFACES: tuple[type[ServiceInterface], ...] = (
    Plugins,
    Settings,
    Audit,
    NodeManager,
    WorkflowManager,
    ExecutionEngine,
    RunStore,
    NodeCluster,
    SharedDatabases,
    ToolManager,
    ToolFiles,
    SystemTools,
    ProjectFiles,
    ScriptExecution,
    ScriptTools,
    Llm,
    AgentRuntime,
    CallAccounts,
    AgentProfiles,
    ChatHistory,
    SceneManager,
    KnowledgeBase,
    Assistant,
    Metrics,
    Accounts,
)


ALL_SERVICES = "services.use:*"
"""The permission to call every acting method of every service."""


@cache
def interfaces() -> dict[str, type[ServiceInterface]]:
    """Return the interfaces by service name."""
    return {interface.service_name: interface for interface in INTERFACES}


@cache
def recorded_actions() -> frozenset[str]:
    """Return the first words of what only providers of the host's services record in the audit log."""
    return frozenset(word for interface in INTERFACES for word in interface.service_records)


@cache
def service_permissions() -> dict[str, tuple[Level, str]]:
    """Return each `services.use` permission with its level and one sentence of what it allows."""
    found: dict[str, tuple[Level, str]] = {}
    for interface in INTERFACES:
        for info in interface_methods(interface).values():
            if info.permission is not None:
                found.setdefault(info.permission, (info.level, info.allows))
    return found
