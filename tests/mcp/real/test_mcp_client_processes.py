"""MCP clients and servers in processes: calls that are cancelled there, and clients over standard streams."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from helpers.command_line import COMMAND
from helpers.mcp_desk import OFFER, SERVERS, make_project, odd
from helpers.repetition import Failures

from tavern_host import Host
from tavern_host.testing.http import served

pytest.importorskip("mcp", reason="needs the extra: pip install tavern-host[mcp]")
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from test_mcp_clients import ERAS, SETTINGS, YES, Person, check, over_http, text, told_of_other_tools


async def test_a_cancelled_request_ends_its_call(tmp_path: Path) -> None:
    folders = make_project(tmp_path, {SERVERS: {"odd": odd(sandbox=False)}, OFFER: ["mcp:odd/*"]})
    async with Host(tmp_path / "project", folders=folders) as host, served(host) as web:
        for mode in ERAS:
            person = Person(YES)
            ended = host.events.subscribe("TOOL_CALL_UPDATE")
            async with asyncio.timeout(60), over_http(web, mode, person) as client:
                calling = client.call_tool("mcp_odd_hang", {}, progress_callback=person.progress)
                hanging = asyncio.create_task(calling)
                await person.moved.wait()
                assert person.told == [(0.1, 1, "it hangs")]
                hanging.cancel()
                async for event in ended:
                    if event.payload["status"] == "error":
                        assert event.payload["error"]["type"] == "Interrupted"
                        break
                died = await client.call_tool("mcp_odd_die", {})
                assert died.is_error and "::cancelled" in text(died), mode
            await ended.close()


async def test_clients_over_standard_streams(tmp_path: Path) -> None:
    make_project(tmp_path, {})
    program, *arguments = COMMAND
    environment = {**os.environ, "TAVERN_SETTINGS": json.dumps(SETTINGS)}
    arguments += ["mcp", "serve", "--project", str(tmp_path / "project")]
    person = Person(YES)
    with Failures() as failures:
        server = StdioServerParameters(command=program, args=arguments, env=environment)
        async with Client(server, elicitation_callback=person.elicit) as client:
            await check(client, person, failures, "stdio")
            async with told_of_other_tools(client, person):
                (tmp_path / "project" / "tools" / "asked.tool.json").unlink()
            assert [tool.name for tool in (await client.list_tools()).tools] == ["text_loud"]
