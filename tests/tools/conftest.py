"""A project to write tools into, and hosts on it."""

from __future__ import annotations

import json
import shutil
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from task_bench import TaskBench, opened

from tavern_host import Host
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.commands import CommandOutput
from tavern_host.contracts.http import HttpRequest, HttpResponse
from tavern_host.contracts.tools import ToolDefinition
from tavern_host.projects import Folders
from tavern_tools.api.toolcalls import ToolCallRequest, ToolResult
from tavern_tools.api.tools import TOOL_MANAGER, ToolManager

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

PLUGINS = Path(__file__).parent / "plugins"


class Said:
    """What a command said."""

    def __init__(self, outputs: list[CommandOutput]) -> None:
        self.lines = [output.text for output in outputs if output.kind in ("text", "message", "progress", "failure")]
        self.text = "\n".join(output.text for output in outputs if output.kind in ("text", "message"))
        self.rows = [row for output in outputs if output.kind == "table" for row in output.rows]
        self.data: Any = next((output.data for output in outputs if output.kind == "result"), None)
        self.exit_code = max((output.exit_code or 1 for output in outputs if output.kind == "failure"), default=0)


class Bench:
    """A running host with its tool manager, and a project to write into."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.root = host.project.root
        self.tools: ToolManager = host.services.get(TOOL_MANAGER)

    def write_tool(self, tool_id: str, implementation: dict[str, Any], **more: Any) -> Path:
        path = self.root / "tools" / f"{tool_id.replace(':', '-')}.tool.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"id": tool_id, "implementation": implementation, **more}), "utf-8")
        return path

    def write_info(self, tool_id: str, **more: Any) -> Path:
        """Write a tool that tells what the host knows of a plugin."""
        parameters = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        method = {"type": "service", "service": "plugins", "method": "get"}
        return self.write_tool(tool_id, **{"implementation": method, "parameters": parameters, **more})

    def write_workflow(self, workflow_id: str, **document: Any) -> Path:
        path = self.root / "workflows" / f"{workflow_id}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"nodes": [], "edges": [], **document}), "utf-8")
        return path

    async def listed(self) -> list[ToolDefinition]:
        """Return the tools of the project and of the test plugins, without those that the host ships."""
        tools = await self.tools.list_tools()
        return [tool for tool in tools if tool.plugin is None or tool.plugin.startswith("acme-")]

    async def ids(self) -> list[str]:
        return [tool.id for tool in await self.listed()]

    async def call(self, tool_id: str, **arguments: Any) -> ToolResult:
        return await self.tools.call(ToolCallRequest(tool_id=tool_id, arguments=arguments))

    async def ask(
        self, method: str, path: str, body: Any = None, *, call: CallContext | None = None, **query: str
    ) -> HttpResponse:
        """Return the answer of a route; a body that is no bytes is sent as JSON."""
        route, parameters, _ = self.host.registrations.find(method, path)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        called_by = call or self.host.call()
        request = HttpRequest(
            method=method, path=path, parameters=parameters, query=query, body=content, call=called_by
        )
        response = await route.call(request)
        assert isinstance(response, HttpResponse) and response.status == 200
        return response

    async def run(self, name: str, **arguments: Any) -> Said:
        """Return the outputs of a command."""
        command = self.host.registrations.commands[name]
        known = {p.name.lstrip("-"): [] if p.multiple else p.default for p in command.info.parameters}
        return Said([output async for output in command.call(known | arguments)])

    async def clear(self) -> None:
        """Take all that a test wrote out of the project, for the next test."""
        for folder in ("tools", "workflows", "files"):
            shutil.rmtree(self.root / folder, ignore_errors=True)
        await self.tools.list_tools()


@asynccontextmanager
async def _opened(
    root: Path, *plugins: str, trusted: bool = True, folders: Folders | None = None
) -> AsyncIterator[Bench]:
    """Open a host on a project with these test plugins, trusted or not.

    Scripts cannot be run in it: what becomes of a tool whose service is absent is shown here.
    """
    root.mkdir(exist_ok=True)
    trust = [name.replace("_", "-") for name in plugins if trusted]
    paths, without = [PLUGINS / p for p in plugins], ["tavern-scripts"]
    async with Host(root, plugins=paths, trust=trust, without=without, folders=folders) as host:
        assert {name: host.plugin(name).state for name in trust} == dict.fromkeys(trust, "started")
        yield Bench(host)


@pytest.fixture
def open_host(tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[Bench]]:
    """Return a function that opens a host of the test's own with these test plugins, trusted or not."""
    return lambda *plugins, trusted=True: _opened(tmp_path / "project", *plugins, trusted=trusted)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_hosts(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Callable[..., Awaitable[Bench]]]:
    """Return a function that gives the module's host with these test plugins."""
    benches: dict[tuple[str, ...], Bench] = {}
    async with AsyncExitStack() as stack:

        async def of(*plugins: str) -> Bench:
            if plugins not in benches:
                place = tmp_path_factory.mktemp("shared")
                folders = Folders(place / "config", place / "state", place / "data")
                opened = _opened(place / "project", *plugins, folders=folders)
                benches[plugins] = await stack.enter_async_context(opened)
            return benches[plugins]

        yield of


def _shared(*plugins: str) -> Any:
    """Return a fixture: the module's host with these test plugins, on a project that is empty when a test begins."""

    @pytest_asyncio.fixture(loop_scope="module")
    async def bench(shared_hosts: Callable[..., Awaitable[Bench]]) -> AsyncIterator[Bench]:
        made = await shared_hosts(*plugins)
        yield made
        await made.clear()

    return bench


bench = _shared()
stocked = _shared("acme_tools")
guarded = _shared("acme_guard")
odd = _shared("acme_odd")
desk = _shared("acme_desk")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def task_host(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TaskBench]:
    """Return the module's host with tasks, which all its tests share."""
    place = tmp_path_factory.mktemp("tasks")
    async with opened(place / "p", folders=Folders(place / "config", place / "state", place / "data")) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def tasks(task_host: TaskBench, request: pytest.FixtureRequest) -> TaskBench:
    """Return the module's host with tasks, whose calls write into a log of the test's own."""
    return task_host.with_own_log(f"log-{request.node.name}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run a test in the loop of its module's hosts."""
    for item in items:
        if {"shared_hosts", "task_host"} & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)
