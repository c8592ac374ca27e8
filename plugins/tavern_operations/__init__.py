"""What operators do with a host: settings of plugins, the audit log, backups, migrations of databases; metrics,
alarms and advisories.

Its module `host_commands` has the commands that help where no plugin can be loaded.
"""

from __future__ import annotations

from functools import partial

from tavern_host import (
    CommandGroup,
    CommandInfo,
    CommandParameter,
    PluginContext,
    RouteInfo,
    ServiceInfo,
    hookimpl,
)

_API = "tavern_host.contracts.host_api"
_SETTINGS = "/api/plugins/{name}/settings"
_WEB = "tavern_operations.settings_routes"


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Return the service `metrics`."""
    return [ServiceInfo(service="metrics", handler="tavern_operations.metrics.service:HostMetrics")]


@hookimpl
async def tavern_startup(context: PluginContext) -> None:
    """Look for alarms, keep figures, and compare what is installed with advisories, in a host that serves."""
    if context.serving:
        from tavern_operations.advisories.regular import compare_regularly  # imports what only a server needs
        from tavern_operations.alarms.following import follow
        from tavern_operations.metrics.service import look_regularly

        context.tasks.spawn(follow(context), name="look for alarms in the audit log")
        context.tasks.spawn(look_regularly(context), name="look at the figures")
        context.tasks.spawn(compare_regularly(context), name="compare what is installed with advisories")


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """Return the commands `advisories` and `top`."""
    return [
        CommandInfo(
            name="advisories",
            help="Compare the packages of the host, of plugins and of scripts with a database of advisories (OSV).",
            handler="tavern_operations.advisories.commands:advisories",
            group=CommandGroup(section="operate"),
            parameters=[
                CommandParameter(name="--database", help="A file, folder or address, by default that of the settings.")
            ],
        ),
        CommandInfo(
            name="top",
            help="Show what the server of the project does, and what each plugin costs, until Ctrl-C.",
            examples=("tavern top --once",),
            handler="tavern_operations.metrics.top:top",
            group=CommandGroup(section="operate"),
            at_server=True,
            parameters=[
                CommandParameter(name="--every", type="number", default=2, help="Seconds between two looks."),
                CommandParameter(name="--once", type="flag", help="Look once."),
            ],
        ),
    ]


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    """Return the routes of permissions, of settings, of the audit log and of figures."""
    get = partial(RouteInfo, method="GET")
    return [
        get(
            path="/api/permissions",
            handler="tavern_operations.explaining:list_permissions",
            summary="Every permission that there is, and the plugins that ask for it.",
            answer="tavern_host.contracts.plugins:AskedPermission[]",
        ),
        get(
            path="/api/why/{subject}",
            handler="tavern_operations.explaining:explain",
            summary="Why a plugin, permission, service or hook is as it is.",
            answer="tavern_host.contracts.plugins:Explanation",
        ),
        get(
            path="/api/audit",
            handler="tavern_operations.audit_routes:show",
            summary="The newest entries of the audit log, oldest first.",
            query="tavern_operations.audit_routes:AuditQuery",
            answer="tavern_host.contracts.audit:AuditEntry[]",
            access="operate",
        ),
        get(
            path=_SETTINGS,
            handler=f"{_WEB}:show",
            summary="A plugin's settings in force by full key; secrets are masked, what is not set is null.",
            answer=f"{_API}:SettingValues",
        ),
        RouteInfo(
            method="POST",
            path=_SETTINGS,
            handler=f"{_WEB}:save",
            summary="Save the values in the body; keys are full, or without `extensions.{plugin}.`.",
            body=f"{_API}:SettingValues",
            answer=f"{_API}:SettingsSaved",
            access="operate",
        ),
        get(
            path="/api/config",
            handler=f"{_WEB}:config",
            summary="The options of all plugins that are not disabled, their values and where those come from.",
            answer=f"{_API}:ConfigOption[]",
        ),
        *_routes_of_figures(),
    ]


def _routes_of_figures() -> list[RouteInfo]:
    get = partial(RouteInfo, method="GET")
    return [
        get(
            path="/metrics",
            handler="tavern_operations.metrics.web:prometheus",
            summary="All figures, as Prometheus reads them.",
            content_type="text/plain",
        ),
        get(
            path="/api/figures",
            handler="tavern_operations.metrics.web:figures",
            summary="All figures.",
            answer="tavern_host.contracts.metrics:Figure[]",
        ),
        get(
            path="/api/figures/history",
            handler="tavern_operations.metrics.web:history",
            summary="What runs, memory, tokens and the work of plugins were lately, about one number a minute.",
            query="tavern_operations.metrics.web:HistoryQuery",
            answer="tavern_operations.api.metrics:FigureHistory",
        ),
    ]
