"""Other Python libraries that call tools: the same call by langchain-core and by the MCP SDK, in this process.

Each is used as its documentation shows. Neither authorises or audits. Those that are not installed
(`pip install -e '.[bench]'`) are left out, and named.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from benchmarks.harness import Result, Side, compare_sides
from benchmarks.toolsubject import ARGUMENTS, answer, subject

Run = Callable[[], Awaitable[None]]


@asynccontextmanager
async def _langchain() -> AsyncIterator[Run]:
    from langchain_core.tools import StructuredTool

    tool = StructuredTool.from_function(coroutine=answer, name="answer", description="Gives back a text.")

    async def run() -> None:
        assert await tool.ainvoke(ARGUMENTS) == ARGUMENTS["text"]

    yield run


@asynccontextmanager
async def _mcp() -> AsyncIterator[Run]:
    from mcp import Client
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("bench")
    server.tool()(answer)
    async with Client(server) as client:

        async def run() -> None:
            result = await client.call_tool("answer", ARGUMENTS)
            assert not result.is_error, result
            assert result.content[0].text == ARGUMENTS["text"], result  # type: ignore[union-attr]

        yield run


PEERS = {"langchain-core": ("langchain_core", _langchain, 0.3), "mcp": ("mcp", _mcp, 0.1)}
"""By distribution: its module, how it is called, and the part of its time that a call here may take."""


def call() -> list[Result]:
    """Measure a call here and in the peer, and return the ratios of their costs."""
    return asyncio.run(_call())


async def _call() -> list[Result]:
    results = []
    async with subject() as bench:
        for distribution, (module, opened, limit) in PEERS.items():
            if importlib.util.find_spec(module) is None:
                print(f"{distribution} is not installed and left out", file=sys.stderr)
                continue
            name = f"{distribution} {importlib.metadata.version(distribution)}"
            async with opened() as run:
                results.append(
                    await compare_sides(f"call, to {name}", Side(bench.run), Side(run), floor_name=name, limit=limit)
                )
    return results


FIGURES: dict[str, Callable[[], list[Result]]] = {"call": call}
