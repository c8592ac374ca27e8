"""The host that the tests of MCP share within a file."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from helpers.mcp_desk import OFFER, SERVER, SERVERS, Desk, make_project, odd
from helpers.waiting import until

from tavern_host import Host


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    """Return the module's host. The server `odd` runs in the sandbox, and may write to one folder."""
    place = tmp_path_factory.mktemp("mcp")
    shared = place / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (place / "secret").write_text("secret")
    server = odd(
        args=[str(SERVER), str(place / "secret"), str(SERVER)],
        write=[str(shared)],
        env={"GREETING": "hi"},
        resources="knowledge",
    )
    replies = {"m": {"adapter": "scripted", "file": "replies.json"}}
    old = odd(args=[str(SERVER), "--legacy"], sandbox=False)
    settings = {
        SERVERS: {"odd": server, "old": old, "gone": {"command": "no-such-program"}},
        OFFER: ["text:*", "workflow:*"],
    }
    folders = make_project(place, settings, {"extensions.tavern-llm.models": replies})
    (place / "project" / "replies.json").write_text(json.dumps([{"reply": "Hi from the model."}]))
    async with Host(place / "project", folders=folders) as host:
        desk = Desk(host)

        async def are_there() -> bool:
            return {"mcp:odd/echo", "mcp:old/echo"} <= {tool.id for tool in await desk.tools.list_tools()}

        await until(are_there, "the tools of the servers")
        yield desk
