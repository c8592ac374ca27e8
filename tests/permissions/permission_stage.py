"""Puts the plugin `acme` on: an installed package (or a folder) with a manifest, in a host that has everything that a
permission may be tried on. What the plugin is called for, it writes into `CALLS`."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from helpers.plugin_files import write_distribution, write_whole
from helpers.tavern_project import Tavern, action

from tavern_engine.api.runs import RunEntry
from tavern_host import Host, PluginContext, ServiceKey
from tavern_host.contracts.errors import NotFound, PermissionDenied
from tavern_host.contracts.plugins import PluginInfo
from tavern_host.testing.http import served

NAME = "acme"
PACKAGE = "acme_of_the_table"
FOLDER_PACKAGE = "tavern_plugins.acme"

HEADER = """
from tavern_host import hookimpl

CALLS = []
CONTEXTS = []

"""

OTHER = {"hooks": ["hook:client:node:render:after"]}
"""What the plugin `other` asks for, which may be granted and revoked by who may do that."""

PUBLISHED = '''
from tavern_host import CallContext, PluginContext, ServiceInterface, acts, hookspec, reads

class Box(ServiceInterface, name="pub.box"):
    """A box."""

    @reads
    async def peek(self) -> str:
        """Look into the box."""

    @acts("pub.box:open", "Open the box.")
    async def open(self, key: str, *, call: CallContext | None = None) -> str:
        """Open the box."""

    @acts("pub.box:knock", "Knock at the box.", level="add")
    async def knock(self, *, call: CallContext | None = None) -> str:
        """Knock."""

@hookspec(permission="hook:plugin:pub:opened", level="intercept", policy="collect", description="Hear of every key.")
def pub_opened(key: str, context: PluginContext) -> None:
    """Called when the box is opened."""
'''

PUBLISHER = """
from tavern_host import ServiceInfo, hookimpl
from tavern_host.storage.databases import SqlResult

class MyBox:
    def __init__(self, context):
        self.hooks = context.hooks

    async def peek(self):
        return "dark"

    async def open(self, key, *, call=None):
        await self.hooks.collect("pub_opened", key=key)
        return "open"

    async def knock(self, *, call=None):
        return "who is there?"

class NoDatabases:
    async def begin(self, database, *, writes, call=None): return "x"
    async def execute(self, transaction, statement, values, *, call=None): return SqlResult(rows=[], count=0)
    async def end(self, transaction, *, commit, call=None): pass
    async def hold(self, name, *, call=None): pass
    async def is_gone(self, name, *, call=None): return True
    async def release(self, names, *, call=None): pass
    async def is_back(self, seconds): return False
    async def announce(self, event, payload, *, call=None): pass

class NoCluster:
    async def takes(self): return "none"
    async def run(self, group, *, call=None): yield []
    async def release(self, pass_id, *, call=None): pass

@hookimpl
def tavern_register_services(context):
    others = {"pub.box": "MyBox", "nodeCluster": "NoCluster", "sharedDatabases": "NoDatabases"}
    if context.services.has("toolManager"):  # whose tasks would be in the databases
        del others["sharedDatabases"]
    return [ServiceInfo(service=service, handler=f"{__name__}:{name}") for service, name in others.items()]
