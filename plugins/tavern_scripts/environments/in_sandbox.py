"""Environments that are built in a sandbox of the host's, with the connections of their builds in the audit log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from pydantic import JsonValue

from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext, system_call
from tavern_scripts.api.scripts import SandboxLaunch, SandboxOutput, ScriptBackend, no_input
from tavern_scripts.environments.environments import Environments
from tavern_scripts.network.proxy_limits import Connection, ConnectionBudget

_CONNECTED, _KEPT_OUT = "script.connected", "script.kept-out"


def environments_in(
    context: PluginContext, folder: Path, backend: ScriptBackend, budget: ConnectionBudget, *, build_scripts: bool
) -> Environments:
    """Return the environments below a folder, built in a sandbox."""

    def run(launch: SandboxLaunch) -> AsyncIterator[SandboxOutput]:
        return backend.run(launch, no_input())

    def record(connection: Connection) -> None:
        record_connection(context, connection, "dependencies", system_call(context.project.id))

    return Environments(
        folder, run, record=record, build_scripts=build_scripts, budget=budget, upstream=context.http.proxy
    )


def record_connection(context: PluginContext, connection: Connection, subject: str, call: CallContext) -> None:
    """Write into the audit log what was connected to, or kept from it."""
    about: dict[str, JsonValue] = {
        "host": connection.host[:300],
        "port": connection.port,
        "address": connection.address,
        "reason": connection.reason[:300],
        "sent": connection.sent,
        "received": connection.received,
    }
    details = {key: value for key, value in about.items() if value not in (None, "")}
    action = _CONNECTED if connection.allowed else _KEPT_OUT
    context.audit.record(action, subject=subject[:200], details=details, call=call)
