"""Finds the platform's documents and data; these tests skip, saying so, where they are absent. A bench carries their
examples out."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from example_bench import Bench, OpenBench
from platform_documents import block
from script_plugin import write_script_plugin

from tavern_host import Host

ANALYZER = """
import json, sys
given = json.load(sys.stdin)
assert given == {"data_url": "http://example.com/data.csv", "threshold": 0.75}
print(json.dumps({"processed_items": 10, "report_url": "/reports/analyzer_123.html"}))
"""
ECHO = "import json, sys\nprint(json.dumps({'received_message': json.load(sys.stdin)['message']}))\n"
SLOW = "import time\ntime.sleep(60)\n"
BROKEN = "1 / 0\n"


@pytest.fixture
def spec_dir() -> Path:
    """Return the folder with `spec/` and `data/`: `TAVERN_SPEC_DIR`, else `../shared`."""
    folder = Path(os.environ.get("TAVERN_SPEC_DIR") or Path(__file__).parents[3] / "shared")
    if not (folder / "data").is_dir():
        pytest.skip(f"the platform's documents are not at {folder}; set TAVERN_SPEC_DIR")
    return folder


@pytest.fixture
def open_bench(tmp_path: Path) -> OpenBench:
    """Return a function that opens a host on a project, with these plugins granted what they ask for.

    What runs scripts is left out: here it is a stand-in or nothing, whether this machine has a sandbox or not.
    """

    @asynccontextmanager
    async def opened(*plugins: Path) -> AsyncIterator[Bench]:
        names = [plugin.name.replace("_", "-") for plugin in plugins]
        async with Host(tmp_path / "project", plugins=list(plugins), trust=names, without=["tavern-scripts"]) as host:
            assert {name: host.plugin(name).state for name in names} == dict.fromkeys(names, "started")
            yield Bench(host)

    return opened


@pytest.fixture
async def scripts(open_bench: OpenBench, spec_dir: Path, tmp_path: Path) -> AsyncIterator[Bench]:
    """Return a host with the tool of §2.2.3 and a service that runs scripts."""
    plugin = write_script_plugin(
        tmp_path,
        user_scripts__data_analysis__analyzer=ANALYZER,
        examples__echo=ECHO,
        examples__long_running=SLOW,
        broken=BROKEN,
    )
    async with open_bench(plugin) as bench:
        bench.write_tool("execute-python-script", block(spec_dir, "003", "2.2.3", 1))
        yield bench
