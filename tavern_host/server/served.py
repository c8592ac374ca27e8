"""The projects that one server serves: a host for each, so that grants, settings, plugins, events and limits are apart.

A request says which one it means: in its path (`/api/projects/{projectId}/…`), its query or its JSON body
(`projectId`); `default` is the project that the server was started for, and means it where a request says nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from aiohttp import web

from tavern_host.contracts.accounts import Identity
from tavern_host.contracts.documents import read_json, read_model
from tavern_host.contracts.errors import Conflict, InvalidInput, NotFound
from tavern_host.contracts.events import Event
from tavern_host.contracts.names import did_you_mean
from tavern_host.host import Host
from tavern_host.projects import find_project
from tavern_host.runtime.installed import first_party_part
from tavern_host.server.bodies import body_of
from tavern_host.server.holder import Server, held
from tavern_host.server.routes import route

DEFAULT = "default"
MOST = 32
"""How many projects one server has open at a time; each is a host with its plugins."""
_POLL = 0.05


class ServedProjects:
    """The hosts of one server by the id of their project; they live as long as the server's application.

    `default` is a started host, which its maker stops; `make_host` makes one for another folder. What operators decide
    in other processes is followed for all of them, and `say` is given a line for each change of a plugin. As a
    `server`, it keeps others from serving the same projects; raises `Conflict` where one does.
    """

    def __init__(
        self,
        default: Host,
        make_host: Callable[[Path], Host] | None = None,
        *,
        say: Callable[[str], None] = lambda line: None,
        server: Server | None = None,
    ) -> None:
        self.default = default
        self._make_host = make_host or (self._of_folder)
        self._server = server
        self._token: Callable[[], str] = str
        self._held: dict[str, contextlib.ExitStack] = {}
        self._hold(default)
        self._hosts = {default.project.id: default}
        self._say = say
        self._following: dict[str, list[asyncio.Task[None]]] = {}
        self._changes = asyncio.Lock()
        self._waiting = asyncio.Event()
        self._stopped = threading.Event()
        self.is_draining = False
        """Whether new work is refused, since the server stops."""

    def _hold(self, host: Host) -> None:
        with contextlib.ExitStack() as stack:
            if self._server is not None:
                stack.enter_context(held(host.folders.project_state(host.project), self._server))
            self._held[host.project.id] = stack.pop_all()

    def keep_secret(self, token: Callable[[], str]) -> None:
        """Let no host show the operator's token, which is what `token` gives."""
        self._token = token
        for host in self.all():
            host.settings.operator_token = token

    def let_go(self) -> None:
        """Let other servers serve the projects."""
        for stack in self._held.values():
            stack.close()
        self._held.clear()

    def begin_draining(self) -> int:
        """Refuse new work from now on, and return how much is in flight."""
        self.is_draining = True
        return sum(host.begin_draining() for host in self.all())

    async def drained(self, seconds: float) -> None:
        """Wait until nothing is in flight, for some seconds at most, or until `stop_waiting`."""
        until = asyncio.get_running_loop().time() + seconds
        while any(host.in_flight() for host in self.all()) and asyncio.get_running_loop().time() < until:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL):
                    await self._waiting.wait()
                    return

    def stop_waiting(self) -> None:
        """Wait no longer for what is in flight."""
        self._waiting.set()

    def _of_folder(self, folder: Path) -> Host:
        return Host(folder, create=False, serving=True, folders=self.default.folders)

    def all(self) -> list[Host]:
        """Return the hosts, the default one first."""
        return list(self._hosts.values())

    def secrets(self) -> frozenset[str]:
        """Return the secrets of all projects: no answer and no message has them."""
        found = self.default.settings.secrets()
        for host in self._hosts.values():
            found = found if host is self.default else found | host.settings.secrets()
        return found

    def seen_by(self, who: Identity) -> list[Host]:
        """Return the hosts of the projects that somebody may enter."""
        return [host for host in self.all() if who.sees(host.project.id)]

    def get(self, project_id: str) -> Host:
        """Return the host of a project. Raises `NotFound`, also for one that the visitor may not enter."""
        if project_id == DEFAULT:
            return self.default
        hosts = {host.project.id: host for host in self.seen_by(visitor())}
        if project_id not in hosts:
            near = did_you_mean(project_id, [DEFAULT, *hosts])
            raise NotFound(f"this server has no project {project_id!r}{near}; GET /api/projects lists them")
        return hosts[project_id]

    async def open(self, folder: Path) -> Host:
        """Return the host of the project in a folder, started if it is not served yet.

        Raises `InvalidInput` for a folder that is no project, `InvalidFile` for a bad `tavern.yaml`, and `Conflict`
        where `MOST` are open.
        """
        async with self._changes:
            found = await asyncio.to_thread(find_project, folder, self.default.folders)
            if found.project.id in self._hosts:
                return self._hosts[found.project.id]
            if len(self._hosts) >= MOST:
                raise Conflict(f"{MOST} projects are open, and one server has no more; close one")
            host = self._make_host(folder)
            host.settings.operator_token = self._token
            self._hold(host)
            try:
                await host.__aenter__()
            except BaseException:
                self._held.pop(host.project.id).close()
                raise
            host.registrations.own_routes = self.default.registrations.own_routes
            self._hosts[host.project.id] = host
            self._follow(host)
            return host

    async def close(self, project_id: str) -> None:
        """Stop serving a project. Raises `NotFound`, and `Conflict` for the default one."""
        async with self._changes:
            host = self.get(project_id)
            if host is self.default:
                raise Conflict("the server was started for this project; stop the server to close it")
            del self._hosts[host.project.id]
            await self._stop(host)

    def _follow(self, host: Host) -> None:
        self._following[host.project.id] = [
            asyncio.create_task(host.watch_decisions(), name=f"follow decisions of {host.project.id}"),
            asyncio.create_task(self._report(host), name=f"report plugins of {host.project.id}"),
            asyncio.create_task(asyncio.to_thread(self._check, host)),
        ]

    def _check(self, host: Host) -> None:
        check_databases = first_party_part("database_check:check_databases")
        for folder in host.folders.kept(host.project):
            check_databases(folder, self._stopped)

    async def _report(self, host: Host) -> None:
        """Say each change of a plugin's state, once."""
        said: dict[str, str] = {}
        async for event in host.events.subscribe("PLUGINS_CHANGED"):
            name, state = (str(event.payload[key]) if isinstance(event, Event) else "" for key in ("name", "state"))
            problems = [str(problem) for plugin in host.plugins() if plugin.name == name for problem in plugin.problems]
            where = f"{host.project.name}: " if len(self._hosts) > 1 else ""
            line = "; ".join([f"{where}{name} is {state}", *problems])
            if name and (line != said.get(name) or not problems):
                self._say(line)
            said[name] = line

    async def _stop(self, host: Host) -> None:
        following = self._following.pop(host.project.id)
        for task in following:
            task.cancel()
        await asyncio.wait(following)
        if host is not self.default:
            await host.stop()
            self._held.pop(host.project.id).close()

    async def of_application(self, app: web.Application) -> AsyncIterator[None]:
        """Follow decisions while an application runs, and stop the hosts that were opened when it ends."""
        self._follow(self.default)
        yield
        self._stopped.set()
        async with self._changes:
            await asyncio.gather(*(self._stop(host) for host in self.all()), return_exceptions=True)


