"""Short ways to open a run store, make runs for it, and do things to it from other processes."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tavern_engine.journal.keys import ProjectKey
from tavern_engine.journal.run_store.store import SqliteRunStore

LOG = logging.getLogger("tavern.tests.runs")
HERE = Path(__file__).parent
PLUGINS = HERE.parent.parent / "plugins"

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
CODED = st.recursive(
    JSON | st.binary(max_size=40) | st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.replace(fold=0)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "$bytes", "$dict", ""]), inner),
    max_leaves=8,
)
"""Values that have a codec."""


@asynccontextmanager
async def opened(folder: Path, operator: Path | None = None) -> AsyncIterator[SqliteRunStore]:
    """Open a store with the key of the operator's that is in another folder, of its own unless told otherwise."""
    operator = operator or folder.with_name(f"{folder.name} of the operator")
    store = SqliteRunStore(folder, LOG, ProjectKey(operator))
    try:
        yield store
    finally:
        await store.close()


async def begin(code: str, **more: Any) -> asyncio.subprocess.Process:
    """Begin a Python process that can import the tests of this folder; what it prints can be read."""
    path = os.pathsep.join([str(HERE), str(HERE.parent), str(PLUGINS), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path}
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=pipe, env=env, **more)


class Child:
    """A Python process that has opened the store of a folder as `store`; `code` runs in an async function.

    It says what it has to say with `say(value)`, one line of JSON each.
    """

    def __init__(self, folder: Path, code: str) -> None:
        lines = "\n".join(f"        {line}" for line in code.strip().splitlines())
        program = (
            "import asyncio, json, os, sys\n"
            "from pathlib import Path\n"
            "from runs_bench import *\n"
            "from helpers.run_entries import accepted, entry, finished, DOCUMENT\n"
            "from runs_bench import opened, LOG\n"
            "def say(value):\n"
            "    print(json.dumps(value), flush=True)\n"
            "async def main():\n"
            f"    async with opened(Path({str(folder)!r})) as store:\n{lines}\n"
            "asyncio.run(main())\n"
        )
        path = os.pathsep.join([str(HERE), str(HERE.parent), str(PLUGINS), os.environ.get("PYTHONPATH", "")])
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )

    async def said(self) -> Any:
        """Return the next thing that it says; None where it has ended."""
        line = await asyncio.to_thread(self.process.stdout.readline)
        return json.loads(line) if line.endswith("\n") else None

    async def says_all(self) -> list[Any]:
        """Return what it says until it ends."""
        found = []
        while (value := await self.said()) is not None:
            found.append(value)
        self.process.wait()
        return found

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
