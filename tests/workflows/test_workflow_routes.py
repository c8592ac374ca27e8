"""Workflows over HTTP: what is saved, what is refused, and that nobody overwrites what he has not seen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from helpers.repetition import Failures
from workflows_bench import asked

from tavern_host import Host
from tavern_host.testing.http import HttpClient, served

DOCUMENT = {"name": "Greeting", "nodes": [], "edges": [], "viewport": {"x": 0, "y": 0, "zoom": 1}, "ours": [1]}


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[HttpClient]:
    async with Host(tmp_path / "project", third_party=False) as host, served(host) as client:
        yield client


async def test_a_workflow_is_made_read_changed_moved_and_deleted(site: HttpClient) -> None:
    folder = site.host.project.root / "workflows"
    status, made, tag = await asked(site, "POST", "/api/workflows", DOCUMENT)
    assert (status, made) == (201, {**DOCUMENT, "id": "Greeting"})
    assert (await asked(site, "POST", "/api/workflows", DOCUMENT))[1]["id"] == "Greeting-2"
    assert await asked(site, "GET", "/api/workflows/Greeting") == (200, made, tag)
    assert (await asked(site, "GET", "/api/workflows/Greeting", If_None_Match=f"W/{tag}"))[:2] == (304, None)
    of_project = "/api/projects/default/workflows/Greeting"

    status, saved, after = await asked(site, "PUT", of_project, {**made, "name": "Hi"}, If_Match=tag)
    assert (status, saved["name"]) == (200, "Hi")
    assert after != tag
    assert b'"id"' not in (folder / "Greeting.json").read_bytes(), "the file has no id, and gets none"
    patch = {"id": "polite/greeting", "description": "says it", "ours": None}
    status, patched, tag = await asked(site, "PATCH", of_project, patch, If_Match=after)
    assert (status, patched["description"]) == (200, "says it")
    assert "ours" not in patched
    assert not (folder / "Greeting.json").exists()
    listed = {one["id"]: one["revision"] for one in (await asked(site, "GET", "/api/workflows"))[1]}
    assert listed["polite/greeting"] == tag.strip('"') and "Greeting" not in listed

    moved = "/api/workflows/polite%2Fgreeting"
    assert (await asked(site, "DELETE", moved, If_Match=tag))[0] == 200
    assert (await asked(site, "GET", moved))[0] == 404
    assert not (folder / "polite/greeting.json").exists()


async def test_no_editor_overwrites_what_it_has_not_seen(site: HttpClient) -> None:
    path = "/api/workflows/shared"
    assert (await asked(site, "PUT", path, DOCUMENT))[0] == 201
    _, _, tag = await asked(site, "GET", path)
    with Failures() as failures:
        for method, body, headers, status in (
            ("PUT", DOCUMENT, {}, 428),
            ("PATCH", {"name": "x"}, {}, 428),
            ("DELETE", None, {}, 428),
            ("PUT", DOCUMENT, {"If_Match": '"0000"'}, 412),
            ("PUT", DOCUMENT, {"If_Match": f"W/{tag}"}, 412),
            ("PATCH", {"id": "other"}, {"If_Match": '"0000"'}, 412),
            ("DELETE", None, {"If_Match": '"0000", "1111"'}, 412),
            ("PUT", DOCUMENT, {"If_None_Match": "*"}, 412),
            ("POST", {**DOCUMENT, "id": "shared"}, {}, 409),
            ("PUT", {**DOCUMENT, "name": "mine"}, {"If_Match": f'"1111", {tag}'}, 200),
        ):
            with failures.row(f"{method} {headers}"):
                where = "/api/workflows" if method == "POST" else path
                got, answer, _ = await asked(site, method, where, body, **headers)
                assert got == status, answer
                assert status < 412 or answer["details"]["revision"] == tag.strip('"')
    _, _, tag = await asked(site, "GET", path)
    bodies = [{**DOCUMENT, "name": f"editor {number}"} for number in range(8)]
    answers = await asyncio.gather(*(asked(site, "PUT", path, body, If_Match=tag) for body in bodies))
    assert sorted(status for status, _, _ in answers) == [200] + [412] * 7
    won = next(answer["name"] for status, answer, _ in answers if status == 200)
    assert (await asked(site, "GET", path))[1]["name"] == won
    assert (await asked(site, "PUT", path, DOCUMENT, If_Match="*"))[0] == 200


async def test_nothing_outside_of_the_workflows_is_reached(site: HttpClient) -> None:
    root = site.host.project.root
    before = {file for file in root.rglob("*") if ".tavern" not in file.parts}
    (root / "workflows").mkdir(exist_ok=True)
    (root / "workflows" / "out").symlink_to(root.parent)
    with Failures() as failures:  # other names are refused alike; these are what a server may make of an address
        for name in ("..%2Fx", "%2e%2e%2Fx", "a%2F..%2F..%2Fx", "%2Fetc%2Fx", "a%00", "a%5C..%5Cx", "out%2Fx"):
            with failures.row(name):
                assert (await asked(site, "PUT", f"/api/workflows/{name}", DOCUMENT))[0] in (400, 404, 409)
                assert (await asked(site, "GET", f"/api/workflows/{name}"))[0] in (400, 404)
                assert (await asked(site, "DELETE", f"/api/workflows/{name}", If_Match="*"))[0] in (400, 404)
        await asked(site, "PUT", "/api/workflows/here", DOCUMENT)
        for new_id in ("../x", "out/x", 5, None):
            with failures.row(f"move to {new_id}"):
                got = await asked(site, "PATCH", "/api/workflows/here", {"id": new_id, "name": "y"}, If_Match="*")
                assert got[0] in (400, 409)
    assert (await asked(site, "GET", "/api/workflows/here"))[1]["name"] == "Greeting", "half a change was made"
    after = {file for file in root.rglob("*") if ".tavern" not in file.parts}
    assert {file.name for file in after - before} <= {"workflows", "out", "here.json"}
    assert not (root.parent / "x.json").exists()


async def test_a_wrong_document_is_refused_with_all_its_places(site: HttpClient) -> None:
    wrong = {"nodes": [{"id": 1}], "edges": {}}
    for method, path in (("POST", "/api/workflows"), ("PUT", "/api/workflows/w")):
        status, answer, _ = await asked(site, method, path, wrong)
        assert (status, answer["code"]) == (400, "invalid_input")
        assert "$.nodes[0].id" in answer["message"] and "$.edges" in answer["message"]
    status, answer, _ = await asked(site, "POST", "/api/workflows/check", {"nodes": [{"id": "a", "type": "no:such"}]})
    assert (status, answer["ok"]) == (200, False)
    assert answer["problems"][0]["path"] == "$.nodes[0].type"
