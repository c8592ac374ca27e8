"""Every hook of the host, in one file: the contract between the host and its plugins.

A hookimpl is a `def` or `async def` function of the plugin's package, marked `@hookimpl`, that takes any
of the hook's arguments by name. Every hook may also take `context`, the plugin's own `PluginContext`.
What an implementation needs to be admitted stands with each hook: the permission, its level (`add` is
granted by declaring it, `intercept` and `override` need the operator) and the policy by which answers
are combined.
"""

from __future__ import annotations

import inspect
from functools import cache

from tavern_host.context import PluginContext
from tavern_host.contracts.accounts import Login, SettledWork, WorkFilter
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.commands import CommandInfo
from tavern_host.contracts.executions import Run, RunRequest
from tavern_host.contracts.hooks import HookInfo, Veto, hookspec
from tavern_host.contracts.http import MessageInfo, RouteInfo
from tavern_host.contracts.metrics import Figure
from tavern_host.contracts.nodes import NodeDefinition
from tavern_host.contracts.reviews import ReviewedPlugin, ReviewNote
from tavern_host.contracts.services import ServiceInfo
from tavern_host.contracts.settings import SettingsChange
from tavern_host.contracts.tools import ToolDefinition
from tavern_host.contracts.ui import UiDeclaration

# --- what a plugin adds ---------------------------------------------------------------------------


@hookspec(
    permission="hook:server:nodes:register",
    level="add",
    policy="collect",
    caller="nodeManager",
    field="nodes",
    description="Add node types to the palette.",
    example="return nodes_of(my_plugin.nodes)",
)
def tavern_register_nodes(context: PluginContext) -> list[NodeDefinition]:
    """Return node types. Modules under the manifest's `nodes.entry` are collected without this hook."""


@hookspec(
    permission="hook:server:tools:discover",
    level="add",
    policy="collect",
    caller="toolManager",
    field="tools",
    description="Add tools that agents and people can call.",
    example="return [ToolDefinition(id='acme:ping', implementation=PING)]",
)
def tavern_discover_tools(context: PluginContext) -> list[ToolDefinition]:
    """Return tools. Files under the manifest's `tools.entry` are read without this hook.

    They are asked for again when plugins have changed, or somebody has published `TOOLS_CHANGED`.
    """


@hookspec(
    permission="hook:server:services:register",
    level="add",
    policy="collect",
    caller="host",
    description="Offer services to other plugins.",
    example="return [service_info(WORKFLOW_MANAGER, MyWorkflows)]",
)
def tavern_register_services(context: PluginContext) -> list[ServiceInfo]:
    """Return the services that the plugin provides; one that has a provider already is a conflict."""


@hookspec(
    permission="hook:server:ui:declare",
    level="add",
    policy="collect",
    caller="host",
    field="frontend",
    description="Add menu items, panels, pages and outlet content; wraps and overrides are asked for one by one.",
    example="return [UiDeclaration(kind='outlet', target='node:header:right', export='Badge')]",
)
def tavern_declare_ui(context: PluginContext) -> list[UiDeclaration]:
    """Return UI declarations. Outlets, wraps and overrides must stand under `permissions.ui` as well."""


@hookspec(
    permission="hook:server:routes:register",
    level="add",
    policy="collect",
    caller="host",
    description="Answer HTTP requests and socket messages of its own.",
    example="return [RouteInfo(method='GET', path='/api/x/acme-plugin/status', handler='acme_plugin.web:index')]",
)
def tavern_register_routes(context: PluginContext) -> list[RouteInfo | MessageInfo]:
    """Return routes and `/ws` message types. A third party's paths begin with `/api/x/{plugin name}/`."""


@hookspec(
    permission="hook:server:commands:register",
    level="add",
    policy="collect",
    caller="host",
    description="Add commands to `tavern`.",
    example="return [CommandInfo(name='acme sync', help='Sync.', handler='acme_plugin.commands:sync')]",
)
def tavern_register_commands(context: PluginContext) -> list[CommandInfo]:
    """Return commands of `tavern`."""


@hookspec(
    permission="hook:server:plugins:review",
    level="add",
    policy="collect",
    caller="host",
    description="Add notes to what the operator reads of other plugins before granting them.",
    example="return [ReviewNote(key='acme', title='Guests', columns=['name'], rows=[[plugin.name]])]",
)
def tavern_review_plugin(plugin: ReviewedPlugin, context: PluginContext) -> list[ReviewNote]:
    """Return notes on a plugin under review, read from its files; it is not imported, and of others only first-party
    plugins are, before the operator has decided."""


@hookspec(
    permission="hook:server:metrics:collect",
    level="add",
    policy="collect",
    caller="metrics",
    description="Add figures to those that the operator's monitoring reads.",
    example="return [Figure(name='guests', kind='gauge', value=3, help='Guests in the inn.')]",
)
def tavern_collect_figures(context: PluginContext) -> list[Figure]:
    """Return the plugin's figures as they are now; asked for whenever somebody reads `GET /metrics`."""


