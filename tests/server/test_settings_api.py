"""Settings over HTTP: the platform's shapes, secrets masked, wrong bodies told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from helpers.folder_plugins import write_plugin

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
    plain = write_plugin(tmp_path / "acme_plain")
    plugins = [bar, asked, plain]
    async with Host(tmp_path / "inn", plugins=plugins, trust=["acme-asked"]) as host, served(host) as opened:
        yield opened


async def save(site: HttpClient, body: Any, status: int = 200) -> dict[str, Any]:
    answer = await site.post(SETTINGS, json=body)
    assert answer.status == status, await answer.text()
    told: dict[str, Any] = await answer.json()
    return told


async def test_settings_are_a_flat_object_by_full_key(site: HttpClient) -> None:
    answer = await site.get(SETTINGS)
    assert (answer.status, answer.content_type) == (200, "application/json")
    assert await answer.json() == {
        f"{PREFIX}colour": "red",
        f"{PREFIX}maxItems": None,
        f"{PREFIX}token": None,
        f"{PREFIX}models": None,
    }


async def test_settings_are_saved_by_full_and_by_short_key(site: HttpClient) -> None:
    told = await save(site, {"maxItems": 12, f"{PREFIX}colour": "blue"})
    assert (told["success"], told["message"]) == (True, "The settings of acme-bar are saved.")
    assert told["settings"] == await (await site.get(SETTINGS)).json()
    assert (told["settings"][f"{PREFIX}maxItems"], told["settings"][f"{PREFIX}colour"]) == (12, "blue")


async def test_null_takes_the_saved_value_back(site: HttpClient) -> None:
    await save(site, {"maxItems": 12, "colour": "blue"})
    told = await save(site, {"maxItems": None, "colour": None})
    assert (told["settings"][f"{PREFIX}maxItems"], told["settings"][f"{PREFIX}colour"]) == (None, "red")


async def test_secrets_are_masked_and_all_of_an_answer_can_be_sent_back(site: HttpClient) -> None:
    await save(site, {"token": "hunter2", "models": {"m": {"api_key": "hunter2", "url": "u"}}})
    answer = await site.get(SETTINGS)
    assert "hunter2" not in await answer.text()
    told = await answer.json()
    assert told[f"{PREFIX}token"] == "********"
    assert told[f"{PREFIX}models"] == {"m": {"api_key": "********", "url": "u"}}
    told.pop(f"{PREFIX}maxItems")

    assert (await save(site, told))["settings"][f"{PREFIX}token"] == "********"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"maxItem": 5}, "acme-bar has no setting 'maxItem' (did you mean maxItems?)"),
        ({"maxItems": "many"}, f"'{PREFIX}maxItems' must be a number, found 'many'"),
        ({"maxItems": 51}, f"'{PREFIX}maxItems' must be at most 50, found 51"),
        ({"tidy": True}, f"'{PREFIX}tidy' is a button and holds no value"),
        ({"token": "********"}, f"'{PREFIX}token' is a secret that is not set yet: give the secret itself"),
        ([], 'the body must be an object of new values by key, such as {"maxItems": 5}'),
        ("maxItems", 'the body must be an object of new values by key, such as {"maxItems": 5}'),
    ],
)
async def test_a_wrong_body_is_told(site: HttpClient, body: Any, message: str) -> None:
    told = await save(site, body, 400)
    assert (told["success"], told["code"], told["error"], told["message"]) == (False, "invalid_input", message, message)


async def test_every_problem_is_told_with_its_key(site: HttpClient) -> None:
    told = await save(site, {"maxItems": 0, "colour": 5}, 400)
    assert told["message"].startswith("2 settings of acme-bar cannot be saved: ")
    assert [problem["key"] for problem in told["details"]["problems"]] == [f"{PREFIX}maxItems", f"{PREFIX}colour"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"{",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"maxItems": NaN}',
        b'{"maxItems": 1e999}',
        b'{"maxItems": 1' + b"0" * 5000 + b"}",
    ],
)
async def test_what_is_no_json_is_told(site: HttpClient, body: bytes) -> None:
    answer = await site.post(SETTINGS, data=body, headers={"Content-Type": "application/json"})
    assert answer.status == 400
    assert (await answer.json())["code"] == "invalid_input"


async def test_any_text_can_be_saved_without_half_characters(site: HttpClient) -> None:
    answer = await site.post(SETTINGS, data=rb'{"colour": "\ud83c\udf7a \u0000 \u2028"}')
    assert (await answer.json())["settings"][f"{PREFIX}colour"] == "\U0001f37a \0 \u2028"
    answer = await site.post(SETTINGS, data=rb'{"colour": "\ud83c"}')
    assert (await answer.json())["settings"][f"{PREFIX}colour"] == "\ufffd"
    answer = await site.post(SETTINGS, data=rb'{"\ud83c": 1}')
    assert (answer.status, (await answer.json())["code"]) == (400, "invalid_input")


async def test_a_refusal_is_told_with_who_and_why(site: HttpClient) -> None:
    told = await save(site, {"colour": "black", "maxItems": 3}, 403)
    assert (told["code"], told["message"]) == ("vetoed", "acme-asked refused: not on Sundays")
    assert (await (await site.get(SETTINGS)).json())[f"{PREFIX}maxItems"] is None


@pytest.mark.parametrize("name", ["acme-ba", "nobody", "acme-bar%2F..", "%00"])
async def test_a_plugin_that_there_is_not_is_told(site: HttpClient, name: str) -> None:
    for method in ("GET", "POST"):
        answer = await site.request(
            method, f"/api/plugins/{name}/settings", **({"json": {}} if method == "POST" else {})
        )
        assert (answer.status, (await answer.json())["code"]) == (404, "not_found")


async def test_a_plugin_without_settings_has_none(site: HttpClient) -> None:
    assert await (await site.get("/api/plugins/acme-plain/settings")).json() == {}


async def test_the_configuration_has_the_options_of_all_plugins_with_their_values(site: HttpClient) -> None:
    await save(site, {"token": "hunter2", "maxItems": 12})
    answer = await site.get("/api/config")
    assert "hunter2" not in await answer.text()
    options = {option["key"]: option for option in await answer.json()}
    assert options[f"{PREFIX}colour"] == {
        "key": f"{PREFIX}colour",
        "type": "string",
        "label": "Colour",
        "defaultValue": "red",
        "categoryKey": "look",
        "secret": False,
        "operatorOnly": False,
        "plugin": "acme-bar",
        "value": "red",
        "origin": "default",
        "isSet": True,
    }
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


async def test_a_disabled_plugin_is_not_part_of_the_configuration(tmp_path: Path, operator_folders: Path) -> None:
    (operator_folders / "config").mkdir(parents=True)
    (operator_folders / "config" / "host.yaml").write_text("disabled: [acme-bar]")
    bar = write_plugin(tmp_path / "acme_bar", configOptions=OPTIONS)
    async with Host(tmp_path / "inn", plugins=[bar]) as host, served(host) as site:
        options = await (await site.get("/api/config")).json()
        assert "acme-bar" not in {option["plugin"] for option in options}
        assert (await site.get(SETTINGS)).status == 200


async def test_a_page_is_told_of_changed_keys(site: HttpClient) -> None:
    socket = await site.socket()
    await save(site, {"token": "hunter2"})
    message = await socket.receive_json(timeout=60)
    while message["type"] != "SETTINGS_CHANGED":
        message = await socket.receive_json(timeout=60)
    assert message["payload"] == {"plugin": "acme-bar", "keys": [f"{PREFIX}token"]}
    await socket.close()
