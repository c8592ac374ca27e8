"""Switching plugins on and off, reading them anew, and explanations, over HTTP in the platform's shapes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSMsgType
from helpers.folder_plugins import write_plugin

from tavern_host import Host
from tavern_host.testing.http import HttpClient, served

ANSWERS = """
from tavern_host import RouteInfo, hookimpl


@hookimpl
def tavern_register_routes():
    return [RouteInfo(method="GET", path="/api/x/ahoy/word", handler=f"{__name__}.web:word")]
"""
WEB = """
from tavern_host import HttpResponse


async def word(request, context):
    return HttpResponse(data="WORD")
"""
ROUTES = {"permissions": {"hooks": ["hook:server:routes:register"]}}


@pytest.fixture
async def ahoy(tmp_path: Path) -> AsyncIterator[HttpClient]:
    """Serve a project whose plugin `ahoy` answers with a word."""
    write_plugin(tmp_path / "inn" / "plugins" / "ahoy", _files("old"), **ROUTES)
    async with Host(tmp_path / "inn") as host, served(host) as site:
        await host.grant("ahoy")
        yield site


def _files(word: str) -> dict[str, str]:
    return {"__init__.py": ANSWERS, "web.py": WEB.replace("WORD", word)}


async def test_a_plugin_is_switched_off_and_on(ahoy: HttpClient) -> None:
    assert (await ahoy.get("/api/x/ahoy/word")).status == 200

    answer = await ahoy.request("PUT", "/api/plugins/ahoy/state", json={"enabled": False})
    body = await answer.json()
    assert (answer.status, body["success"], body["message"]) == (200, True, "ahoy is disabled")
    assert body["plugins"][0]["isEnabled"] is False
    assert (await ahoy.get("/api/x/ahoy/word")).status == 404

    body = await (await ahoy.request("PUT", "/api/plugins/ahoy/state", json={"enabled": True})).json()
    assert (body["success"], body["message"]) == (True, "ahoy is started")
    assert await (await ahoy.get("/api/x/ahoy/word")).json() == "old"


async def test_the_list_of_plugins_is_sent_when_it_changed(ahoy: HttpClient) -> None:
    host, known = ahoy.host, ""

    async def new_list() -> dict[str, Any]:
        nonlocal known
        answer = await ahoy.get("/api/plugins", headers={"If-None-Match": known})
        assert answer.status == 200, "something has changed"
        listed, known = await answer.json(), answer.headers["ETag"]
        assert listed == [plugin.to_json() for plugin in host.plugins()]
        again = await ahoy.get("/api/plugins", headers={"If-None-Match": known})
        assert (again.status, await again.read()) == (304, b"")
        return {plugin["name"]: plugin for plugin in listed}["ahoy"]

    assert (await new_list())["state"] == "started"
    host.report_failure("ahoy", "its kitchen", ValueError("smoke"))
    assert "smoke" in (await new_list())["problems"][0]["message"]
    await host.disable("ahoy")
    assert (await new_list())["state"] == "disabled"
    await host.enable("ahoy")
    assert (await new_list())["contributions"]["route"] == ["GET /api/x/ahoy/word"]
    write_plugin(host.project.plugins / "ahoy", _files("new"), description="Repainted.", **ROUTES)
    await host.reload("ahoy")
    assert (await new_list())["state"] == "needs-review"
    await host.grant("ahoy")
    assert (await new_list())["description"] == "Repainted."


@pytest.mark.parametrize("body", ["{}", "[]", '{"enabled": 1}', '{"enabled": true, "more": 1}', "{", ""])
async def test_a_switch_says_true_or_false(ahoy: HttpClient, body: str) -> None:
    answer = await ahoy.request("PUT", "/api/plugins/ahoy/state", data=body)
    assert (answer.status, (await answer.json())["code"]) == (400, "invalid_input")
    assert ahoy.host.plugin("ahoy").state.value == "started"


@pytest.mark.parametrize(
    ("method", "path"),
    [("PUT", "/api/plugins/nope/state"), ("POST", "/api/plugins/nope/reload"), ("GET", "/api/why/plugin:nope")],
)
async def test_a_plugin_that_is_not_there_is_not_found(ahoy: HttpClient, method: str, path: str) -> None:
    answer = await ahoy.request(method, path, json={"enabled": True} if method == "PUT" else None)
    assert answer.status == 404
    assert "there is no plugin 'nope'" in (await answer.json())["error"]


async def test_all_plugins_are_looked_for_anew(ahoy: HttpClient) -> None:
    write_plugin(ahoy.host.project.plugins / "looks", description="A new one.")
    answer = await ahoy.post("/api/plugins/reload")
    body = await answer.json()
    assert (answer.status, body["success"], body["message"]) == (200, True, "looks is started")
    assert [plugin["name"] for plugin in body["plugins"]] == ["looks"]

    body = await (await ahoy.post("/api/plugins/reload")).json()
    assert (body["success"], body["message"]) == (True, "no plugin is new, changed or gone")


async def test_a_changed_plugin_is_read_anew_once_it_was_reviewed(ahoy: HttpClient) -> None:
    socket = await ahoy.socket()
    write_plugin(ahoy.host.project.plugins / "ahoy", _files("new"), **ROUTES)
    body = await (await ahoy.post("/api/plugins/ahoy/reload")).json()
    assert body["message"] == "ahoy is needs-review"
    assert (await ahoy.get("/api/x/ahoy/word")).status == 404
    await ahoy.post("/api/plugins/ahoy/grant")
    assert await (await ahoy.get("/api/x/ahoy/word")).json() == "new"
    told = []
    while not told or told[-1]["payload"]["state"] != "started":
        message = await socket.receive(timeout=60)
        assert message.type is WSMsgType.TEXT
        told.append(message.json())
    assert [(t["type"], t["payload"]["name"], t["payload"]["state"]) for t in told] == [
        ("PLUGINS_CHANGED", "ahoy", "needs-review"),
        ("PLUGINS_CHANGED", "ahoy", "started"),
    ]


async def test_a_first_party_plugin_is_not_read_anew(ahoy: HttpClient) -> None:
    answer = await ahoy.post("/api/plugins/tavern-engine/reload")
    assert (answer.status, (await answer.json())["error"]) == (
        409,
        "tavern-engine is first-party: restart the host to reload it",
    )


async def test_every_permission_is_listed_with_who_asks_for_it(ahoy: HttpClient) -> None:
    permissions = {p["name"]: p for p in await (await ahoy.get("/api/permissions")).json()}
    routes = permissions["hook:server:routes:register"]
    assert (routes["level"], routes["description"]) == ("add", "Answer HTTP requests and socket messages of its own.")
    assert {"name": "ahoy", "granted": True} in routes["plugins"]
    assert permissions["ui.override:ui:GraphEditor"] == {
        "name": "ui.override:ui:GraphEditor",
        "level": "override",
        "description": "Replace the canvas, and see all that it is given.",
        "plugins": [],
    }
    assert any(name.startswith("code:sha256:") for name in permissions)


async def test_an_explanation_is_had_over_http(ahoy: HttpClient) -> None:
    body = await (await ahoy.get("/api/why/service:toolManager")).json()
    assert (body["subject"], body["answer"]) == (
        "service:toolManager",
        "tavern-tools provides toolManager (version 4)",
    )
    assert (await ahoy.get("/api/why/nonsense")).status == 400
