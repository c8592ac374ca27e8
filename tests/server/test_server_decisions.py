"""Switching plugins on and off, reading them anew, and explanations, over HTTP in the platform's shapes."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
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
    for enabled, status, message in ((False, 404, "ahoy is disabled"), (True, 200, "ahoy is started")):
        answer = await ahoy.request("PUT", "/api/plugins/ahoy/state", json={"enabled": enabled})
        body = await answer.json()
        assert (answer.status, body["success"], body["message"]) == (200, True, message)
        assert body["plugins"][0]["isEnabled"] is enabled
        assert (await ahoy.get("/api/x/ahoy/word")).status == status
    for wrong in ("{}", "[]", '{"enabled": 1}', '{"enabled": true, "more": 1}', "{", ""):
        answer = await ahoy.request("PUT", "/api/plugins/ahoy/state", data=wrong)
        assert (answer.status, (await answer.json())["code"]) == (400, "invalid_input"), wrong
    assert ahoy.host.plugin("ahoy").state.value == "started"


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


async def test_new_and_changed_plugins_are_read_anew(ahoy: HttpClient) -> None:
    write_plugin(ahoy.host.project.plugins / "looks", description="A new one.")
    answer = await ahoy.post("/api/plugins/reload")
    body = await answer.json()
    assert (answer.status, body["success"], body["message"]) == (200, True, "looks is started")
    assert [plugin["name"] for plugin in body["plugins"]] == ["looks"]
    body = await (await ahoy.post("/api/plugins/reload")).json()
    assert (body["success"], body["message"]) == (True, "no plugin is new, changed or gone")

    shutil.rmtree(ahoy.host.project.plugins / "looks")
    body = await (await ahoy.post("/api/plugins/reload")).json()
    assert (body["message"], [plugin["state"] for plugin in body["plugins"]]) == ("looks is gone", ["gone"])

    socket = await ahoy.socket()
    write_plugin(ahoy.host.project.plugins / "ahoy", _files("new"), **ROUTES)
    body = await (await ahoy.post("/api/plugins/ahoy/reload")).json()
    assert (body["message"], (await ahoy.get("/api/x/ahoy/word")).status) == ("ahoy is needs-review", 404)
    granted = await (await ahoy.post("/api/plugins/ahoy/grant")).json()
    assert (granted["state"], {p["granted"] for p in granted["permissions"]}) == ("started", {True})
    assert await (await ahoy.get("/api/x/ahoy/word")).json() == "new"
    revoked = await (await ahoy.post("/api/plugins/ahoy/revoke")).json()
    assert revoked["state"] == "needs-review"
    assert {p["granted"] for p in revoked["permissions"] if p["level"] != "add"} == {False}
    told = [await socket.receive_json(timeout=60) for _ in range(3)]
    states = [{"name": "ahoy", "state": state} for state in ("needs-review", "started", "needs-review")]
    assert told == [
        {"type": "PLUGINS_CHANGED", "payload": state, "seq": t["seq"]} for state, t in zip(states, told, strict=True)
    ]
    answer = await ahoy.post("/api/plugins/tavern-engine/reload")
    message = "tavern-engine is first-party: restart the host to reload it"
    assert (answer.status, (await answer.json())["error"]) == (409, message)


async def test_every_permission_is_listed_and_explained(ahoy: HttpClient) -> None:
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
    body = await (await ahoy.get("/api/why/service:toolManager")).json()
    answer = "tavern-tools provides toolManager (version 5)"
    assert (body["subject"], body["answer"]) == ("service:toolManager", answer)
    assert (await ahoy.get("/api/why/nonsense")).status == 400


async def test_a_plugin_has_the_fields_of_the_platform(site: HttpClient) -> None:
    plugins = {plugin["name"]: plugin for plugin in await (await site.get("/api/plugins")).json()}
    acme = plugins["acme-web"]
    assert (acme["displayName"], acme["version"], acme["isEnabled"]) == ("Acme web", "1.2.0", True)
    assert (type(acme["description"]), type(acme["frontend"])) == (str, dict)
    option = {"key": "extensions.acme-web.maxItems", "type": "number", "label": "Most items"}
    assert acme["configOptions"] == [option | {"defaultValue": 10, "min": 1}]
    assert len(plugins) == 30
    for plugin in plugins.values():
        for key in ("name", "displayName", "version", "state"):
            assert isinstance(plugin[key], str) and plugin[key]
        assert (type(plugin["isEnabled"]), plugin["problems"]) == (bool, [])
        assert all(set(p) == {"name", "level", "description", "granted"} for p in plugin["permissions"])
    shown = await (await site.get("/api/plugins/tavern-engine")).json()
    assert shown["state"] == "started"
    assert "POST /api/prompt" in shown["contributions"]["route"]
    assert "PROMPT_REQUEST" in shown["contributions"]["message"]
