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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tavern_engine.journal.keys import ProjectKey
from tavern_engine.journal.run_store.store import SqliteRunStore
from tavern_host.contracts.calls import system_call
from tavern_host.contracts.executions import RunRequest, RunStatus
from tavern_host.contracts.runs import RunEnd, RunEntry

LOG = logging.getLogger("tavern.tests.runs")
DOCUMENT = b'{"nodes":[]}'
HERE = Path(__file__).parent
PLUGINS = HERE.parent.parent / "plugins"


@asynccontextmanager
async def opened(folder: Path, operator: Path | None = None) -> AsyncIterator[SqliteRunStore]:
    """Open a store with the key of the operator's that is in another folder, of its own unless told otherwise."""
    operator = operator or folder.with_name(f"{folder.name} of the operator")
    store = SqliteRunStore(folder, LOG, ProjectKey(operator))
    try:
        yield store
    finally:
        await store.close()


def entry(run_id: str, document: str, **more: Any) -> RunEntry:
    """Return a run; `inputs` and `priority` go into its request."""
    request = RunRequest(**{key: more.pop(key) for key in ("inputs", "priority", "metadata") if key in more})
    more.setdefault("submitted_at", datetime.now(UTC))
    return RunEntry(id=run_id, request=request, workflow=document, call=system_call(), **more)


async def accepted(
    store: SqliteRunStore, *run_ids: str, worker: str = "w", lease: float = 30, **more: Any
) -> list[RunEntry]:
    """Accept runs of one document."""
    document = await store.put(DOCUMENT)
    entries = [entry(run_id, document, **more) for run_id in run_ids]
    for each in entries:
        await store.accept(each, worker=worker, lease=lease)
    return entries


async def finished(store: SqliteRunStore, *run_ids: str, worker: str = "w", **more: Any) -> None:
    """Accept runs and let them end."""
    end = RunEnd(
        status=more.pop("status", RunStatus.COMPLETE), **{k: more.pop(k) for k in ("finished_at",) if k in more}
    )
    await accepted(store, *run_ids, worker=worker, **more)
    for run_id in run_ids:
        await store.update(worker, run_id, end)


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
            "from runs_bench import opened, entry, accepted, finished, LOG, DOCUMENT\n"
            "def say(value):\n"
            "    print(json.dumps(value), flush=True)\n"
            "async def main():\n"
            f"    async with opened(Path({str(folder)!r})) as store:\n{lines}\n"
            "asyncio.run(main())\n"
        )
        path = os.pathsep.join([str(HERE), str(PLUGINS), os.environ.get("PYTHONPATH", "")])
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
