"""Keeps what a host keeps in a PostgreSQL database, which several hosts can share: the service `sharedDatabases`; and
carries events between them.

Nothing is provided, and nothing imported, until the operator has named a database.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tavern_host import CommandGroup, CommandInfo, CommandParameter, PluginContext, ServiceInfo, hookimpl, service_info
from tavern_host.contracts.errors import Misconfigured
from tavern_host.storage.databases import SHARED_DATABASES

if TYPE_CHECKING:
    from tavern_postgres.sql_databases import PostgresDatabases


@dataclass
class State:
    """What the parts of this plugin share, once the service is used: the databases."""

    context: PluginContext
    databases: PostgresDatabases = field(init=False)


@hookimpl
async def tavern_startup(context: PluginContext) -> None:
    """Carry events between the hosts that share the database, where this one serves: from the first request on, unless
    the database does not answer. Raises `Misconfigured` without the driver: a host that serves does not start then,
    and keeps nothing elsewhere."""
    if context.serving and context.settings.get("url"):
        from tavern_postgres.database import NO_DRIVER, address

        if importlib.util.find_spec("psycopg") is None:
            raise Misconfigured(NO_DRIVER)
        from tavern_postgres.audit_copies import AuditCopies
        from tavern_postgres.shared_events import SharedEvents

        carrier = SharedEvents(context, *address(context))
        context.tasks.spawn(carrier.run(), name="carry events between hosts")
        context.tasks.spawn(AuditCopies(context).run(), name="copy the audit log")
        await carrier.begun()


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """Return the commands `storage move` and `storage audit`."""
    limit = CommandParameter(name="--limit", type="integer", default=50, help="At most so many.")
    return [
        CommandInfo(
            name="storage audit",
            help="Show what all hosts that share the database recorded in their audit logs, oldest first.",
            handler="tavern_postgres.audit_copies:show",
            group=CommandGroup(help="Keep what is stored in a PostgreSQL database.", section="operate"),
            parameters=[limit],
        ),
        CommandInfo(
            name="storage move",
            help="Copy what is in the project's files to the PostgreSQL database that is set up.",
            handler="tavern_postgres.moving:move",
        ),
    ]


@hookimpl
def tavern_register_services(context: PluginContext) -> list[ServiceInfo]:
    """Give the stores of runs, conversations and tasks their databases, if there is one."""
    handler = "tavern_postgres.sql_databases:ProjectDatabases"
    return [service_info(SHARED_DATABASES, handler)] if context.settings.get("url") else []
