"""Requests to routes: what a plugin's handler sees, and how its answers and failures come back."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable
from pathlib import Path

import pytest
from helpers.folder_plugins import write_plugin
from helpers.repetition import Failures

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


@pytest.mark.parametrize(
    ("written", "meant"),
    [("a%20b", "a b"), ("a%2Fb", "a/b"), ("a%252Fb", "a%2Fb"), ("a%25b", "a%b"), ("%E4%BD%A0", "你"), ("a:b", "a:b")],
)
async def test_a_part_of_the_path_is_decoded_once(site: HttpClient, written: str, meant: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    head = f"GET {ECHO}/{written} HTTP/1.1\r\nHost: 127.0.0.1:{site.port}\r\nAuthorization: Bearer {TOKEN}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n".encode())
    body = (await reader.read()).partition(b"\r\n\r\n")[2]
    writer.close()

    assert json.loads(body)["parameters"] == {"name": meant}


async def test_head_is_answered_like_get_without_the_body(site: HttpClient) -> None:
    for path in (f"{ECHO}/a", "/", "/api/plugins", "/plugins/acme-web/index.js"):
        answer = await site.request("HEAD", path)
        assert (answer.status, await answer.read()) == (200, b""), path


async def test_a_handler_may_answer_with_a_page(site: HttpClient) -> None:
    answer = await site.get("/api/x/acme-web/page")

    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert await answer.text() == "<p>Grüße</p>"


@pytest.mark.parametrize(
    ("how", "status", "code", "message"),
    [
        ("input", 400, "invalid_input", "not like that"),
        ("denied", 403, "permission_denied", "not you"),
        ("forbidden", 403, "forbidden", "nobody"),
        ("vetoed", 403, "vetoed", "not today"),
        ("missing", 404, "not_found", "not here"),
        ("conflict", 409, "conflict", "not any more"),
        ("unavailable", 503, "service_unavailable", "not now"),
        ("late", 504, "deadline_exceeded", "not in time"),
        ("plugin", 500, "plugin_error", "not well"),
    ],
)
async def test_each_error_has_its_status(site: HttpClient, how: str, status: int, code: str, message: str) -> None:
    answer = await site.get(f"/api/x/acme-web/fail/{how}")

    body = await answer.json()
    assert (answer.status, body["code"], body["error"]) == (status, code, message)
    assert (body["success"], body["message"]) == (False, message)
    assert body.get("details") == ({"field": "name"} if how == "input" else None)


async def test_a_limit_says_when_to_come_back(site: HttpClient) -> None:
    rows = [("busy", 503, "3"), ("spent", 429, "1"), ("limited", 429, None), ("unavailable", 503, None)]
    for how, status, wait in rows:
        answer = await site.get(f"/api/x/acme-web/fail/{how}")
        assert (answer.status, answer.headers.get("Retry-After")) == (status, wait), how
    assert (await (await site.get("/api/x/acme-web/fail/spent")).json())["details"] == {"retry_after": 0.2, "used": 7}


async def test_more_requests_than_there_may_be_wait(site: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "MOST_REQUESTS", 1)
    async with site.client.get("/api/x/acme-web/events/0", headers={"Authorization": f"Bearer {TOKEN}"}) as pending:
        assert pending.status == 200
        answer = await site.get("/api/plugins")
        assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
        await (await site.socket()).close()
        pending.close()
    async with asyncio.timeout(60):
        while (await site.get("/api/plugins")).status == 429:
            await asyncio.sleep(0.01)


async def test_a_larger_answer_than_may_be_fails(site: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_routes, "MAX_ANSWER", 20)
    for path, status in (("page", 200), (f"echo/{'a' * 20}", 500)):
        assert (await site.get(f"/api/x/acme-web/{path}")).status == status, path


@pytest.mark.parametrize("how", ["foreign", "nothing"])
async def test_an_unforeseen_failure_tells_the_client_nothing_but_where(
    site: HttpClient, how: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("tavern"), "propagate", True)
    answer = await site.get(f"/api/x/acme-web/fail/{how}")

    assert answer.status == 500
    error = "acme-web failed in GET /api/x/acme-web/fail/{how}; the log says why"
    of_the_rfc = {"type": "urn:tavern-host:error:plugin_error", "title": "Internal Server Error", "status": 500}
    ours = {"code": "plugin_error", "error": error, "success": False, "message": error}
    assert await answer.json() == {**of_the_rfc, "detail": error, **ours}
    assert answer.content_type == "application/problem+json"
    assert ("swordfish" if how == "foreign" else "expected an HttpResponse") in caplog.text
    assert "GET /api/x/acme-web/fail/{how}: " in site.host.plugin("acme-web").problems[-1].message


async def test_what_is_not_json_is_not_sent_as_json(site: HttpClient) -> None:
    answer = await site.get("/api/x/acme-web/fail/nan")

    assert (answer.status, (await answer.json())["code"]) == (500, "plugin_error")


async def test_half_a_character_arrives_as_replacement_character(site: HttpClient) -> None:
    answer = await site.post("/api/x/acme-web/json", data=r'"a\ud800"')

    assert await answer.json() == "a\ufffd"


async def test_a_header_cannot_be_smuggled_into_an_answer(site: HttpClient) -> None:
    answer = await site.get("/api/x/acme-web/fail/header")

    assert answer.status == 500
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("path", ["/nowhere", "/api", "/api/x/acme-web", f"{ECHO}/", f"{ECHO}/a/b", "/%ff"])
async def test_where_nothing_is_the_answer_says_so(site: HttpClient, path: str) -> None:
    answer = await site.get(path)

    assert answer.status == 404
    body = await answer.json()
    assert body["code"] == "not_found"
    assert body["error"].startswith("there is nothing at /")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", f"{ECHO}/a", {"GET", "PUT"}),
        ("DELETE", "/api/x/acme-web/json", {"POST"}),
        ("OPTIONS", f"{ECHO}/a", {"GET", "PUT"}),
        ("POST", "/", {"GET"}),
        ("POST", "/ws", {"GET"}),
        ("DELETE", "/api/plugins", {"GET"}),
        ("PUT", "/api/plugins/acme-web", {"GET"}),
        ("GET", "/api/plugins/acme-web/grant", {"POST"}),
        ("GET", "/api/plugins/acme-web/revoke", {"POST"}),
        ("POST", "/plugins/acme-web/index.js", {"GET"}),
        ("GET", "/api/plugins/acme-web/state", {"PUT"}),
        ("GET", "/api/plugins/acme-web/reload", {"POST"}),
        ("DELETE", "/api/plugins/acme-web/settings", {"GET", "POST"}),
        ("POST", "/api/permissions", {"GET"}),
        ("POST", "/api/config", {"GET"}),
        ("GET", "/api/tools/execute/", None),
    ],
)
async def test_a_wrong_method_is_told_the_right_ones(
    site: HttpClient, method: str, path: str, allowed: set[str] | None
) -> None:
    answer = await site.request(method, path)

    if allowed is None:
        assert answer.status == 404
        return
    assert answer.status == 405
    assert set(answer.headers["Allow"].replace(" ", "").split(",")) == allowed
    assert (await answer.json())["code"] == "method_not_allowed"
    assert (await answer.json())["error"].startswith(f"{path} takes ")


# --- the routes of the first-party plugins ----------------------------------------------------------


@pytest.mark.parametrize("body", [b"", b"{", b'{"a": }', b"\xff\xfe", b"[" * 100_000, b'{"text": "a\nb"}'])
@pytest.mark.parametrize("path", ["/api/prompt", "/api/tools/execute", "/api/agents/assistant/run"])
async def test_a_body_that_is_not_json_is_the_clients_mistake(site: HttpClient, path: str, body: bytes) -> None:
    answer = await site.post(path, data=body)

    assert answer.status == 400
    assert (await answer.json())["code"] == "invalid_input"
    assert (await answer.json())["error"].startswith("the body is not ")


@pytest.mark.parametrize("body", ["null", "[]", '"text"', "7", "{}", '{"nonsense": 1}'])
@pytest.mark.parametrize("path", ["/api/prompt", "/api/tools/execute", "/api/agents/assistant/run"])
async def test_json_that_asks_for_nothing_is_the_clients_mistake(site: HttpClient, path: str, body: str) -> None:
    answer = await site.post(path, data=body)

    assert answer.status == 400
    assert (await answer.json())["code"] == "invalid_input"


async def test_a_body_that_is_too_large_is_refused(site: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = await site.post("/api/x/acme-web/json", data=b" " * (server.MAX_BODY + 1))

    assert answer.status == 413
    assert (await answer.json())["code"] == "too_large"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/prompt/nowhere"),
        ("DELETE", "/api/interrupt/nowhere"),
        ("GET", "/api/tools/nowhere"),
        ("GET", "/api/plugins/nowhere"),
        ("POST", "/api/plugins/nowhere/grant"),
        ("POST", "/api/plugins/nowhere/revoke"),
        ("POST", "/api/agents/nowhere/run"),
    ],
)
async def test_an_unknown_id_is_not_found(site: HttpClient, method: str, path: str) -> None:
    body = json.dumps({"message": "hi"}) if "agents" in path else None
    answer = await site.request(method, path, data=body)

    assert answer.status == 404
    assert "nowhere" in (await answer.json())["message"]


async def test_what_there_is_can_be_read(site: HttpClient) -> None:
    nodes = await (await site.get("/api/nodes")).json()
    tools = await (await site.get("/api/tools")).json()
    agents = await (await site.get("/api/agents")).json()
    queue = await (await site.get("/api/executions")).json()

    assert "TextMerge" in {node["type"] for node in nodes}
    assert "workflow:greeting" in {tool["id"] for tool in tools}
    assert [agent["id"] for agent in agents] == ["assistant", "companion", "mira", "tomas", "creation-assistant"]
    assert queue == {"running": [], "pending": []}


async def test_a_tool_with_a_colon_in_its_id_is_found_either_way(site: HttpClient) -> None:
    for path in ("/api/tools/workflow:greeting", "/api/tools/workflow%3Agreeting"):
        assert (await (await site.get(path)).json())["id"] == "workflow:greeting"


async def test_a_tool_is_called_by_id_and_by_text(site: HttpClient) -> None:
    text = "<|[REQUEST_TOOL]|>\ncommand:「始」text:shout「末」\ntext:「始」hi「末」\n<|[END_TOOL]|>"
    by_id = await site.post("/api/tools/execute", json={"toolId": "text:shout", "arguments": {"text": "hi"}})
    by_text = await site.post("/api/tools/execute", json={"text": text})

    for answer in (by_id, by_text):
        (result,) = (await answer.json())["results"]
        assert (answer.status, result["status"], result["structured"]) == (200, "done", "HI")


async def test_a_call_that_fails_is_an_answer_not_an_http_error(site: HttpClient) -> None:
    answer = await site.post("/api/tools/execute", json={"toolId": "nobody:knows"})

    assert answer.status == 200
    assert (await answer.json())["results"][0]["error"]["type"] == "ToolNotFound"


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


async def test_events_end_with_the_session(own_site: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_routes, "STILL_IN", 0.0)
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
            async with asyncio.timeout(60):
                while await answer.content.read(1 << 16):
                    pass


async def test_events_are_closed_when_the_client_is_gone(own_site: HttpClient) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", own_site.port)
    head = f"Host: 127.0.0.1:{own_site.port}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    writer.write(f"GET /api/x/acme-web/events/0 HTTP/1.1\r\n{head}".encode())
    await reader.readuntil(b":\n\n")
    state = own_site.host._manager.active["acme-web"].context.state
    assert "closed" not in state
    writer.close()
    async with asyncio.timeout(60):
        while "closed" not in state:
            await asyncio.sleep(0.01)
