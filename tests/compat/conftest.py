"""Finds the platform's documents and data; these tests skip, saying so, where they are absent. A bench carries their
examples out."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from example_bench import Bench, OpenBench

from tavern_host import Host


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
