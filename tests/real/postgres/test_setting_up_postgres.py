"""What an operator meets who sets up a PostgreSQL database."""

from __future__ import annotations

import json
import logging
import secrets
import sys
from pathlib import Path

import pytest
import yaml
from helpers.postgres import shared_server

import tavern_postgres
from benchmarks.faultchild import Place, graph_of
from tavern_engine.api.runs import RUNS_CHANGED
from tavern_host import EXECUTION_ENGINE
from tavern_host.contracts.errors import Misconfigured, ServiceUnavailable
from tavern_host.contracts.executions import RunRequest
from tavern_postgres.database import Connection
from tavern_postgres.shared_events import TYPES

PROBLEM = "its driver is missing: pip install 'tavern-host\\[postgres\\]'"


async def test_without_the_driver_nothing_is_kept_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path)
    place.fill()
    monkeypatch.setenv("TAVERN_SETTINGS", json.dumps({"extensions.tavern-postgres.url": "postgresql:///none"}))
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(Misconfigured, match=PROBLEM):
        await place.host(serving=True).__aenter__()
    async with place.host(serving=False) as host:
        with pytest.raises(Misconfigured, match=PROBLEM):
            await host.services.get(EXECUTION_ENGINE).submit(RunRequest(workflow=graph_of(1).workflow()))


async def test_what_keeps_a_database_from_being_used_is_said_in_a_line() -> None:
    schema = f"setup_{secrets.token_hex(8)}"
    user, taken = f"stranger_{schema}", f"taken_{schema}"
    url, log = shared_server(), logging.getLogger("test")
    owner = Connection(url, schema, log, name="test")
    for statement in (f"CREATE ROLE {user} LOGIN", f"CREATE SCHEMA {taken}", f"CREATE TABLE {taken}.versions (v text)"):
        await owner.rows(statement)
    await owner.close()
    example = "no address of a database, such as postgresql://tavern@db.example/tavern: "
    rows = [
        ("mysql://x/y", schema, Misconfigured, example),
        (
            url.replace("/pg-", "/none-"),
            schema,
            ServiceUnavailable,
            "cannot be reached: .* No such file or directory Is ",
        ),
        (
            url.replace("tavern@", f"{user}@"),
            schema,
            Misconfigured,
            f"the role in .*url may not use the schema '{schema}': ",
        ),
        (
            url,
            taken,
            Misconfigured,
            f"the tables in the schema '{taken}' are not those of tavern-host: .*; name another",
        ),
    ]
    for address, where, error, message in rows:
        connection = Connection(address, where, log, name="test")
        with pytest.raises(error, match=f"^[^\n]*{message}[^\n]*$"):
            await connection.rows("SELECT 1 FROM hosts")


def test_events_are_carried_that_the_manifest_declares() -> None:
    manifest = yaml.safe_load(Path(tavern_postgres.__file__).with_name("plugin.yaml").read_text(encoding="utf-8"))
    events = manifest["permissions"]["events"]
    assert tuple(events["subscribe"]) == TYPES
    assert tuple(events["publish"]) == (*TYPES, RUNS_CHANGED)
