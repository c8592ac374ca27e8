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
        for query in ("?limit=0", "?limit=1001", "?actors=x", "?since=noon"):
            with failures.row(query):
                assert (await site.get(f"/api/audit{query}")).status == 400
    (entry,) = await (await site.get("/api/audit?limit=1&subject=gone")).json()
    assert entry["actor"] == "user:operator"


async def test_the_audit_log_is_paged_and_cut_by_time(site: HttpClient) -> None:
    async def asked(**query: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await (await site.get("/api/audit", params=query)).json()
        return found

    for number in range(1100):
        site.host.audit.record("acme.paged", actor="user:operator", subject=f"t{number}")
    newest = await asked(limit=3, action="acme.paged")
    assert [one["subject"] for one in newest] == ["t1097", "t1098", "t1099"]
    older = await asked(limit=2, action="acme.paged", before=newest[0]["seq"])
    assert [one["subject"] for one in older] == ["t1095", "t1096"]
    (first,) = await asked(subject="t0")  # further back than one page
    assert [one["subject"] for one in await asked(subject="t*", until=first["time"], limit=1)] == ["t0"]
    assert await asked(subject="t*", since="2999-01-01") == []
    assert len(await asked(subject="t*", since=first["time"], limit=1000)) == 1000
