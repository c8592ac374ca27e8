"""What no design within one process holds, where it shows in a process of its own; see `test_escapes_open`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from escape_scene import acme_plugin

ENDS = """
import os
from tavern_host import hookimpl

@hookimpl
async def tavern_startup():
    os._exit(7)
"""

RUNS = """
import asyncio, sys
from pathlib import Path
from tavern_host import Host

async def main():
    async with Host(Path(sys.argv[1]), plugins=[Path(sys.argv[2])], trust=["acme"]):
        print("it runs")

asyncio.run(main())
"""


def test_a_plugin_can_end_the_process(tmp_path: Path) -> None:
    """`os._exit` ends the process at once, without a shutdown."""
    folder = acme_plugin(tmp_path, code=ENDS)
    command = [sys.executable, "-c", RUNS, str(tmp_path / "project"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (7, "")
