"""A start imports none of what the host's own plugins need only where they are used."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LATER = (
    "tavern_engine.engine",
    "tavern_tools.manager",
    "tavern_scripts.service",
    "tavern_workflows.manager",
    "tavern_nodes.nodes",
)
LOOK = """
import asyncio, json, sys
from tavern_host import Host
from tavern_tools.api.toolcalls import ToolCallRequest
from tavern_tools.api.tools import TOOL_MANAGER

later = json.loads(sys.argv[2])

async def main():
    async with Host(sys.argv[1]) as host:
        before = [name for name in later if name in sys.modules]
        result = await host.services.get(TOOL_MANAGER).call(ToolCallRequest(tool_id="system:get_current_time"))
        after = [name for name in later if name in sys.modules]
    print(json.dumps([before, result.status, after]))

asyncio.run(main())
"""


def test_starting_imports_only_what_is_used(project: Path) -> None:
    argv = [sys.executable, "-c", LOOK, str(project), json.dumps(LATER)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=100)
    before, status, after = json.loads(done.stdout)
    assert (before, status) == ([], "done")
    assert "tavern_tools.manager" in after
    assert "tavern_scripts.service" not in after
