"""Whether the server is alive and ready, for whoever watches it: without the token, and without secrets."""

from __future__ import annotations

import os
import shutil

from aiohttp import web

from tavern_host.contracts.plugins import PluginState
from tavern_host.host import Host
from tavern_host.server.routes import route
from tavern_host.server.served import SERVED
from tavern_host.storage.damage import is_kept, moved_aside

_RUNS = frozenset({PluginState.STARTED, PluginState.DISABLED})
_HEALTH = "tavern_host.contracts.host_api:Health"


async def _healthz(request: web.Request) -> web.Response:
    """Say that the server answers."""
    return web.json_response({"status": "ok"})


async def _readyz(request: web.Request) -> web.Response:
    """Say whether the server takes work: 503 with the reasons where it stops, or something of its own is broken."""
    served = request.app[SERVED]
    problems = ["the server stops"] if served.is_draining else []
    for host in served.all():
        problems += _problems(host)
    warnings = [f"{host.project.name}: {line}" for host in served.all() for line in _warnings(host)]
    body = {"status": "not ready" if problems else "ready", "problems": problems} | (
        {"warnings": warnings} if warnings else {}
    )
    return web.json_response(body, status=503 if problems else 200)


def _problems(host: Host) -> list[str]:
    """Return the problems of a host, without those that only its operator may know."""
    broken = [p for p in host.plugins() if p.first_party and p.state not in _RUNS]
    found = [f"{host.project.name}: the plugin {plugin.name} is {plugin.state.value}" for plugin in broken]
    if host.audit.problem is not None:
        found.append(f"{host.project.name}: the audit log cannot be written")
    state = host.folders.project_state(host.project)
    for name, folder in (("project", host.project.private), ("operator", state)):
        if folder.exists() and not os.access(folder, os.W_OK | os.X_OK):
            found.append(f"{host.project.name}: the {name}'s folder cannot be written")
        elif folder.exists() and not shutil.disk_usage(folder).free:
            found.append(f"{host.project.name}: the disk with the {name}'s folder is full")
    return found


def _warnings(host: Host) -> list[str]:
    """Return which databases were damaged, and replaced, until the operator takes the damaged files away."""
    kept = host.folders.kept(host.project)
    found = [path for path in moved_aside if any(map(path.is_relative_to, kept)) and is_kept(path)]
    return [f"a database was damaged, and is kept as {path.name}; the log says more" for path in found]


ROUTES = (
    route("GET", "/healthz", _healthz, answer=_HEALTH, access="public"),
    route("GET", "/readyz", _readyz, answer=_HEALTH, access="public"),
)
