"""Requests to routes: what a plugin's handler sees, and how its answers and failures come back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from helpers.folder_plugins import write_plugin
from helpers.held_time import HeldClock
from helpers.repetition import Failures
from helpers.waiting import until
from yarl import URL

from tavern_host import Host
from tavern_host.contracts.accounts import ACCOUNTS
from tavern_host.server import app as server
from tavern_host.server import gate, plugin_routes
from tavern_host.testing.http import TOKEN, HttpClient, served

ECHO = "/api/x/acme-web/echo"


async def test_a_handler_sees_the_request_as_data(site: HttpClient) -> None:
    answer = await site.request("PUT", f"{ECHO}/Ada?a=1&b=x%20y", data="Grüße".encode(), headers={"X-Mood": "good"})
    assert (answer.status, answer.headers["X-Acme"]) == (201, "yes")
    seen = await answer.json()
    assert (seen["method"], seen["path"], seen["parameters"]) == ("PUT", f"{ECHO}/Ada", {"name": "Ada"})
    assert (seen["query"], seen["headers"]["x-mood"], seen["body"]) == ({"a": "1", "b": "x y"}, "good", "Grüße")
    assert seen["principal"] == "operator"
    parts = {"a%20b": "a b", "a%2Fb": "a/b", "a%252Fb": "a%2Fb", "a%25b": "a%b", "%E4%BD%A0": "你", "a:b": "a:b"}
    for written, meant in parts.items():
        answer = await site.get(URL(f"{ECHO}/{written}", encoded=True))  # as it is written
        assert (await answer.json())["parameters"] == {"name": meant}, "a part of the path is decoded once"


async def test_a_handler_answers_in_every_way(site: HttpClient) -> None:
    for path in (f"{ECHO}/a", "/", "/api/plugins", "/plugins/acme-web/index.js"):
        answer = await site.request("HEAD", path)
        assert (answer.status, await answer.read()) == (200, b""), path
    answer = await site.get("/api/x/acme-web/page")
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert await answer.text() == "<p>Grüße</p>"
    answer = await site.post("/api/x/acme-web/json", data=r'"\ud83c\udf7a"')
    assert await answer.json() == "\U0001f37a"


async def test_each_error_has_its_status(site: HttpClient) -> None:
    with Failures() as failures:
        for how, status, code, message, details, wait in (
            ("input", 400, "invalid_input", "not like that", {"field": "name"}, None),
            ("denied", 403, "permission_denied", "not you", None, None),
            ("forbidden", 403, "forbidden", "nobody", None, None),
            ("vetoed", 403, "vetoed", "not today", None, None),
            ("missing", 404, "not_found", "not here", None, None),
            ("conflict", 409, "conflict", "not any more", None, None),
            ("spent", 429, "limit_reached", "not today", {"retry_after": 0.2, "used": 7}, "1"),
            ("limited", 429, "limit_reached", "never", None, None),
            ("plugin", 500, "plugin_error", "not well", None, None),
            ("unavailable", 503, "service_unavailable", "not now", None, None),
            ("busy", 503, "service_unavailable", "not now", {"retry_after": 3}, "3"),
            ("late", 504, "deadline_exceeded", "not in time", None, None),
        ):
            with failures.row(how):
                answer = await site.get(f"/api/x/acme-web/fail/{how}")
                body = await answer.json()
                assert (answer.status, body["code"], body["error"]) == (status, code, message)
                assert (body["success"], body["message"], body.get("details")) == (False, message, details)
                assert answer.headers.get("Retry-After") == wait


async def test_more_requests_than_there_may_be_wait(site: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "MOST_REQUESTS", 1)
    async with site.client.get("/api/x/acme-web/events/0", headers={"Authorization": f"Bearer {TOKEN}"}) as pending:
        assert pending.status == 200
        answer = await site.get("/api/plugins")
        assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
        await (await site.socket()).close()
        pending.close()

    async def is_answered() -> bool:
        return (await site.get("/api/plugins")).status == 200

    await until(is_answered, "there is room for a request")


async def test_what_is_too_large_is_refused(site: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = await site.post("/api/x/acme-web/json", data=b" " * (server.MAX_BODY + 1))
    assert (answer.status, (await answer.json())["code"]) == (413, "too_large")
    monkeypatch.setattr(plugin_routes, "MAX_ANSWER", 20)
    for path, status in (("page", 200), (f"echo/{'a' * 20}", 500)):
        assert (await site.get(f"/api/x/acme-web/{path}")).status == status, path


async def test_a_failure_tells_the_client_nothing(
    site: HttpClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("tavern"), "propagate", True)
    error = "acme-web failed in GET /api/x/acme-web/fail/{how}; the log says why"
    of_the_rfc = {"type": "urn:tavern-host:error:plugin_error", "title": "Internal Server Error", "status": 500}
    ours = {"code": "plugin_error", "error": error, "success": False, "message": error}
    for how, logged in (("foreign", "swordfish"), ("nothing", "expected an HttpResponse")):
        answer = await site.get(f"/api/x/acme-web/fail/{how}")
        assert (answer.status, await answer.json()) == (500, {**of_the_rfc, "detail": error, **ours})
        assert answer.content_type == "application/problem+json"
        assert logged in caplog.text
        assert "GET /api/x/acme-web/fail/{how}: " in site.host.plugin("acme-web").problems[-1].message
    for how in ("nan", "header"):  # what is not JSON, and a header smuggled into the answer
        answer = await site.get(f"/api/x/acme-web/fail/{how}")
        assert (answer.status, (await answer.json())["code"]) == (500, "plugin_error")
        assert "Set-Cookie" not in answer.headers


NOT_THERE = (
    "GET prompt/* | DELETE interrupt/* | GET tools/* | GET plugins/* | POST plugins/*/grant | POST plugins/*/revoke"
    " | PUT plugins/*/state | POST plugins/*/reload | GET why/plugin:* | POST agents/*/run"
)


async def test_where_nothing_is_the_answer_says_so(site: HttpClient) -> None:
    with Failures() as failures:
        for path in ("/nowhere", "/api", "/api/x/acme-web", f"{ECHO}/", f"{ECHO}/a/b", "/%ff", "/api/tools/execute/"):
            with failures.row(path):
                answer = await site.get(path)
                assert (answer.status, (await answer.json())["code"]) == (404, "not_found")
                assert (await answer.json())["error"].startswith("there is nothing at /")
        for row in NOT_THERE.split(" | "):
            method, path = row.split()
            with failures.row(row):
                body = {"message": "hi"} if "agents" in path else {"enabled": True}
                answer = await site.request(method, f"/api/{path.replace('*', 'nowhere')}", json=body)
                assert answer.status == 404
                assert "nowhere" in (await answer.json())["message"]


async def test_a_wrong_method_is_told_the_right_ones(site: HttpClient) -> None:
    with Failures() as failures:
        for method, path, allowed in (
            ("POST", f"{ECHO}/a", {"GET", "PUT"}),
            ("DELETE", "/api/x/acme-web/json", {"POST"}),
            ("OPTIONS", f"{ECHO}/a", {"GET", "PUT"}),
            ("POST", "/", {"GET"}),
            ("POST", "/ws", {"GET"}),
            ("PUT", "/api/plugins/acme-web", {"GET"}),
            ("GET", "/api/plugins/acme-web/grant", {"POST"}),
            ("POST", "/plugins/acme-web/index.js", {"GET"}),
            ("GET", "/api/plugins/acme-web/state", {"PUT"}),
            ("DELETE", "/api/plugins/acme-web/settings", {"GET", "POST"}),
        ):
            with failures.row(f"{method} {path}"):
                answer = await site.request(method, path)
                assert (answer.status, (await answer.json())["code"]) == (405, "method_not_allowed")
                assert set(answer.headers["Allow"].replace(" ", "").split(",")) == allowed
                assert (await answer.json())["error"].startswith(f"{path} takes ")


# --- the routes of the first-party plugins ----------------------------------------------------------


async def test_what_there_is_can_be_read(site: HttpClient) -> None:
    async def read(path: str) -> Any:
        return await (await site.get(path)).json()

    assert "TextMerge" in {node["type"] for node in await read("/api/nodes")}
    assert "workflow:greeting" in {tool["id"] for tool in await read("/api/tools")}
    agents = ["assistant", "companion", "mira", "tomas", "creation-assistant"]
    assert [agent["id"] for agent in await read("/api/agents")] == agents
    assert await read("/api/executions") == {"running": [], "pending": []}
    for path in ("/api/tools/workflow:greeting", "/api/tools/workflow%3Agreeting"):
        assert (await read(path))["id"] == "workflow:greeting"


async def test_a_tool_is_called_by_id_and_by_text(site: HttpClient) -> None:
    text = "<|[REQUEST_TOOL]|>\ncommand:「始」text:shout「末」\ntext:「始」hi「末」\n<|[END_TOOL]|>"
    for body in ({"toolId": "text:shout", "arguments": {"text": "hi"}}, {"text": text}):
        answer = await site.post("/api/tools/execute", json=body)
        (result,) = (await answer.json())["results"]
        assert (answer.status, result["status"], result["structured"]) == (200, "done", "HI")
    answer = await site.post("/api/tools/execute", json={"toolId": "nobody:knows"})
    assert (answer.status, (await answer.json())["results"][0]["error"]["type"]) == (200, "ToolNotFound")


WAYS = {
    "def": "task.cancel()",
    "at once": "task.cancel()",
    "twice": "task.cancel(); task.cancel()",
    "waits": "task.cancel(); await asyncio.sleep(60)",
    "fails": "task.cancel(); raise ValueError('no')",
    "later": "await asyncio.sleep(0); task.cancel()",
    "suppresses": "task.cancel()\n        with contextlib.suppress(BaseException): await asyncio.sleep(60)",
}
"""Bodies of a hook, the first one of a `def`."""


def cancelling(folder: Path, kind: str, ways: Iterable[str]) -> Path:
    """Write a plugin whose hook cancels the task in which it is called, in the way that the call's text says."""
    code = "import asyncio, contextlib\nfrom tavern_host import hookimpl\n\n@hookimpl\n"
    code += f"{kind} tavern_before_tool_call(request):\n    task = asyncio.current_task()\n"
    code += "".join(f"    if request.arguments.get('text') == {way!r}:\n        {WAYS[way]}\n" for way in ways)
    hooks = {"hooks": ["hook:server:tool:before-call"]}
    return write_plugin(folder, {"__init__.py": code}, permissions=hooks)


