"""`/api/models`: a model is set up, tried, and forgotten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helpers.model_server import model_server, says

from tavern_host import Host
from tavern_host.testing.http import served

KEY = "sk-very-secret"


async def test_a_model_is_set_up_tried_and_forgotten_over_http(project: Path) -> None:
    serving = model_server(key=KEY, models=["large-model", "tiny"], default=says("Hello, traveller."))
    setups = {"parrot": {"adapter": "scripted", "file": "replies.yaml"}, "broken": {"alias": "nobody"}}
    settings = {"extensions.tavern-llm.models": {**setups, "fast": {"alias": "mine"}}}
    async with serving as server, Host(project=project, settings=settings) as host, served(host) as site:
        asked = {"name": "mine", "url": server.base_url, "key": KEY}

        async def send(method: str, path: str = "", **body: Any) -> tuple[int, Any]:
            answer = await site.request(method, f"/api/models{path}", **({"json": body} if body else {}))
            text = await answer.text()
            assert KEY not in text
            return answer.status, json.loads(text)

        async def found() -> dict[str, Any]:
            return {model["name"]: model for model in (await send("GET"))[1]["models"]}

        status, body = await send("POST", **asked)
        assert (status, body["details"]["models"]) == (400, ["large-model", "tiny"])
        for wrong, code, told in (
            ({"model": "tny"}, 400, "did you mean tiny?"),
            ({"key": "wrong", "model": "tiny"}, 503, "refuses the API key"),
            ({"url": "ftp://example.com"}, 400, "`url`: must be an address"),
            ({"url": ""}, 400, "`url` is missing"),
            ({"keyEnv": "X"}, 400, "give `key` or `keyEnv`, not both"),
            ({"name": "my model"}, 400, "is no name for a model"),
        ):
            status, body = await send("POST", **{**asked, **wrong})
            assert (status, told in body["detail"]) == (code, True), body
        (parrot,) = (await found()).values()
        assert (parrot["name"], parrot["isScripted"]) == ("parrot", True)

        prices = {"contextTokens": 8000, "priceInput": 0.5, "priceOutput": 1.5}
        status, body = await send("POST", **asked, **prices, model="tiny")
        assert (status, body["text"], body["model"], body["isDefault"]) == (200, "Hello, traveller.", "tiny", True)
        assert (await send("POST", **asked, model="tiny"))[0] == 409
        status, body = await send("POST", "/test", name="mine")
        assert (status, body["text"], body["promptTokens"]) == (200, "Hello, traveller.", 10)
        for path in ("/api/config", "/api/audit"):
            assert KEY not in await (await site.get(path)).text()
        mine = {"name": "mine", "adapter": "openai", **prices, "isScripted": False}
        listed = await found()
        assert sorted(listed) == ["fast", "mine", "parrot"]
        assert listed["mine"] == {**mine, "isDefault": True}
        assert listed["fast"] == {**mine, "name": "fast", "isDefault": False, "aliasOf": "mine"}

        await send("POST", **asked, model="tiny", replace=True)
        await send("POST", **{**asked, "name": "other"}, model="large-model")
        assert await send("PUT", "/default", name="other") == (200, {"name": "other"})
        assert (await send("PUT", "/default", name="none"))[0] == 404
        assert await send("DELETE", "/other") == (200, {"name": "other"})
        assert "other" not in await found()


async def test_a_short_key_is_said_to_be_short(project: Path) -> None:
    serving = model_server(key="k", models=["tiny"], default=says("Hello."))
    async with serving as server, Host(project=project) as host, served(host) as site:
        answer = await site.post("/api/models", json={"name": "mine", "url": server.base_url, "key": "k"})
        (notice,) = (await answer.json())["notices"]
        assert "The secret is short (1 of at least 8 characters)" in notice