# --- what a plugin intercepts ---------------------------------------------------------------------


@hookspec(
    permission="hook:server:nodemanager:before-register",
    level="intercept",
    policy="filter",
    caller="nodeManager",
    description="Change or hide the node types of other plugins before they are offered.",
    example="return node.model_copy(update={'category': 'acme'})",
)
def tavern_before_register_node(node: NodeDefinition, context: PluginContext) -> NodeDefinition | Veto | None:
    """Return a changed definition, `Veto` to leave the node out, or None to leave it as it is.

    Type, namespace and handler stay what they are.
    """


@hookspec(
    permission="hook:server:toolmanager:before-register",
    level="intercept",
    policy="filter",
    caller="toolManager",
    description="Change or hide the tools of other plugins before they are offered.",
    example="return tool.model_copy(update={'description': 'Shorter.'})",
)
def tavern_before_register_tool(tool: ToolDefinition, context: PluginContext) -> ToolDefinition | Veto | None:
    """Return a changed definition, `Veto` to leave the tool out, or None. The id stays what it is."""


@hookspec(
    permission="hook:server:workflow:before-execute",
    level="intercept",
    policy="veto",
    caller="executionEngine",
    description="See every workflow run before it starts, change its inputs or refuse it.",
    example="return request.model_copy(update={'inputs': {**request.inputs, 'tone': 'kind'}})",
)
def tavern_before_execute(request: RunRequest, call: CallContext, context: PluginContext) -> RunRequest | Veto | None:
    """Return a changed request, `Veto` to refuse the run, or None. An error refuses it too."""


@hookspec(
    permission="hook:server:workflow:after-execute",
    level="intercept",
    policy="veto",
    caller="executionEngine",
    description="See the result of every workflow run and change or withhold its outputs.",
    example="return run.model_copy(update={'outputs': {}})",
)
def tavern_after_execute(run: Run, call: CallContext, context: PluginContext) -> Run | Veto | None:
    """Return a changed run (its outputs count), `Veto` to withhold the outputs, or None."""


@hookspec(
    permission="hook:server:settings:before-save",
    level="intercept",
    policy="veto",
    caller="settings",
    description="See every change of settings before it is saved, change it or refuse it.",
    example="return Veto(reason='only on Mondays')",
)
def tavern_before_save_settings(
    change: SettingsChange, call: CallContext, context: PluginContext
) -> SettingsChange | Veto | None:
    """Return a changed change (its values count), `Veto` to refuse it, or None. An error refuses it too."""


@hookspec(
    permission="hook:server:auth:login",
    level="intercept",
    policy="collect",
    caller="accounts",
    description="Learn who logs in, when and from where.",
    example="VISITS.append(login.user)",
)
def tavern_on_login(login: Login, call: CallContext, context: PluginContext) -> None:
    """Called after each login of a user that succeeded, before it is answered; an error does not undo it."""


@hookspec(
    permission="hook:server:work:settle",
    level="intercept",
    policy="collect",
    caller="accounts",
    description="Learn whose work is to end, and end its own.",
    example="return [SettledWork(kind='deliveries', cancelled=2)]",
)
def tavern_settle_work(which: WorkFilter, call: CallContext, context: PluginContext) -> list[SettledWork]:
    """End the work in flight that a filter means, and return how much that was. Whoever owns work that outlives the
    request for it implements this, keeps with which context it was begun, and asks `is_to_settle`."""


# --- what a plugin replaces -----------------------------------------------------------------------


@hookspec(
    permission="services.override",
    level="override",
    policy="collect",
    caller="host",
    description="Put its own implementation in the place of a core service.",
    example="return [service_info(WORKFLOW_MANAGER, MyWorkflows)]",
)
def tavern_override_services(context: PluginContext) -> list[ServiceInfo]:
    """Return providers that replace existing ones; each service must stand under `services.override`.

    The provider is opened as `Class(context, original)`; `original` is a view of what it replaces.
    """


# --- the life of a plugin -------------------------------------------------------------------------


@hookspec(
    permission="hook:server:host:startup",
    level="add",
    policy="collect",
    caller="host",
    description="Do something when the host starts.",
    example="context.tasks.spawn(refresh_forever(), name='refresh')",
)
def tavern_startup(context: PluginContext) -> None:
    """Called once when all plugins are loaded and all services registered; an error costs the plugin."""


@hookspec(
    permission="hook:server:host:shutdown",
    level="add",
    policy="collect",
    caller="host",
    description="Do something when the host stops or the plugin is unloaded.",
    example="await flush()",
)
def tavern_shutdown(context: PluginContext) -> None:
    """Called once before the plugin's tasks are cancelled, within a deadline."""


@cache
def hooks() -> dict[str, HookInfo]:
    """Return every hook of the host by name."""
    infos = (getattr(value, "__tavern_hook__", None) for value in globals().values() if inspect.isfunction(value))
    return {info.name: info for info in infos if info is not None}