async def test_a_hook_that_cancels_its_caller_is_named(tmp_path: Path) -> None:
    first, *rest = WAYS
    plugins = [cancelling(tmp_path / "acme-def", "def", [first]), cancelling(tmp_path / "acme", "async def", rest)]
    async with Host(tmp_path / "inn", dev=plugins, sample=True) as host, served(host) as own:
        with Failures() as failures:
            for way in WAYS:
                call = {"toolId": "text:shout", "arguments": {"text": way}}
                answer = await own.post("/api/tools/execute", json=call)
                with failures.row(way):
                    (result,) = (await answer.json())["results"]
                    assert result["status"] == "error"
                    assert "acme" in result["error"]["message"]
                    assert "cancelled the task that called it" in result["error"]["message"]
        assert (await own.get("/api/plugins")).status == 200


async def test_events_are_sent_until_they_end(site: HttpClient) -> None:
    answer = await site.get("/api/x/acme-web/events/2")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream")
    assert await answer.text() == "event: number\ndata: 0\n\nevent: number\ndata: 1\n\n"
    failing = await site.get("/api/x/acme-web/events/3")
    assert (await failing.text()).endswith("data: 2\n\n")
    [problem] = [p.message for p in site.host.plugin("acme-web").problems if "no more numbers" in p.message]
    assert problem.startswith("GET /api/x/acme-web/events/{count}")


async def test_events_end_with_the_session(own_site: HttpClient, held_clock: HeldClock) -> None:
    accounts = own_site.host.services.get(ACCOUNTS)
    await accounts.add_user("ann", "good evening")
    for ending in ("token", "membership"):
        made = await accounts.make_token("ann", "test")
        headers = {"Authorization": f"Bearer {made.token}"}
        async with own_site.client.get("/api/x/acme-web/events/0", headers=headers) as answer:
            assert await answer.content.readuntil(b":\n\n")
            if ending == "token":
                await accounts.end_sessions("ann", made.session.id)
            else:
                await accounts.set_open(False)
            held_clock.advance(gate.STILL_IN + 1)
            while await answer.content.read(1 << 16):
                pass


async def test_events_are_closed_when_the_client_is_gone(own_site: HttpClient) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", own_site.port)
    head = f"Host: 127.0.0.1:{own_site.port}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    writer.write(f"GET /api/x/acme-web/events/0 HTTP/1.1\r\n{head}".encode())
    await reader.readuntil(b":\n\n")
    closed = own_site.host.events.subscribe("acme-web.closed")
    writer.close()
    assert (await anext(aiter(closed))).type == "acme-web.closed"
