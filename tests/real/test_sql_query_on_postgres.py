"""The example plugin `sql-query` with a PostgreSQL server: rows are read, and nothing is written in any spelling."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from helpers.postgres import shared_server

from tavern_host import TOOL_MANAGER, Host
from tavern_host.testing import MakeHost
from tavern_tools.api.toolcalls import ToolCallRequest

PLUGIN = Path(__file__).parents[2] / "contrib" / "sql-query" / "sql_query"
WRITING = (
    "INSERT INTO orders VALUES ('Eve', 1)",
    "WITH one AS (INSERT INTO orders VALUES ('Eve', 1) RETURNING *) SELECT * FROM one",
    "SELECT 1; DELETE FROM orders",
    "SELECT 1; COMMIT; DELETE FROM orders",
    "SELECT 1; SET TRANSACTION READ WRITE; DELETE FROM orders",
    "SELECT set_config('transaction_read_only', 'off', false), add_order()",
    "SELECT add_order()",
    "SELECT nextval('numbers')",
    "SELECT * INTO copied FROM orders",
    "SELECT * FROM orders FOR UPDATE",
    "COPY orders TO PROGRAM 'true'",
    "CALL empty_orders()",
    "DO $$ BEGIN DELETE FROM orders; END $$",
)


@pytest.fixture(scope="module")
def reader() -> Iterator[str]:
    """Give the address of a database for a user who may write in it, so that the connection alone holds it back."""
    address = shared_server()
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE ROLE clerk LOGIN")
        connection.execute("CREATE DATABASE shop OWNER clerk")
        clerk = address.replace("tavern@", "clerk@").replace("/postgres?", "/shop?")
        with psycopg.connect(clerk, autocommit=True) as shop:
            shop.execute("CREATE TABLE orders (customer text, total numeric, at timestamptz)")
            shop.execute("INSERT INTO orders VALUES ('Ada', 9.5, '2026-01-02 03:04:05+00'), ('Bob', 2, NULL)")
            shop.execute("CREATE SEQUENCE numbers")
            shop.execute("CREATE PROCEDURE empty_orders() LANGUAGE sql AS 'DELETE FROM orders'")
            insert = "INSERT INTO orders VALUES (''Eve'', 1) RETURNING 1"
            shop.execute(f"CREATE FUNCTION add_order() RETURNS int LANGUAGE sql AS '{insert}'")
        yield clerk
        connection.execute("DROP DATABASE shop WITH (FORCE)")
        connection.execute("DROP ROLE clerk")


async def call(host: Host, tool: str, **arguments: Any) -> Any:
    request = ToolCallRequest(tool_id=f"sql-query:{tool}", arguments={"database": "postgresql", **arguments})
    return await host.services.get(TOOL_MANAGER).call(request)


async def test_it_reads_and_writes_nothing(make_host: MakeHost, reader: str) -> None:
    settings = {"extensions.sql-query.dsn": reader, "extensions.sql-query.seconds": 2}
    async with make_host(plugins=[PLUGIN], settings=settings) as host:
        found = await call(host, "query", sql="SELECT * FROM orders WHERE customer = %s", parameters=["Ada"])
        assert found.status == "done", found.error
        assert found.structured["rows"] == [["Ada", "9.5", "2026-01-02 03:04:05+00:00"]]
        tables = await call(host, "tables")
        assert tables.structured["public.orders"]["total"] == "numeric"
        many = await call(host, "query", sql="SELECT generate_series(1, 1000000) AS n")
        assert (len(many.structured["rows"]), many.structured["complete"]) == (200, False)

        for sql in WRITING:
            result = await call(host, "query", sql=sql)
            assert result.status == "error" and "the database refused it" in result.error.message, (sql, result)
        await call(host, "query", sql="SELECT lo_create(7)")  # refused by newer servers, rolled back in older ones
        with psycopg.connect(reader) as shop:
            assert shop.execute("SELECT count(*) FROM pg_largeobject_metadata").fetchone() == (0,)
            assert shop.execute("SELECT count(*) FROM orders").fetchone() == (2,)

        for sql in ("SELECT pg_sleep(60)", "SELECT set_config('statement_timeout', '0', false), pg_sleep(60)"):
            assert "the query took more than 2 s" in (await call(host, "query", sql=sql)).error.message


async def test_a_superuser_is_refused(make_host: MakeHost) -> None:
    async with make_host(plugins=[PLUGIN], settings={"extensions.sql-query.dsn": shared_server()}) as host:
        assert "name another user" in (await call(host, "query", sql="SELECT 1")).error.message
