"""Settings over HTTP: the platform's shapes, secrets masked, wrong bodies told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio
from helpers.folder_plugins import write_plugin
from helpers.repetition import Failures

from tavern_host import Host
from tavern_host.testing.http import HttpClient, served

PREFIX = "extensions.acme-bar."
OPTIONS = [
    {"key": f"{PREFIX}colour", "type": "string", "label": "Colour", "defaultValue": "red", "categoryKey": "look"},
    {"key": f"{PREFIX}maxItems", "type": "number", "label": "Most items", "min": 1, "max": 50},
    {"key": f"{PREFIX}token", "type": "password", "label": "Token"},
    {"key": f"{PREFIX}models", "type": "json", "label": "Models", "secretKeys": ["api_key"]},
    {"key": f"{PREFIX}tidy", "type": "action", "label": "Tidy", "buttonText": "Go"},
]
ASKED = {"permissions": {"hooks": ["hook:server:settings:before-save"]}}
REFUSES = """
from tavern_host import Veto, hookimpl

@hookimpl
def tavern_before_save_settings(change):
    return Veto(reason="not on Sundays") if change.values.get("extensions.acme-bar.colour") == "black" else None
"""
SETTINGS = "/api/plugins/acme-bar/settings"


@pytest_asyncio.fixture(loop_scope="module")
async def site(tmp_path: Path) -> AsyncIterator[HttpClient]:
    """Serve a project with a plugin that has settings, one that is asked before they are saved, and one without."""
    bar = write_plugin(tmp_path / "acme_bar", configOptions=OPTIONS)
    asked = write_plugin(tmp_path / "acme_asked", {"__init__.py": REFUSES}, **ASKED)
    plugins = [bar, asked, write_plugin(tmp_path / "acme_plain")]
    async with Host(tmp_path / "inn", plugins=plugins, trust=["acme-asked"]) as host, served(host) as opened:
        yield opened


async def save(site: HttpClient, body: Any, status: int = 200) -> dict[str, Any]:
    answer = await site.post(SETTINGS, json=body)
    assert answer.status == status, await answer.text()
    told: dict[str, Any] = await answer.json()
    return told


async def test_settings_are_saved_masked_and_taken_back(site: HttpClient) -> None:
    answer = await site.get(SETTINGS)
    assert (answer.status, answer.content_type) == (200, "application/json")
    first = {f"{PREFIX}{key}": "red" if key == "colour" else None for key in ("colour", "maxItems", "token", "models")}
    assert await answer.json() == first
    told = await save(site, {"maxItems": 12, f"{PREFIX}colour": "blue"})
    assert (told["success"], told["message"]) == (True, "The settings of acme-bar are saved.")
    assert told["settings"] == await (await site.get(SETTINGS)).json()
    assert (told["settings"][f"{PREFIX}maxItems"], told["settings"][f"{PREFIX}colour"]) == (12, "blue")
    assert (await save(site, {"maxItems": None, "colour": None}))["settings"] == first

    socket = await site.socket()
    told = await save(site, {"token": "hunter2", "models": {"m": {"api_key": "hunter2", "url": "u"}}})
    assert "The secret is short (7 of at least 8 characters)" in told["message"]
    assert [notice in told["message"] for notice in told["notices"]] == [True]
    while (message := await socket.receive_json(timeout=60))["type"] != "SETTINGS_CHANGED":
        pass
    assert message["payload"] == {"plugin": "acme-bar", "keys": [f"{PREFIX}models", f"{PREFIX}token"]}
    await socket.close()
    answer = await site.get(SETTINGS)
    assert "hunter2" not in await answer.text()
    told = await answer.json()
    assert told[f"{PREFIX}token"] == "********"
    assert told[f"{PREFIX}models"] == {"m": {"api_key": "********", "url": "u"}}
    told.pop(f"{PREFIX}maxItems")
    again = await save(site, told)
    assert (again["settings"][f"{PREFIX}token"], "short" in again["message"]) == ("********", False)
    assert await (await site.get("/api/plugins/acme-plain/settings")).json() == {}


async def test_a_wrong_body_is_told(site: HttpClient) -> None:
    shape = 'the body must be an object of new values by key, such as {"maxItems": 5}'
    rows = [
        ({"maxItem": 5}, "acme-bar has no setting 'maxItem' (did you mean maxItems?)"),
        ({"maxItems": "many"}, f"'{PREFIX}maxItems' must be a number, found 'many'"),
        ({"maxItems": 51}, f"'{PREFIX}maxItems' must be at most 50, found 51"),
        ({"tidy": True}, f"'{PREFIX}tidy' is a button and holds no value"),
        ({"token": "********"}, f"'{PREFIX}token' is a secret that is not set yet: give the secret itself"),
        ([], shape),
        ("maxItems", shape),
    ]
    with Failures() as failures:
        for body, message in rows:
            with failures.row(body):
                told = await save(site, body, 400)
                assert (told["success"], told["code"]) == (False, "invalid_input")
                assert told["error"] == told["message"] == message
        for name in ("acme-ba", "nobody", "acme-bar%2F..", "%00"):
            for method, body in (("GET", None), ("POST", {})):
                with failures.row((method, name)):
                    answer = await site.request(method, f"/api/plugins/{name}/settings", json=body)
                    assert (answer.status, (await answer.json())["code"]) == (404, "not_found")
    told = await save(site, {"maxItems": 0, "colour": 5}, 400)
    assert told["message"].startswith("2 settings of acme-bar cannot be saved: ")
    assert [problem["key"] for problem in told["details"]["problems"]] == [f"{PREFIX}maxItems", f"{PREFIX}colour"]


async def test_any_text_can_be_saved_unless_refused(site: HttpClient) -> None:
    answer = await site.post(SETTINGS, data=rb'{"colour": "\ud83c\udf7a \u0000 \u2028"}')
    assert (await answer.json())["settings"][f"{PREFIX}colour"] == "\U0001f37a \0 \u2028"
    for refused in (rb'{"\ud83c": 1}', rb'{"colour": "\ud83c"}'):
        answer = await site.post(SETTINGS, data=refused)
        assert (answer.status, (await answer.json())["code"]) == (400, "invalid_input")
    told = await save(site, {"colour": "black", "maxItems": 3}, 403)
    assert (told["code"], told["message"]) == ("vetoed", "acme-asked refused: not on Sundays")
    assert (await (await site.get(SETTINGS)).json())[f"{PREFIX}maxItems"] is None


async def test_the_configuration_has_all_options_with_values(site: HttpClient) -> None:
    await save(site, {"token": "hunter2", "maxItems": 12})
    answer = await site.get("/api/config")
    assert "hunter2" not in await answer.text()
    options = {option["key"]: option for option in await answer.json()}
    of_all = {"secret": False, "operatorOnly": False, "plugin": "acme-bar"}
    assert options[f"{PREFIX}colour"] == OPTIONS[0] | of_all | {"value": "red", "origin": "default", "isSet": True}
    told = {key: (o["value"], o["origin"], o["isSet"], o["secret"]) for key, o in options.items() if PREFIX in key}
    assert told == {
        f"{PREFIX}colour": ("red", "default", True, False),
        f"{PREFIX}maxItems": (12, "operator", True, False),
        f"{PREFIX}token": ("********", "operator", True, True),
        f"{PREFIX}models": (None, "default", False, False),
        f"{PREFIX}tidy": (None, "default", False, False),
    }
    assert options[f"{PREFIX}tidy"]["buttonText"] == "Go"
    assert {option["plugin"] for option in options.values()} >= {"acme-bar", "tavern-llm"}
    await site.host.disable("acme-bar")
    options = await (await site.get("/api/config")).json()
    assert "acme-bar" not in {option["plugin"] for option in options}
    assert (await site.get(SETTINGS)).status == 200
