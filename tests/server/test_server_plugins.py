"""`/api/plugins`: the fields that the platform's pages read, and the operator's decisions over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers.folder_plugins import GREETS_IN_ITS_OWN_WAY, INTERCEPTING, write_plugin

from tavern_host import Host
from tavern_host.testing.http import HttpClient, served

EXTENSION_INFO = {
    "name": str,
    "displayName": str,
    "version": str,
    "description": str,
    "frontend": dict,
    "configOptions": list,
    "isEnabled": bool,
}
"""The platform's `ExtensionInfo`, for a plugin that has all of it."""


async def test_a_plugin_has_the_fields_of_the_platform(site: HttpClient) -> None:
    plugins = await (await site.get("/api/plugins")).json()

    acme = next(plugin for plugin in plugins if plugin["name"] == "acme-web")
    assert {key: type(acme[key]) for key in EXTENSION_INFO} == EXTENSION_INFO
    assert (acme["displayName"], acme["version"], acme["isEnabled"]) == ("Acme web", "1.2.0", True)
    assert acme["configOptions"] == [
        {
            "key": "extensions.acme-web.maxItems",
            "type": "number",
            "label": "Most items",
            "defaultValue": 10,
            "min": 1,
        }
    ]


async def test_every_plugin_has_what_each_must_have(site: HttpClient) -> None:
    plugins = await (await site.get("/api/plugins")).json()

    assert len(plugins) == len({plugin["name"] for plugin in plugins}) == 24
    for plugin in plugins:
        for key in ("name", "displayName", "version", "state"):
            assert isinstance(plugin[key], str) and plugin[key]
        assert isinstance(plugin["isEnabled"], bool)
        assert plugin["problems"] == []
        assert all(set(p) == {"name", "level", "description", "granted"} for p in plugin["permissions"])


async def test_one_plugin_is_shown_with_what_it_contributes(site: HttpClient) -> None:
    shown = await (await site.get("/api/plugins/tavern-engine")).json()

    assert shown["state"] == "started"
    assert "POST /api/prompt" in shown["contributions"]["route"]
    assert "PROMPT_REQUEST" in shown["contributions"]["message"]


async def test_what_is_granted_over_http_works_on_the_next_call_and_what_is_taken_back_does_not(tmp_path: Path) -> None:
    plugin = write_plugin(tmp_path / "ahoy", {"__init__.py": GREETS_IN_ITS_OWN_WAY}, **INTERCEPTING)
    async with Host(tmp_path / "inn", plugins=[plugin], sample=True) as host, served(host) as site:
        socket = await site.socket()

        async def greet() -> Any:
            body = {"toolId": "workflow:greeting", "arguments": {"name": "Ada"}}
            answer = await site.post("/api/tools/execute", json=body)
            return (await answer.json())["results"][0]["structured"]

        async def changed() -> Any:
            while (message := await socket.receive_json(timeout=60))["type"] != "PLUGINS_CHANGED":
                pass
            return message["payload"]

        assert await greet() == "Hello, Ada"
        granted = await (await site.post("/api/plugins/ahoy/grant")).json()
        assert (granted["state"], [p["granted"] for p in granted["permissions"]]) == ("started", [True, True])
        assert await changed() == {"name": "ahoy", "state": "started"}
        assert await greet() == "Ahoy, Ada"
        revoked = await (await site.post("/api/plugins/ahoy/revoke")).json()
        assert (revoked["state"], [p["granted"] for p in revoked["permissions"]]) == ("needs-review", [False, False])
        assert await changed() == {"name": "ahoy", "state": "needs-review"}
        assert await greet() == "Hello, Ada"
