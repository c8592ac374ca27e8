"""Several projects in one server: requests say which one they mean, and nothing of one is seen in another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from helpers.folder_plugins import GREETS_IN_ITS_OWN_WAY, INTERCEPTING, write_plugin
from helpers.repetition import Failures

from tavern_host import Host
from tavern_host.projects import Folders, make_project
from tavern_host.testing.http import HttpClient, served

SAMPLE = Path(__file__).parents[2] / "plugins" / "tavern_demo" / "sample"
GREET = {"toolId": "workflow:greeting", "arguments": {"name": "Ada"}}
OPTION = {"key": "extensions.ahoy.word", "type": "string", "label": "Word", "defaultValue": "hi"}
FRONTEND = {"type": "vanilla", "vanilla": {"entry": "index.js", "rootDir": "web"}}


def _project(root: Path) -> Path:
    """Make a project with the sample, and a plugin `ahoy` that needs a grant to change greetings."""
    make_project(root, [SAMPLE])
    files = {"__init__.py": GREETS_IN_ITS_OWN_WAY, "web/index.js": f"// of {root.name}"}
    write_plugin(root / "plugins" / "ahoy", files, configOptions=[OPTION], frontend=FRONTEND, **INTERCEPTING)
    return root


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HttpClient]:
    """Serve the project `inn`, and `barn` beside it."""
    place = tmp_path_factory.mktemp("projects")
    folders = Folders(place / "config", place / "state", place / "data")
    async with Host(_project(place / "inn"), folders=folders) as host, served(host) as opened:
        answer = await opened.post("/api/projects", json={"path": str(_project(place / "barn"))})
        assert answer.status == 200, await answer.text()
        yield opened


async def _projects(site: HttpClient) -> dict[str, dict[str, Any]]:
    return {project["name"]: project for project in await (await site.get("/api/projects")).json()}


async def _barn(site: HttpClient) -> str:
    found: str = (await _projects(site))["barn"]["id"]
    return found


async def _greeted(answer: aiohttp.ClientResponse) -> Any:
    body = await answer.json()
    assert "results" in body and "structured" in body["results"][0], str(body)
    return body["results"][0]["structured"]


async def test_each_project_is_listed_with_its_folder(site: HttpClient) -> None:
    projects = await _projects(site)
    root = site.host.project.root

    assert {name: project["isDefault"] for name, project in projects.items()} == {"inn": True, "barn": False}
    assert projects["barn"]["path"] == str(root.parent / "barn")
    assert await (await site.get("/api/projects/default")).json() == projects["inn"]
    again = await site.post("/api/projects", json={"path": str(root.parent / "barn")})
    assert await again.json() == projects["barn"]


async def test_a_request_names_its_project_in_every_way(site: HttpClient) -> None:
    barn, inn = await _barn(site), site.host.project.id
    grant = await site.post(f"/api/projects/{barn}/plugins/ahoy/grant")
    assert (await grant.json()).get("state") == "started", await grant.text()
    with Failures() as failures:
        for path, body, word in (
            ("/api/tools/execute", {}, "Hello"),
            ("/api/tools/execute?projectId=default", {}, "Hello"),
            (f"/api/tools/execute?projectId={inn}", {}, "Hello"),
            ("/api/projects/default/tools/execute", {}, "Hello"),
            (f"/api/projects/{inn}/tools/execute", {"projectId": "default"}, "Hello"),
            (f"/api/tools/execute?projectId={barn}", {}, "Ahoy"),
            (f"/api/projects/{barn}/tools/execute", {}, "Ahoy"),
            ("/api/tools/execute", {"projectId": barn}, "Ahoy"),
        ):
            with failures.row(f"{path} {body}"):
                assert await _greeted(await site.post(path, json={**GREET, **body})) == f"{word}, Ada"

    kept = await site.post(f"/api/blobs?projectId={barn}", data=b"x")
    made = await site.post(f"/api/workflows?projectId={barn}", json={"name": "new", "nodes": [], "edges": []})
    for answer, rest in ((kept, "blobs/"), (made, "workflows/new")):
        assert answer.headers["Location"].startswith(f"http://127.0.0.1:{site.port}/api/projects/{barn}/{rest}")

    shown = await (await site.get(f"/api/projects/{barn}/plugins/ahoy")).json()
    address = shown["frontend"]["entryUrl"]
    assert (await site.get(address)).status == 200 and await (await site.get(address)).text() == "// of barn"
    assert (await (await site.get("/api/plugins/ahoy")).json())["state"] == "needs-review"


async def test_a_request_for_no_or_two_projects_is_refused(site: HttpClient) -> None:
    barn = await _barn(site)
    with Failures() as failures:
        for path, body, status, told in (
            ("/api/projects/cellar/tools/execute", GREET, 404, "no project 'cellar'"),
            ("/api/tools/execute?projectId=cellar", GREET, 404, "no project 'cellar'"),
            ("/api/tools/execute", {**GREET, "projectId": "cellar"}, 404, "no project 'cellar'"),
            ("/api/tools/execute", {**GREET, "projectId": 5}, 400, "projectId must be"),
            (f"/api/projects/default/tools/execute?projectId={barn}", GREET, 400, "two projects"),
            (f"/api/tools/execute?projectId={barn}", {**GREET, "projectId": "default"}, 400, "two projects"),
            ("/api/projects", {"path": "barn"}, 400, "absolute path"),
            ("/api/projects", {"path": str(site.host.project.root.parent)}, 400, "is not a project"),
            ("/api/projects", [], 400, "the body: $: Input should be an object"),
        ):
            with failures.row(f"{path} {body}"):
                answer = await site.post(path, json=body)
                assert answer.status == status
                assert told in (await answer.json())["message"]


async def test_settings_and_runs_of_projects_are_apart(site: HttpClient) -> None:
    barn = await _barn(site)
    of_barn = f"/api/projects/{barn}"

    saved = await site.post(f"{of_barn}/plugins/ahoy/settings", json={"word": "ahoy"})
    assert (await saved.json())["settings"] == {"extensions.ahoy.word": "ahoy"}
    assert await (await site.get("/api/plugins/ahoy/settings")).json() == {"extensions.ahoy.word": "hi"}
    before = await (await site.get("/api/runs")).json()
    await site.post(f"{of_barn}/tools/execute", json=GREET)
    assert await (await site.get("/api/runs")).json() == before
    assert await (await site.get(f"{of_barn}/runs")).json() != before


async def test_metrics_are_those_of_the_first_project_unless_another_is_named(site: HttpClient) -> None:
    async def runs(path: str) -> float:
        figures = await (await site.get(path)).json()
        return sum(one["value"] for one in figures if one["name"] == "tavern_runs_total")

    of_barn = f"/api/projects/{await _barn(site)}"
    before = [await runs("/api/figures"), await runs(f"{of_barn}/figures")]
    await site.post(f"{of_barn}/tools/execute", json=GREET)
    assert [await runs("/api/figures"), await runs(f"{of_barn}/figures")] == [before[0], before[1] + 1]


async def test_a_socket_hears_its_own_project_alone(site: HttpClient) -> None:
    barn = await _barn(site)
    async with await site.socket(f"/ws?projectId={barn}") as of_barn, await site.socket() as of_inn:
        for path in (f"/api/tools/execute?projectId={barn}", "/api/tools/execute"):
            assert (await site.post(path, json=GREET)).status == 200
        runs = [await _first_run(of_barn), await _first_run(of_inn)]
        await of_inn.send_json({"type": "PROMPT_REQUEST", "payload": {"projectId": barn, "nodes": []}})
        async with asyncio.timeout(60):
            while (refusal := await of_inn.receive_json())["type"] != "error":
                pass

    assert f"/ws?projectId={barn}" in refusal["payload"]["message"]
    for run_id, path in zip(runs, (f"/api/projects/{barn}/runs", "/api/runs"), strict=True):
        assert (await site.get(f"{path}/{run_id}")).status == 200
    assert (await site.get(f"/api/runs/{runs[0]}")).status == 404


async def _first_run(socket: aiohttp.ClientWebSocketResponse) -> str:
    async with asyncio.timeout(60):
        while True:
            payload = (await socket.receive_json())["payload"]
            if "promptId" in payload:
                return str(payload["promptId"])


async def test_a_closed_project_is_gone_and_can_return(site: HttpClient, tmp_path: Path) -> None:
    folder = _project(tmp_path / "shed")
    shed = (await (await site.post("/api/projects", json={"path": str(folder)})).json())["id"]
    async with await site.socket(f"/ws?projectId={shed}") as socket:
        assert (await site.request("DELETE", f"/api/projects/{shed}")).status == 200
        async with asyncio.timeout(60):
            while (await socket.receive()).type not in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED):
                pass

    assert (await site.get(f"/api/projects/{shed}/tools")).status == 404
    assert (await site.request("DELETE", "/api/projects/default")).status == 409
    assert (await site.post("/api/projects", json={"path": str(folder)})).status == 200
    assert await _greeted(await site.post(f"/api/projects/{shed}/tools/execute", json=GREET)) == "Hello, Ada"
    await site.request("DELETE", f"/api/projects/{shed}")