"""
PUBLISHES = {
    "services": [
        {
            "name": "pub.box",
            "interface": "api:Box",
            "permissions": [
                {"name": "pub.box:open", "allows": "Open the box."},
                {"name": "pub.box:knock", "level": "add", "allows": "Knock at the box."},
            ],
        }
    ],
    "hooks": [{"spec": "api:pub_opened", "permission": "hook:plugin:pub:opened", "allows": "Hear of every key."}],
}


class Stage:
    """Where one plugin is tried. `without` are plugins that the host leaves out, `kept` is the run that is kept."""

    def __init__(self, root: Path, *, is_folder: bool, without: Iterable[str] = ()) -> None:
        self.root = root
        self.package = FOLDER_PACKAGE if is_folder else PACKAGE
        self.host: Host
        self.kept: RunEntry
        self._is_folder = is_folder
        self._without = tuple(without)
        self._module: ModuleType | None = None
        self._views: dict[str, Any] = {}
        tavern = Tavern(root / "project")
        call = action("shout", text="hush")
        tavern.replies(({"last_contains": ["tool please"]}, call), ({}, "Good evening."))
        files = {"__init__.py": PUBLISHER, "api.py": PUBLISHED}
        self._folders = [
            write_whole(root / "other", "other", None, permissions=OTHER),
            write_whole(root / "pub", "pub", files, ["tavern_register_services"], publishes=PUBLISHES),
        ]
        self.path = root / "site" / PACKAGE
        if is_folder:
            self.path = root / NAME
            self._folders.append(self.path)

    def write(self, code: str | None, *asked: dict[str, Any], **manifest: Any) -> None:
        """Write a version of the plugin that asks for all of this, in the place of the one before."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.forget()
        permissions: dict[str, Any] = {}
        for one in asked:
            permissions = merged(permissions, one)
        write_whole(self.path, NAME, None if code is None else HEADER + code, permissions=permissions, **manifest)
        if not self._is_folder:
            write_distribution(self.path.parent, NAME, PACKAGE, NAME)
        importlib.invalidate_caches()

    async def grant_version_1(self, *asked: dict[str, Any]) -> None:
        """Let the operator grant a first version, without code of its own, all of this."""
        self.write("", *asked, version="1.0.0")
        host = self.new_host()
        host.link()
        await host.grant(NAME)
        assert self.info.version == "1.0.0"
        await host.stop()

    def new_host(self, *, trusted: bool = False) -> Host:
        """Make a host; with `construct` the plugin needs no grant."""
        self._module, self._views = None, {}
        trust = ["pub", *([NAME] if trusted else [])]
        self.host = Host(self.root / "project", plugins=self._folders, trust=trust, without=self._without)
        return self.host

    def forget(self) -> None:
        """Forget the plugin's modules, as a new process would."""
        for name in [n for n in list(sys.modules) if n == self.package or n.startswith(f"{self.package}.")]:
            del sys.modules[name]

    def get(self, key: ServiceKey[Any]) -> Any:
        """Return the operator's view of a service."""
        return self.host.services.get(key)

    @property
    def is_imported(self) -> bool:
        """Whether the plugin's code was run."""
        return self.package in sys.modules

    @property
    def module(self) -> ModuleType | None:
        """The plugin's module, the last one that there was."""
        self._module = sys.modules.get(self.package, self._module)
        return self._module

    @property
    def calls(self) -> list[str]:
        """What the plugin was called for."""
        calls: list[str] = getattr(self.module, "CALLS", [])
        return calls

    @property
    def context(self) -> PluginContext:
        """The plugin's context, kept by the plugin. Raises `PermissionDenied` where it never got one."""
        if not getattr(self.module, "CONTEXTS", None):
            raise PermissionDenied("the plugin was never loaded")
        context: PluginContext = self.module.CONTEXTS[-1]  # type: ignore[union-attr]
        return context

    def view(self, service: str) -> Any:
        """Return the plugin's view of a service, the one that it kept where it had one."""
        if service not in self._views:
            self._views[service] = self.context.services.get(service)
        return self._views[service]

    @property
    def info(self) -> PluginInfo:
        """What the host knows of the plugin."""
        return self.host.plugin(NAME)

    @property
    def state(self) -> str:
        """How far the plugin came."""
        return self.info.state.value

    @property
    def problems(self) -> str:
        """What a person reads about what is wrong with the plugin."""
        return "\n".join(str(problem) for problem in self.info.problems)

    async def told(self) -> dict[str, Any]:
        """Return the plugin as pages receive it from the real server. Raises `NotFound`."""
        async with served(self.host) as site:
            plugins = await (await site.get("/api/plugins")).json()
        found: dict[str, Any] | None = next((plugin for plugin in plugins if plugin["name"] == NAME), None)
        if found is None:
            raise NotFound("pages are not told of the plugin")
        return found


def merged(one: Any, other: Any) -> Any:
    """Return two sets of permissions, as they stand in a manifest, as one."""
    if isinstance(one, dict):
        return {key: merged(one.get(key, type(value)()), value) for key, value in {**one, **other}.items()} | {
            key: value for key, value in one.items() if key not in other
        }
    return [*one, *other]
