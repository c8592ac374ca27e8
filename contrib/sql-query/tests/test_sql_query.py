"""Reading SQLite files by the tools, as agents call them; whatever would write is refused."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tavern_host import TOOL_MANAGER, Host
from tavern_tools.api.toolcalls import ToolCallRequest

pytestmark = pytest.mark.tavern(plugins=["../sql_query"])

WRITING = (
    "INSERT INTO orders VALUES ('Eve', 1.0)",
    "insert/**/into orders values ('Eve', 1.0)",
    "REPLACE INTO orders VALUES ('Eve', 1.0)",
    "UPDATE orders SET total = 0 RETURNING total",
    "DELETE FROM orders",
    "DROP TABLE orders",
    "CREATE TABLE t (x)",
    "CREATE TEMP TABLE t (x)",
    "ALTER TABLE orders RENAME TO o",
    "WITH one AS (SELECT 1) INSERT INTO orders SELECT 'Eve', 1.0 FROM one",
    "WITH one AS (SELECT 1) DELETE FROM orders",
    "SELECT 1; DELETE FROM orders",
    "-- nothing",
    "SELECT 1;;DELETE FROM orders",
    "BEGIN IMMEDIATE",
    "SAVEPOINT s",
    "ATTACH 'files/other.db' AS other",
    "VACUUM INTO 'files/copy.db'",
    "VACUUM",
    "REINDEX",
    "ANALYZE",
    "PRAGMA query_only = OFF",
    "PRAGMA journal_mode = DELETE",
    "PRAGMA writable_schema = ON",
    "PRAGMA user_version",
    "SELECT * FROM pragma_user_version",
    "SELECT load_extension('/tmp/x.so')",
    "SELECT LOAD_EXTENSION('/tmp/x.so')",
    "SELECT fts3_tokenizer('simple', x'00')",
    "SELECT zeroblob(2000000000)",
    "EXPLAIN DELETE FROM orders",
)


@pytest.fixture
def shop(tavern_project: Path) -> Path:
    """Return a database in the project's files."""
    path = tavern_project / "files" / "shop.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE orders (customer TEXT, total REAL)")
    connection.execute("CREATE INDEX by_total ON orders (total)")
    connection.execute("CREATE VIEW large AS SELECT customer FROM orders WHERE total > 5")
    connection.executemany("INSERT INTO orders VALUES (?, ?)", [("Ada", 9.5), ("Bob", 2.0), ("Ada", 4.0)])
    connection.commit()
    connection.close()
    return path


async def call(host: Host, tool: str, **arguments: Any) -> Any:
    request = ToolCallRequest(tool_id=f"sql-query:{tool}", arguments={"database": "shop.db", **arguments})
    return await host.services.get(TOOL_MANAGER).call(request)


async def rows(host: Host, sql: str, *parameters: Any) -> Any:
    result = await call(host, "query", sql=sql, parameters=list(parameters))
    assert result.status == "done", result.error
    return result.structured


async def refusal(host: Host, sql: str = "SELECT 1", **arguments: Any) -> str:
    result = await call(host, "query", sql=sql, **arguments)
    assert result.status == "error", sql
    message: str = result.error.message
    return message


async def test_rows_are_read(host: Host, shop: Path) -> None:
    found = await rows(host, "SELECT * FROM orders WHERE customer = ? ORDER BY total", "Ada")
    assert found == {"columns": ["customer", "total"], "rows": [["Ada", 4.0], ["Ada", 9.5]], "complete": True}


async def test_a_query_may_have_common_tables_and_recursion(host: Host, shop: Path) -> None:
    sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT sum(i) FROM n"
    assert (await rows(host, sql))["rows"] == [[6]]


async def test_tables_are_listed_with_their_columns(host: Host, shop: Path) -> None:
    result = await call(host, "tables")
    assert result.status == "done", result.error
    assert result.structured == {"large": {"customer": "TEXT"}, "orders": {"customer": "TEXT", "total": "REAL"}}


async def test_nothing_can_be_written_in_any_spelling(host: Host, shop: Path) -> None:
    before = shop.read_bytes()
    for sql in WRITING:
        result = await call(host, "query", sql=sql)
        if sql.startswith("EXPLAIN") and result.status == "done":
            continue  # it says what would be done, and does nothing
        assert re.search("the database refused it|only a SELECT", result.error.message if result.error else ""), sql
    assert shop.read_bytes() == before
    assert [path.name for path in shop.parent.iterdir()] == ["shop.db"]


@pytest.mark.tavern(settings={"extensions.sql-query.maxRows": 2})
async def test_no_more_rows_are_given_than_the_setting_says(host: Host, shop: Path) -> None:
    found = await rows(host, "SELECT total FROM orders ORDER BY total")
    assert (found["rows"], found["complete"]) == ([[2.0], [4.0]], False)
    assert (await rows(host, "SELECT total FROM orders LIMIT 2"))["complete"]


@pytest.mark.tavern(settings={"extensions.sql-query.maxKilobytes": 1})
async def test_no_more_text_is_given_than_the_setting_says(host: Host, shop: Path) -> None:
    found = await rows(host, "SELECT printf('%600c', 'x') UNION ALL SELECT printf('%600c', 'y')")
    assert (len(found["rows"]), found["complete"]) == (1, False)


async def test_values_that_no_json_has_are_texts(host: Host, shop: Path) -> None:
    assert (await rows(host, "SELECT x'0102', 9e999, NULL, 7"))["rows"] == [["<2 bytes>", "inf", None, 7]]


async def test_only_granted_folders_are_read(host: Host, shop: Path, tmp_path: Path) -> None:
    shop.rename(tmp_path / "outside.db")
    (shop.parent / "link.db").symlink_to(tmp_path / "outside.db")
    for name in (str(tmp_path / "outside.db"), "../../outside.db", "link.db", "../tavern.yaml", ""):
        assert "there is no database" in await refusal(host, database=name), name


async def test_what_there_is_stands_in_the_error(host: Host, shop: Path) -> None:
    assert (
        await refusal(host, database="shops.db")
        == "node node (SQL query): there is no database 'shops.db' (there is shop.db)"
    )


async def test_what_is_no_database_is_refused(host: Host, shop: Path) -> None:
    shop.write_text("nothing but text " * 100)
    assert "file is not a database" in await refusal(host, "SELECT * FROM sqlite_schema")


async def test_postgresql_is_set_up_first(host: Host) -> None:
    assert "extensions.sql-query.dsn names one" in await refusal(host, database="postgresql")
