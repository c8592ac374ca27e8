"""A project with a healthy plugin, a workflow and a tool, into which tests put broken plugins."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from helpers.plugin_files import write, write_distribution, write_whole
from helpers.workflow_documents import function

from tavern_host import EXECUTION_ENGINE, NODE_MANAGER, TOOL_MANAGER, Host
from tavern_host.contracts.executions import Run, RunRequest
from tavern_host.contracts.plugins import PluginState
from tavern_tools.api.toolcalls import ToolCallRequest, ToolResult

HERE = "# <- here"
"""Marks the line of a file that the host must name."""

TELLS = (
    "import os, pathlib; 'TAVERN_IMPORTED' in os.environ and "
    "pathlib.Path(os.environ['TAVERN_IMPORTED'], __name__).touch()\n"
)
"""The first line of every plugin: it leaves a file with its name where somebody wants to know of imports."""

HEAD = f"{TELLS}import asyncio, sys\nfrom tavern_host import *\n"

HEALTHY = f"""{HEAD}
@hookimpl
def tavern_register_routes():
    return [RouteInfo(method="GET", path="/api/x/healthy/ping", handler=f"{{__name__}}:ping")]

async def ping(request, context):
    return HttpResponse(data="pong")
"""
HEALTHY_NODES = f"""{TELLS}
from tavern_host import node

@node()
def greet(name: str) -> str:
    return f"Hello, {{name}}"
"""


def toast(node_type: str = "healthy:Greet") -> dict[str, Any]:
    """Return a workflow that hands its input `name` to a node and what comes of it, in upper case, out."""
    nodes = {"node": node_type, "up": "core:UpperCase"}
    edges = ("in.name > node.name", "node.result > up.text", "up.text > out.said")
    return function("Toast", nodes, *edges, takes={"name": "STRING"}, gives={"said": "STRING"})


class BaseProject:
    """The project at `root`, installed packages at `site`, and what is being written elsewhere (`dev`)."""

    def __init__(self, folder: Path) -> None:
        self.elsewhere = folder / "elsewhere"
        self.root = folder / "inn"
        self.site = folder / "site"
        self.dev: list[Path] = []
        self.roots: dict[str, Path] = {}
        for made in (self.elsewhere, self.root / "workflows", self.root / "plugins", self.site):
            made.mkdir(parents=True)
        (self.root / "tavern.yaml").write_text("name: inn\n")
        (self.root / "workflows" / "toast.json").write_text(json.dumps(toast()))
        tool = {"id": "healthy:greet", "implementation": {"type": "node", "nodeType": "healthy:Greet"}}
        files = {"nodes/__init__.py": HEALTHY_NODES, "tools/greet.tool.json": json.dumps(tool)}
        parts: dict[str, Any] = {"nodes": {"entry": "./nodes"}, "tools": {"entry": "./tools"}}
        self.code("healthy", HEALTHY, hooked=["tavern_register_routes"], files=files, **parts)

    # --- how plugins are written --------------------------------------------------------------------

    def folder(
        self, name: str, manifest: str | bytes | None, files: Mapping[str, str] | None = None, *, at: Path | None = None
    ) -> Path:
        """Write a plugin folder with a manifest as it is (None: without one); in the project, where not told.

        What lies `elsewhere` is being written, and loaded with `--dev`.
        """
        root = self._place(name, at)
        root.mkdir(parents=True)
        if manifest is not None:
            text = manifest if isinstance(manifest, bytes) else manifest.encode()
            (root / "plugin.yaml").write_bytes(text)
        for path, content in (files or {}).items():
            write(root / path, content)
        return root

    def _place(self, name: str, at: Path | None) -> Path:
        root = self.roots[name] = at or self.root / "plugins" / name
        if root.parent == self.elsewhere:
            self.dev.append(root)
        return root

    def code(
        self,
        name: str,
        code: str | None = None,
        /,
        *,
        hooked: Iterable[str] = (),
        files: Mapping[str, str] | None = None,
        at: Path | None = None,
        **manifest: Any,
    ) -> Path:
        """Write a plugin whose manifest is right: `hooked` are hooks that it declares, `manifest` further keys."""
        written = {} if code is None else {"__init__.py": code}
        return write_whole(self._place(name, at), name, {**written, **(files or {})}, hooked, **manifest)

    def installed(self, name: str, code: str, /, **manifest: Any) -> None:
        """Write what `pip install` would: a package and a distribution with its entry point."""
        package = f"{name.replace('-', '_')}_pack"
        self.code(name, code, at=self.site / package, **manifest)
        write_distribution(self.site, name, package)

    # --- how the host is used -----------------------------------------------------------------------

    def host(self) -> Host:
        """Return a host on the project."""
        return Host(self.root, dev=self.dev)

    async def reviewed(self, but: Iterable[str] = ()) -> Host:
        """Return a host, not started yet, after the operator granted every plugin what it asks for."""
        host = self.host()
        for plugin in host.link():
            if plugin.state is PluginState.NEEDS_REVIEW and plugin.name not in but:
                await host.grant(plugin.name)
        return host


async def run(host: Host, node_type: str = "healthy:Greet", **metadata: Any) -> Run:
    """Run the stored workflow, or one like it with another node in the middle."""
    request = RunRequest(workflow_id="toast", inputs={"name": "Ada"}, metadata=metadata)
    if node_type != "healthy:Greet":
        request = RunRequest.model_validate({"workflow": toast(node_type), "inputs": {"name": "Ada"}})
    return await host.services.get(EXECUTION_ENGINE).run(request)


async def call(host: Host, tool_id: str = "healthy:greet", **arguments: Any) -> ToolResult:
    """Call a tool."""
    return await host.services.get(TOOL_MANAGER).call(ToolCallRequest(tool_id=tool_id, arguments=arguments))


async def everything_else_works(host: Host, broken: Iterable[str]) -> None:
    """Fail where anything but the broken plugins is not as it would be without them."""
    others = [p for p in host.plugins() if p.name not in set(broken) or p.first_party]
    wrong = {p.name: (p.state, p.problems) for p in others if p.state is not PluginState.STARTED or p.problems}
    assert wrong == {}, wrong
    assert "healthy" in {p.name for p in others}
    done = await run(host)
    assert (done.status, done.outputs) == ("complete", {"said": "HELLO, ADA"})
    nodes = [node.full_type for node in await host.services.get(NODE_MANAGER).list_nodes()]
    assert {"healthy:Greet", "core:UpperCase"} <= set(nodes)
    tools = await host.services.get(TOOL_MANAGER).list_tools()
    assert {"healthy:greet", "workflow:toast"} <= {tool.id for tool in tools}
    assert (await call(host, name="Ada")).structured == "Hello, Ada"
