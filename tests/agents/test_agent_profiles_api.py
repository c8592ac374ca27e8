"""Agents' profiles over HTTP: read, made, changed and deleted, each change for the one that was read."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from helpers.folder_plugins import write_plugin

from tavern_host import Host
from tavern_host.testing.http import HttpClient, served
from tests.agents.agent_bench import thinking


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[HttpClient]:
    """Serve the sample, and a plugin that brings an agent with a workflow that is in no list."""
    files = {
        "agents/scout.json": json.dumps({**profile("scout"), "core_deliberation_workflow_id": "thoughts"}),
        "workflows/thoughts.json": json.dumps({**thinking(), "listed": False}),
    }
    folders = {"agents": {"entry": "./agents"}, "workflows": {"entry": "./workflows"}}
    plugin = write_plugin(tmp_path / "brings", files, **folders)
    project = tmp_path / "project"
    async with Host(project, sample=True, plugins=[plugin]) as host, served(host) as client:
        yield client


def profile(name: str, **more: Any) -> dict[str, Any]:
    fields = {"name": name.title(), "version": "1.0.0", "schema_version": "1.0"}
    return {"id": name, **fields, "core_deliberation_workflow_id": "deliberation", "ours": [1], **more}


async def asked(site: HttpClient, method: str, path: str, body: Any = None, tag: str = "") -> tuple[int, Any, str]:
    answer = await site.request(method, path, json=body, headers={"If-Match": tag} if tag else {})
    return answer.status, await answer.json(), answer.headers.get("ETag", "")


async def test_a_profile_is_made_read_changed_and_deleted(site: HttpClient) -> None:
    root = site.host.project.root
    status, made, tag = await asked(site, "PUT", "/api/agents/guide", profile("guide"))
    assert (status, made) == (201, profile("guide"))
    assert await asked(site, "GET", "/api/agents/guide") == (200, made, tag)
    assert "guide" in [one["id"] for one in (await asked(site, "GET", "/api/agents"))[1]]

    changed = profile("guide", tool_ids_inventory=["workflow:greeting"])
    assert (await asked(site, "PUT", "/api/agents/guide", changed))[0] == 428
    assert (await asked(site, "PUT", "/api/agents/guide", changed, '"other"'))[0] == 412
    assert (await asked(site, "PUT", "/api/agents/guide", changed, tag))[0] == 200
    uses = (await asked(site, "GET", "/api/workflows/greeting/uses"))[1]
    assert ("agent", "guide") in [(one["kind"], one["id"]) for one in uses]

    sample = root / "agents" / "assistant.json"
    (root / "agents" / "deep").mkdir()
    moved = root / "agents" / "deep" / "agent_profile.json"
    sample.rename(moved)
    _, assistant, tag = await asked(site, "GET", "/api/agents/assistant")
    assert (await asked(site, "PUT", "/api/agents/assistant", {**assistant, "name": "Other"}, tag))[0] == 200
    assert '"Other"' in moved.read_text() and not sample.exists(), "a profile stays in the file that it is in"

    assert (await asked(site, "DELETE", "/api/agents/guide", None, "*"))[0] == 200
    assert (await asked(site, "GET", "/api/agents/guide"))[0] == 404
    assert (await asked(site, "DELETE", "/api/agents/guide", None, "*"))[0] == 404


async def test_a_plugin_brings_an_agent(site: HttpClient) -> None:
    listed = (await asked(site, "GET", "/api/agents"))[1]
    assert "scout" in [one["id"] for one in listed]
    assert [one for one in (await asked(site, "GET", "/api/agents-check"))[1] if one["profileId"] == "scout"] == []
    assert "thoughts" not in [one["id"] for one in (await asked(site, "GET", "/api/workflows"))[1]]
    assert (await asked(site, "GET", "/api/workflows/thoughts"))[0] == 200
    assert "workflow:thoughts" not in [one["id"] for one in (await asked(site, "GET", "/api/tools"))[1]]

    own = site.host.project.root / "agents" / "scout.json"
    _, brought, tag = await asked(site, "GET", "/api/agents/scout")
    assert (await asked(site, "DELETE", "/api/agents/scout", None, tag))[0] == 409
    assert (await asked(site, "PUT", "/api/agents/scout", {**brought, "name": "Ours"}))[0] == 428
    assert (await asked(site, "PUT", "/api/agents/scout", {**brought, "name": "Ours"}, tag))[0] == 200
    assert json.loads(own.read_text())["name"] == "Ours"
    _, ours, tag = await asked(site, "GET", "/api/agents/scout")
    assert ours["name"] == "Ours"
    assert (await asked(site, "DELETE", "/api/agents/scout", None, tag))[0] == 200
    assert not own.exists()
    assert (await asked(site, "GET", "/api/agents/scout"))[1] == brought


async def test_what_is_no_profile_is_refused_with_all_that_is_wrong(site: HttpClient) -> None:
    agents = site.host.project.root / "agents"
    before = sorted(path.name for path in agents.rglob("*"))
    status, problem, _ = await asked(
        site, "PUT", "/api/agents/x", {"id": "x", "name": "", "limits": {"max_steps": "many"}}
    )
    assert status == 400
    for place in ("$.name", "$.version", "$.core_deliberation_workflow_id", "$.limits.max_steps"):
        assert place in problem["detail"]
    assert (await asked(site, "PUT", "/api/agents/x", profile("y")))[0] == 400
    assert (await asked(site, "PUT", "/api/agents/x", [1]))[0] == 400
    for name in ("..", ".hidden", "a%2Fb", "a%5Cb", "%00", "n" * 201, "ü" * 150, "a%3Ab"):
        answer = await site.request("PUT", f"/api/agents/{name}", json=profile("x"))
        assert answer.status in (400, 404), name
        answer = await site.request("PUT", f"/api/agents/{name}", json={**profile("x"), "id": name})
        assert answer.status in (400, 404), name
    assert sorted(path.name for path in agents.rglob("*")) == before


async def test_nothing_is_written_behind_a_link(site: HttpClient, tmp_path: Path) -> None:
    agents, outside = site.host.project.root / "agents", tmp_path / "outside"
    agents.rename(outside)
    agents.symlink_to(outside)
    assert (await asked(site, "PUT", "/api/agents/new", profile("new")))[0] == 409
    assert not (outside / "new.json").exists()


async def test_a_file_that_is_broken_is_mended_or_deleted(site: HttpClient) -> None:
    file = site.host.project.root / "agents" / "guide.json"
    file.write_text("{")
    assert (await asked(site, "GET", "/api/agents/guide"))[0] != 200
    assert (await asked(site, "PUT", "/api/agents/guide", profile("guide")))[0] == 428, "nobody's work is overwritten"
    assert (await asked(site, "PUT", "/api/agents/guide", profile("guide"), "*"))[0] == 200
    file.write_text("{")
    assert (await asked(site, "DELETE", "/api/agents/guide", None, "*"))[0] == 200
    assert not file.exists()
