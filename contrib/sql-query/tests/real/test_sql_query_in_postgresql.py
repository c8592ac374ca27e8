"""PostgreSQL is read by users who can become no superuser, and nothing is changed through it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tavern_host import TOOL_MANAGER
from tavern_host.testing import MakeHost
from tavern_tools.api.toolcalls import ToolCallRequest, ToolResult

psycopg = pytest.importorskip("psycopg")
postgres = pytest.importorskip("helpers.postgres", reason="it runs with the host's own tests, which have a server")
pytestmark = pytest.mark.tavern(plugins=["../../sql_query"])

TABLES = """CREATE TABLE orders (id int); INSERT INTO orders VALUES (1); CREATE ROLE reader LOGIN;
GRANT ALL ON orders TO reader; CREATE ROLE boss SUPERUSER; CREATE ROLE member LOGIN IN ROLE boss"""
BECOME = "SELECT set_config('role', 'boss', false), query_to_xml('SELECT pg_ls_dir(''.'')', true, true, '')"
DELETE = "DELETE FROM orders"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a server that no other test has changed."""
    if postgres.programs() is None:
        pytest.skip("PostgreSQL is not installed: apt install postgresql")
    with postgres.postgres_server() as found:
        with psycopg.connect(found, autocommit=True) as connection:
            connection.execute(TABLES)
        yield found


async def test_nothing_is_changed_and_no_superuser_reads(make_host: MakeHost, address: str) -> None:
    async def asked(user: str, *questions: str) -> list[ToolResult]:
        settings = {"extensions.sql-query.dsn": address.replace("tavern@", f"{user}@")}
        async with make_host(settings=settings) as host:
            tools = host.services.get(TOOL_MANAGER)
            given = [{"database": "postgresql", "sql": sql} for sql in questions]
            return [await tools.call(ToolCallRequest(tool_id="sql-query:query", arguments=one)) for one in given]

    changes = (DELETE, f"SELECT 1; {DELETE}", f"WITH gone AS ({DELETE} RETURNING id) SELECT * FROM gone")
    *refused, read = await asked("reader", *changes, "SELECT id FROM orders")
    assert all(one.error and "the database refused it" in one.error.message for one in refused)
    assert read.error is None, read.error
    assert isinstance(read.structured, dict) and read.structured["rows"] == [[1]]
    for user in ("tavern", "member"):
        (one,) = await asked(user, BECOME)
        assert one.error and "name another user in the dsn" in one.error.message
