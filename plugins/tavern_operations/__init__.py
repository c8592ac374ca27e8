"""What operators do with a host: the settings of plugins, the audit log, backups, migrations of databases.

Its module `host_commands` has the commands that help where no plugin can be loaded.
"""

from __future__ import annotations

from tavern_host import RouteInfo, hookimpl

_API = "tavern_host.contracts.host_api"
_SETTINGS = "/api/plugins/{name}/settings"
_WEB = "tavern_operations.settings_routes"


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    """Return the routes of permissions, of settings and of the audit log."""
    return [
        RouteInfo(
            method="GET",
            path="/api/permissions",
            handler="tavern_operations.explaining:list_permissions",
            summary="Every permission that there is, and the plugins that ask for it.",
            answer="tavern_host.contracts.plugins:AskedPermission[]",
        ),
        RouteInfo(
            method="GET",
            path="/api/why/{subject}",
            handler="tavern_operations.explaining:explain",
            summary="Why a plugin, permission, service or hook is as it is.",
            answer="tavern_host.contracts.plugins:Explanation",
        ),
        RouteInfo(
            method="GET",
            path="/api/audit",
            handler="tavern_operations.audit_routes:show",
            summary="The newest entries of the audit log, oldest first.",
            query="tavern_operations.audit_routes:AuditQuery",
            answer="tavern_host.contracts.audit:AuditEntry[]",
            access="operate",
        ),
        RouteInfo(
            method="GET",
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
        RouteInfo(
            method="GET",
            path="/api/config",
            handler=f"{_WEB}:config",
            summary="The options of all plugins that are not disabled, their values and where those come from.",
            answer=f"{_API}:ConfigOption[]",
        ),
    ]
