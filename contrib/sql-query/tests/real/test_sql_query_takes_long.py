"""A query that would not end is stopped."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tavern_host import TOOL_MANAGER, Host
from tavern_tools.api.toolcalls import ToolCallRequest

pytestmark = pytest.mark.tavern(plugins=["../../sql_query"], settings={"extensions.sql-query.seconds": 1})


async def test_a_query_is_stopped_in_time(host: Host, tavern_project: Path) -> None:
    (tavern_project / "files").mkdir(exist_ok=True)
    sqlite3.connect(tavern_project / "files" / "empty.db").close()
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    request = ToolCallRequest(tool_id="sql-query:query", arguments={"database": "empty.db", "sql": endless})
    result = await host.services.get(TOOL_MANAGER).call(request)
    assert result.error is not None
    assert result.error.message.endswith("the query took more than 1 s")