SERVED: web.AppKey[ServedProjects] = web.AppKey("served", ServedProjects)

HOST = web.RequestKey("host", Host)
"""Where a request has the host that it means, once that is known."""

VISITOR: ContextVar[Identity] = ContextVar("visitor")


def visitor() -> Identity:
    """Return who sent the request that is being answered."""
    return VISITOR.get()


def host_of(request: web.Request, in_body: str | None = None) -> Host:
    """Return the host that a request means. `in_body` is the `projectId` of its body, if it has one.

    Raises `NotFound` for a project that is not served, `InvalidInput` where the request names two.
    """
    said = (request.match_info.get("projectId"), request.query.get("projectId"), in_body)
    served, named = request.app[SERVED], [one for one in said if one is not None]
    hosts = {*map(served.get, named)} or {served.default}
    if len(hosts) > 1:
        raise InvalidInput(f"the request names two projects: {', '.join(named)}")
    request[HOST] = host = hosts.pop()
    return host


def take_project(body: bytes) -> tuple[str | None, bytes]:
    """Return the `projectId` of a body that is a JSON object, and the body without it; other bodies are as they were,
    for their route to judge."""
    try:
        value = read_json(body, "the body")
    except InvalidInput:
        return None, body
    named = project_of(value)
    if named is None:
        return None, body
    return named, json.dumps({key: item for key, item in value.items() if key != "projectId"}).encode()


def project_of(value: Any) -> str | None:
    """Return the `projectId` that a message or body has. Raises `InvalidInput` for one that is no text."""
    named = value.get("projectId") if isinstance(value, dict) else None
    if not isinstance(named, str | None):
        raise InvalidInput("projectId must be the id of a project, a text")
    return named


# --- routes ---------------------------------------------------------------------------------------


async def _list(request: web.Request) -> web.Response:
    """List the projects that this server serves, as far as one may enter them."""
    served = request.app[SERVED]
    return web.json_response([_shown(served, host) for host in served.seen_by(visitor())])


async def _show(request: web.Request) -> web.Response:
    """Show a project."""
    return web.json_response(_shown(request.app[SERVED], host_of(request)))


async def _open(request: web.Request) -> web.Response:
    """Serve one more project: `{"path": "/absolute/folder"}`."""
    from tavern_host.contracts.host_api import OpenProject

    path = read_model(OpenProject, read_json(await body_of(request), "the body"), "the body").path
    if not Path(path).is_absolute() or "\0" in path:
        raise InvalidInput('the body must be {"path": "…"} with the absolute path of a project\'s folder')
    host = await request.app[SERVED].open(Path(path))
    return web.json_response(_shown(request.app[SERVED], host))


async def _close(request: web.Request) -> web.Response:
    """Stop serving a project."""
    name = request.match_info["projectId"]
    await request.app[SERVED].close(name)
    return web.json_response({"success": True, "message": f"{name} is closed."})


def _shown(served: ServedProjects, host: Host) -> dict[str, Any]:
    project = host.project
    return {"id": project.id, "name": project.name, "path": str(project.root), "isDefault": host is served.default}


_API = "tavern_host.contracts.host_api"
_PROJECT = f"{_API}:ServedProject"

ROUTES = (
    route("GET", "/api/projects", _list, answer=f"{_PROJECT}[]"),
    route("POST", "/api/projects", _open, body=f"{_API}:OpenProject", answer=_PROJECT, access="operate"),
    route("GET", "/api/projects/{projectId}", _show, answer=_PROJECT),
    route("DELETE", "/api/projects/{projectId}", _close, answer=f"{_API}:Done", access="operate"),
)
