"""What a journal in PostgreSQL costs beside one in SQLite, both on this disk and both written through to it."""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
from pathlib import Path

from benchmarks.enginegraphs import layers
from benchmarks.enginesubject import RunLog, Subject
from benchmarks.harness import Result, Side, compare_sides
from tavern_engine.journal.run_store.schema import RUNS
from tavern_host.storage.databases import SharedDatabase, SqlDatabase
from tests.helpers.postgres import postgres_server, programs

_LIMIT = 1.5


async def _journals(url: str, folder: Path) -> Result:
    from tavern_postgres.sql_databases import PostgresDatabases

    graph = layers(depth=100, width=20)
    databases = PostgresDatabases(url, "tavern", logging.getLogger("benchmark"))
    runs = SqlDatabase(name="runs", file="", migrations=[[*statements] for statements in RUNS.migrations])
    shared = RunLog(folder / "shared", SharedDatabase(databases, runs))
    files = RunLog(folder / "files")
    try:
        sides = []
        for journal in (shared, files):
            subject = Subject(graph.workflow(), journal=journal)
            ran = await subject.run()
            assert await journal.rows(ran.run_id) == len(graph)
            sides.append(Side(subject.run, 1, subject.forget))
        what = f"a run of {len(graph)} nodes, journalled to PostgreSQL"
        return await compare_sides(what, *sides, floor_name="journalled to SQLite", limit=_LIMIT)
    finally:
        await shared.close()
        await files.close()
        await databases.close()


def postgres() -> list[Result]:
    """Measure a run whose journal is in PostgreSQL; the list is empty where there is no server to start."""
    if programs() is None:
        print("PostgreSQL is not installed, so its journal is not measured", file=sys.stderr)
        return []
    with postgres_server(durable=True) as url, tempfile.TemporaryDirectory() as folder:
        return [asyncio.run(_journals(url, Path(folder)))]
