"""The routes of agents, over HTTP."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from aiohttp import web
from helpers.repetition import Failures
from helpers.tavern_project import Tavern, action

from tavern_host import Host
from tavern_host.server.app import make_app

TOKEN = "test-token"


class Browser:
    """A client of a host that is being served."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def get(self, path: str) -> tuple[int, Any]:
        async with self._session.get(path) as response:
            return response.status, await response.json()

    async def post(self, path: str, body: Any, method: str = "POST") -> tuple[int, Any]:
        data = body if isinstance(body, str) else json.dumps(body)
        async with self._session.request(method, path, data=data) as response:
            return response.status, await response.json()


@pytest.fixture
async def browser(tavern: Tavern) -> AsyncIterator[Browser]:
    """Serve the project and return a client that may enter."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        async with Host(project=tavern.root) as host:
            runner = web.AppRunner(make_app(host, token=TOKEN, port=port))
            await runner.setup()
            await web.SockSite(runner, listening).start()
            headers = {"Authorization": f"Bearer {TOKEN}"}
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=headers) as session:
                yield Browser(session)
            await runner.cleanup()


async def test_agents_are_listed(browser: Browser) -> None:
    agent = {"id": "keeper", "name": "The keeper", "description": "", "tools": ["shout"]}
    status, (own, *brought) = await browser.get("/api/agents")
    assert (status, own) == (200, agent)
    assert [one["id"] for one in brought] == ["creation-assistant"]


async def test_an_agent_is_run_and_its_reply_comes_back(browser: Browser, tavern: Tavern) -> None:
    tavern.replies(
        ({"last_contains": "executed successfully", "contains": "My name is Ada"}, "Done, Ada."),
        ({}, action("shout", text="ale")),
    )
    body = {"message": "Shout ale.", "history": [{"role": "user", "content": "My name is Ada"}], "maxSteps": 3}
    status, reply = await browser.post("/api/agents/keeper/run", body)
    assert status == 200
    assert (reply["profileId"], reply["outcome"], reply["text"], reply["steps"]) == ("keeper", "reply", "Done, Ada.", 2)
    assert [result["toolId"] for result in reply["toolResults"]] == ["shout"]
    assert [message["role"] for message in reply["history"]] == ["user", "user", "assistant", "user", "assistant"]


async def test_a_run_that_fails_is_an_answer_with_its_error(browser: Browser, tavern: Tavern) -> None:
    tavern.replies(({"contains": "never said"}, "x"))
    status, reply = await browser.post("/api/agents/keeper/run", {"message": "Hello."})
    assert (status, reply["outcome"]) == (200, "error")
    assert "no reply fits" in reply["error"]


async def test_the_schema_is_given_whatever_agents_are_called(browser: Browser, tavern: Tavern) -> None:
    tavern.profile(id="schema")
    tavern.replies(({}, "Hello."))
    status, schema = await browser.get("/api/agents/schema")
    assert (status, schema["title"]) == (200, "Agent profile")
    assert (await browser.post("/api/agents/schema/run", {"message": "Hi."}))[1]["text"] == "Hello."


async def test_an_unknown_agent_is_not_found(browser: Browser) -> None:
    status, body = await browser.post("/api/agents/keper/run", {"message": "Hello."})
    assert (status, body["error"]) == (404, "there is no agent 'keper' (did you mean keeper?)")


async def test_a_wrong_body_is_told(browser: Browser) -> None:
    rows: Any = [
        ("{", "the body is not JSON"),
        ([], "the body is not {message, conversationId?, history?, maxSteps?}: $: Input should be an object"),
        ({}, "message: Field required"),
        ({"message": "x", "maxSteps": 0}, "maxSteps: Input should be greater than or equal to 1"),
        ({"message": "x", "history": [{"role": "bard", "content": ""}]}, "$.history[0].role:"),
        ({"message": "x", "steps": 1}, "steps: Extra inputs are not permitted"),
    ]
    with Failures() as failures:
        for body, part in rows:
            with failures.row(body):
                status, answer = await browser.post("/api/agents/keeper/run", body)
                assert status == 400
                assert part in answer["error"]


async def test_a_run_is_followed_over_http(browser: Browser, tavern: Tavern) -> None:
    upper = {"type": "node", "nodeType": "core:UpperCase"}
    tavern.write("tools/hush.tool.json", {"id": "hush", "implementation": upper, "requiresApproval": True})
    tavern.profile(tool_ids_inventory=["hush"])
    tavern.replies(
        ({"last_contains": "Hurry"}, "I hurry."),
        ({"last_contains": "executed successfully"}, "Hushed."),
        ({}, action("hush", text="ale")),
    )
    status, run = await browser.post("/api/agents/keeper/runs", {"message": "Hush.", "conversationId": "c1"})
    assert (status, run["status"]) == (202, "running")
    path = f"/api/agent-runs/{run['id']}"
    async with asyncio.timeout(60):
        while not (standing := (await browser.get(path))[1])["approvals"]:
            await asyncio.sleep(0.02)
    assert standing["status"] == "waiting"
    assert (await browser.post(f"{path}/messages", {"message": "Hurry!"}))[0] == 202
    status, _ = await browser.post(f"/api/approvals/{standing['approvals'][0]}", {"decision": "approve"})
    assert status == 200
    async with asyncio.timeout(60):
        while (standing := (await browser.get(path))[1])["status"] != "reply":
            await asyncio.sleep(0.02)
    assert standing["text"] == "I hurry."
    kinds = [step["kind"] for step in (await browser.get(f"{path}/trace"))[1]]
    assert (kinds[0], kinds[-1]) == ("started", "reply")
    later = (await browser.get(f"{path}/trace?after={len(kinds) - 1}"))[1]
    assert [step["kind"] for step in later] == ["reply"]
    for query in ("?conversationId=c1", "?profileId=keeper&statuses=reply&limit=1"):
        assert [one["id"] for one in (await browser.get(f"/api/agent-runs{query}"))[1]] == [run["id"]]
    rows: Any = [
        (f"{path}/messages", {"message": "Late."}, 409, "has ended"),
        (f"{path}/pause", {}, 409, "is not at work"),
        (f"{path}/resume", {}, 409, "has ended with a reply"),
        ("/api/agent-runs/agent_0/interrupt", {}, 404, "there is no run"),
    ]
    with Failures() as failures:
        for where, body, expected, part in rows:
            with failures.row(where):
                status, answer = await browser.post(where, body)
                assert (status, part in answer["error"]) == (expected, True), answer
    assert (await browser.get("/api/agent-runs?limit=0"))[0] == 400
    assert await browser.get("/api/agents-check") == (200, [])


async def test_a_conversation_is_branched_over_http(browser: Browser, tavern: Tavern) -> None:
    tavern.replies(({"last_contains": "Ale?"}, "Ale."), ({"last_contains": "Wine?"}, "Wine."))
    name = "a b/ü"
    at = f"/api/histories/{quote(name, safe='')}"
    await browser.post("/api/agents/keeper/run", {"message": "Ale?", "conversationId": name})
    first, reply = (await browser.get(f"{at}/messages"))[1]
    edit = {"content": "Wine?", "head": reply["id"]}
    status, (edited,) = await browser.post(f"{at}/messages/{first['id']}/edit", edit)
    assert (status, edited["message"]["content"], edited.get("parentId")) == (201, "Wine?", None)
    body = {"message": "", "conversationId": name, "parentId": edited["id"], "head": edited["id"]}
    status, run = await browser.post("/api/agents/keeper/run", body)
    assert (status, run["text"]) == (200, "Wine.")
    head = (await browser.get(at))[1]["branches"][0]["head"]
    other = {"messages": [{"role": "assistant", "content": "Red or white?"}], "head": head}
    assert (await browser.post(f"{at}/messages/{head}/swipe", other))[0] == 201
    texts = [one["message"]["content"] for one in (await browser.get(f"{at}/children?of={edited['id']}"))[1]]
    assert texts == ["Wine.", "Red or white?"]
    assert (await browser.post(f"{at}/branches", {"name": "x/y", "messageId": reply["id"]}))[0] == 201
    assert (await browser.post(f"{at}/branches/x%2Fy/rename", {"name": "side"}))[0] == 200
    assert (await browser.post(f"{at}/active", {"branch": "side"}))[1]["active"] == "side"
    said = {"messages": [{"role": "user", "content": "More?"}], "branch": "side"}
    assert (await browser.post(f"{at}/messages", said))[0] == 201
    last = (await browser.get(f"{at}/messages?branch=side&last=2"))[1]
    assert [one["message"]["content"] for one in last] == ["Ale.", "More?"]
    assert len((await browser.get(f"{at}/messages?leaf={reply['id']}"))[1]) == 2
    tree = (await browser.get(f"{at}/tree"))[1]
    assert [(node["depth"], node["text"]) for node in tree[3:]] == [(2, "Wine."), (2, "Red or white?"), (3, "More?")]
    memory = "/api/agents/keeper/memory"
    about = {"conversationId": name, "state": {"mood": "dry"}, "goals": [{"id": "rest"}], "note": "Long day."}
    changed = (await browser.post(memory, {**about, "revision": 0}))[1]
    assert (changed["state"], changed["goals"][0]["id"]) == ({"mood": "dry"}, "rest")
    assert (await browser.post(memory, {**about, "revision": 0}))[0] == 409
    where = f"{memory}?conversationId={quote(name, safe='')}"
    assert (await browser.get(where))[1] == changed
    assert (await browser.get(f"{where}&leaf={reply['id']}"))[1]["state"] == {}
    exported = (await browser.get(f"{at}/export"))[1]
    assert (await browser.post("/api/histories?id=copy", exported))[1]["active"] == "side"
    assert (await browser.post(f"{at}/fork", {"newId": "fork"}))[1]["messages"] == 3
    assert {one["id"] for one in (await browser.get("/api/histories?limit=9"))[1]} == {name, "copy", "fork"}
    assert (await browser.post(f"{at}/branches/main", "", "DELETE"))[0] == 200
    rows: Any = [
        ("POST", f"{at}/messages/{first['id']}/edit", {"content": "x", "head": reply["id"]}, 409, "load it again"),
        ("POST", f"{at}/messages/{first['id']}/edit", {"content": "x"}, 400, "head: Field required"),
        ("POST", f"{at}/branches", {"name": "side"}, 409, "a branch 'side' already"),
        ("POST", f"{at}/messages", {"messages": []}, 400, "messages"),
        ("POST", "/api/histories", {"id": "x"}, 400, "no exported conversation"),
        ("POST", "/api/histories", exported, 409, "under another id"),
        ("GET", f"{at}/messages?last=x", "", 400, "the query: $.last: "),
        ("GET", f"{at}/messages?branch=sied", "", 404, "it has side"),
        ("GET", "/api/histories/never/tree", "", 404, "no conversation 'never'"),
        ("DELETE", f"{at}/branches/side", "", 409, "activate another"),
    ]
    with Failures() as failures:
        for method, where, body, expected, part in rows:
            with failures.row((method, where)):
                status, answer = await browser.post(where, body, method)
                assert (status, part in answer["error"]) == (expected, True), answer
    assert (await browser.post(at, "", "DELETE"))[1] == {"deleted": True}
    assert (await browser.get(at))[0] == 404
