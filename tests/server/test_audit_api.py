"""`GET /api/audit`."""

from __future__ import annotations

from typing import Any

from helpers.repetition import Failures

from tavern_host.testing.http import HttpClient


async def test_the_audit_log_over_http(site: HttpClient) -> None:
    for tool in ("absent", "gone"):
        await site.post("/api/tools/execute", json={"toolId": tool, "arguments": {}})
    rows: list[tuple[str, Any]] = [
        ("?action=tool.denied", [("tool.denied", "absent"), ("tool.denied", "gone")]),
        ("?action=tool.*&limit=1", [("tool.denied", "gone")]),
        ("?subject=abs*", [("tool.denied", "absent")]),
        ("?actor=user:nobody", []),
        ("?plugin=tavern-tools&subject=gone", [("tool.denied", "gone")]),
    ]
    with Failures() as failures:
        for query, expected in rows:
            with failures.row(query):
                found = await (await site.get(f"/api/audit{query}")).json()
                assert [(entry["action"], entry["subject"]) for entry in found] == expected
        for query in ("?limit=0", "?limit=1001", "?actors=x"):
            with failures.row(query):
                assert (await site.get(f"/api/audit{query}")).status == 400
    (entry,) = await (await site.get("/api/audit?limit=1&subject=gone")).json()
    assert entry["actor"] == "user:operator"
