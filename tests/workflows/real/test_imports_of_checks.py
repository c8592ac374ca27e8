"""What a check of a workflow needs is imported off the event loop."""

from __future__ import annotations

import subprocess
import sys

IMPORTS = """
import asyncio, sys, tempfile, threading
from tavern_host import Host, WORKFLOW_MANAGER

where = []
def hook(event, about):
    if event == "import" and about[0] == "networkx":
        where.append(threading.get_ident())
sys.addaudithook(hook)

async def main():
    ends = {"sourceHandle": "text", "targetHandle": "text"}
    nodes = [{"id": i, "type": "core:UpperCase"} for i in "ab"]
    edges = [{"id": "e", "source": "a", "target": "b", **ends}, {"id": "f", "source": "b", "target": "a", **ends}]
    async with Host(tempfile.mkdtemp()) as host:
        problems = await host.services.get(WORKFLOW_MANAGER).check({"nodes": nodes, "edges": edges})
    print(problems[0].message, len(where) > 0, threading.get_ident() in where)

asyncio.run(main())
"""


def test_a_cycle_imports_networkx_off_the_loop() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "these nodes wait for one another: a → b → a True False"
