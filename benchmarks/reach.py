"""What reaching further costs: tools of MCP servers through the host, tools of the host at MCP clients, and
a shared database, and nodes on a cluster."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from benchmarks.clusternodes import dask
from benchmarks.harness import Result, compare_awaited
from benchmarks.sharedstores import postgres
from tavern_host import Host
from tavern_host.projects import Folders
from tavern_tools.api.toolcalls import ToolCallRequest
from tavern_tools.api.tools import TOOL_MANAGER

_SERVER = Path(__file__).with_name("mcpserver.py")
_LIMIT = 1.3


async def _inwards(place: Path) -> Result:
    """A tool of a server through the tool manager, the server in its sandbox, to the SDK's own client."""
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters

    server = {"command": sys.executable, "args": [str(_SERVER)], "read": [str(_SERVER)], "readOnly": ["*"]}
    folders = Folders(place / "config", place / "state", place / "data")
    folders.config.mkdir(parents=True)
    (folders.config / "host.yaml").write_text(
        json.dumps({"settings": {"extensions.tavern-mcp.servers": {"s": server}}})
    )
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(Host(place / "project", folders=folders))
        own = StdioServerParameters(command=sys.executable, args=[str(_SERVER)])
        client = await stack.enter_async_context(Client(own))
        tools, request = (
            host.services.get(TOOL_MANAGER),
            ToolCallRequest(tool_id="mcp:s/now", arguments={"zone": "UTC"}),
        )

        async def ours() -> None:
            result = await tools.call(request)
            assert result.status == "done", result.error

        async def theirs() -> None:
            assert not (await client.call_tool("now", {"zone": "UTC"})).is_error

        await ours()
        await theirs()
        what = "a tool of an MCP server, read-only by the operator's word, in the sandbox"
        return await compare_awaited(what, ours, theirs, floor_name="the SDK's client", limit=_LIMIT)


async def _outwards(place: Path) -> Result:
    """A tool of ours at the SDK's client, to a server of the SDK with the same function."""
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters

    places = {f"TAVERN_{kind}_DIR": str(place / kind.lower()) for kind in ("CONFIG", "STATE", "DATA")}
    offer = {"TAVERN_SETTINGS": json.dumps({"extensions.tavern-mcp.offer": ["system:get_current_time"]})}
    command = ["-m", "tavern_host.cli", "mcp", "serve", "--project", str(place / "project")]
    async with AsyncExitStack() as stack:
        serve = StdioServerParameters(command=sys.executable, args=command, env={**os.environ, **places, **offer})
        ours = await stack.enter_async_context(Client(serve))
        own = StdioServerParameters(command=sys.executable, args=[str(_SERVER)])
        theirs = await stack.enter_async_context(Client(own))

        async def of_ours() -> None:
            result = await ours.call_tool("system_get_current_time", {"timezone": "UTC"})
            assert not result.is_error, result.content

        async def of_theirs() -> None:
            assert not (await theirs.call_tool("now", {"zone": "UTC"})).is_error

        await of_ours()
        await of_theirs()
        what = "a tool of ours at an MCP client"
        return await compare_awaited(what, of_ours, of_theirs, floor_name="a server of the SDK", limit=_LIMIT)


def mcp() -> list[Result]:
    """Measure calls over MCP in both directions, and return their times."""
    results = []
    for measure in (_inwards, _outwards):
        with tempfile.TemporaryDirectory(prefix="tavern-reach-") as place:
            for name in ("project",):
                Path(place, name).mkdir()
                Path(place, name, "tavern.yaml").write_text("{}\n")
            results.append(asyncio.run(measure(Path(place))))
    return results


FIGURES: dict[str, Callable[[], list[Result]]] = {"mcp": mcp, "postgres": postgres, "dask": dask}
