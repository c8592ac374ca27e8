"""The bridge, between a Bot API on 127.0.0.1 that answers in Telegram's form and an agent with scripted replies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tavern_agents.api.agents import AGENT_RUNTIME
from tavern_host import Host
from tavern_host.testing import MakeHost

TOKEN = "4711:a-long-secret-token"
PREFIX = "extensions.telegram-bridge."
THINKING = {
    "name": "Deliberation",
    "nodes": [
        {"id": "in", "type": "core:GroupInput"},
        {"id": "model", "type": "core:LlmApiRequest"},
        {"id": "out", "type": "core:GroupOutput"},
    ],
    "edges": [
        {"id": "a", "source": "in", "sourceHandle": "messages", "target": "model", "targetHandle": "messages"},
        {"id": "b", "source": "model", "sourceHandle": "text", "target": "out", "targetHandle": "response"},
    ],
    "interfaceInputs": {"messages": {"dataFlowType": "ARRAY", "required": True}},
    "interfaceOutputs": {"response": {"dataFlowType": "STRING"}},
}
REPLIES = [
    {"when": {"last_contains": "long"}, "reply": "x" * 5000},
    {"when": {"last_contains": "again", "contains": "Ada"}, "reply": "Hello again, Ada"},
    {"when": {"last_contains": "Ada"}, "reply": "Hello, Ada"},
    {"when": {"last_contains": "Bo"}, "reply": "Hello, Bo"},
]

pytestmark = pytest.mark.tavern(plugins=["../telegram_bridge"], serving=True, workflows={"thinking": THINKING})


class Telegram:
    """A Bot API: what waits for the bot, what it was sent, and answers that are given before proper ones."""

    def __init__(self) -> None:
        self.updates: list[dict[str, Any]] = []
        self.sent: list[tuple[int, str]] = []
        self.failures: dict[str, list[web.Response]] = {"getUpdates": [], "sendMessage": []}
        self.asked: list[str] = []
        self.changed = asyncio.Condition()
        self.settings: dict[str, Any] = {}

    async def say(self, number: int, chat: int, text: str) -> None:
        message = {"message_id": number, "chat": {"id": chat, "type": "private"}, "date": 1, "text": text}
        async with self.changed:
            self.updates.append({"update_id": number, "message": message})
            self.changed.notify_all()

    async def until_sent(self, count: int) -> list[tuple[int, str]]:
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.sent) >= count)
        return self.sent

    async def handle(self, request: web.Request) -> web.Response:
        method, given = request.match_info["method"], await request.json()
        self.asked.append(method)
        assert request.match_info["token"] == TOKEN
        if self.failures[method]:
            return self.failures[method].pop(0)
        async with self.changed:
            if method == "sendMessage":
                self.sent.append((given["chat_id"], given["text"]))
                self.changed.notify_all()
                return web.json_response({"ok": True, "result": {}})
            self.updates = [one for one in self.updates if one["update_id"] >= given["offset"]]
            await self.changed.wait_for(lambda: bool(self.updates))
            return web.json_response({"ok": True, "result": self.updates})


@pytest.fixture
async def telegram(tavern_project: Path) -> AsyncIterator[Telegram]:
    """Give a Bot API, in a project with an agent."""
    profile = {"id": "keeper", "name": "Keeper", "version": "1.0.0", "schema_version": "1.0"}
    (tavern_project / "agents").mkdir(exist_ok=True)
    agent = {**profile, "core_deliberation_workflow_id": "thinking"}
    (tavern_project / "agents" / "keeper.json").write_text(json.dumps(agent))
    (tavern_project / "agents" / "keeper.replies.yaml").write_text(json.dumps(REPLIES))
    telegram, app = Telegram(), web.Application()
    app.router.add_post("/bot{token}/{method}", telegram.handle)
    async with TestServer(app, handler_cancellation=True) as server:
        telegram.settings = {
            f"{PREFIX}address": str(server.make_url("")).rstrip("/"),
            f"{PREFIX}token": TOKEN,
            f"{PREFIX}agent": "keeper",
            f"{PREFIX}chats": "7\n-8",
            "extensions.tavern-llm.models": {"scripted": {"adapter": "scripted", "file": "agents/keeper.replies.yaml"}},
        }
        yield telegram


def failed(status: int, text: str, **parameters: Any) -> web.Response:
    said = {"ok": False, "error_code": status, "description": text, "parameters": parameters}
    return web.json_response(said, status=status)


async def conversations(host: Host) -> set[str]:
    return {run.conversation_id for run in await host.services.get(AGENT_RUNTIME).runs()}


async def test_each_chat_has_a_conversation_of_its_own(make_host: MakeHost, telegram: Telegram) -> None:
    async with make_host(settings=telegram.settings) as host:
        await telegram.say(1, 7, "I am Ada")
        await telegram.say(2, -8, "I am Bo")
        assert set(await telegram.until_sent(2)) == {(7, "Hello, Ada"), (-8, "Hello, Bo")}
        await telegram.say(3, 7, "Hello again")
        assert (await telegram.until_sent(3))[2] == (7, "Hello again, Ada")
        assert await conversations(host) == {"telegram-7", "telegram--8"}


async def test_other_chats_are_ignored(make_host: MakeHost, telegram: Telegram) -> None:
    async with make_host(settings=telegram.settings) as host:
        await telegram.say(1, 9, "I am Ada")
        await telegram.say(2, 7, "I am Bo")
        assert await telegram.until_sent(1) == [(7, "Hello, Bo")]
        assert await conversations(host) == {"telegram-7"}


async def test_after_a_restart_nothing_is_answered_twice(make_host: MakeHost, telegram: Telegram) -> None:
    async with make_host(settings=telegram.settings):
        await telegram.say(1, 7, "I am Ada")
        await telegram.until_sent(1)
    async with make_host(settings=telegram.settings):
        await telegram.say(2, 7, "Hello again")
        assert await telegram.until_sent(2) == [(7, "Hello, Ada"), (7, "Hello again, Ada")]


async def test_what_was_taken_before_the_end_is_answered_after_it(
    make_host: MakeHost, telegram: Telegram, tavern_project: Path
) -> None:
    folder = tavern_project / ".tavern" / "plugins" / "telegram-bridge"
    folder.mkdir(parents=True)
    waiting = [{"id": "4711 5", "chat": 7, "text": "I am Ada"}]
    (folder / "inbox.json").write_text(json.dumps({"offsets": {"4711": 6}, "inbox": waiting}))
    telegram.updates = [{"update_id": 5, "message": {"chat": {"id": 7}, "text": "I am Ada"}}]  # Telegram's own copy
    async with make_host(settings=telegram.settings):
        assert await telegram.until_sent(1) == [(7, "Hello, Ada")]
        await telegram.say(6, 7, "Hello again")
        assert await telegram.until_sent(2) == [(7, "Hello, Ada"), (7, "Hello again, Ada")]


async def test_errors_are_waited_out(make_host: MakeHost, telegram: Telegram, caplog: pytest.LogCaptureFixture) -> None:
    telegram.failures["getUpdates"] = [failed(502, "Bad Gateway"), failed(429, "Too Many", retry_after=3)]
    telegram.failures["sendMessage"] = [failed(429, "Too Many Requests", retry_after=3)]
    async with make_host(settings=telegram.settings):
        await telegram.say(1, 7, "I am Ada")
        assert await telegram.until_sent(1) == [(7, "Hello, Ada")]
    assert "getUpdates was answered with 502: Bad Gateway" in caplog.text
    assert TOKEN not in caplog.text


async def test_an_answer_that_may_have_been_sent_is_not_sent_again(make_host: MakeHost, telegram: Telegram) -> None:
    telegram.failures["sendMessage"] = [web.Response(text="<html>", status=504)]
    async with make_host(settings=telegram.settings):
        await telegram.say(1, 7, "I am Ada")
        await telegram.say(2, 7, "I am Bo")
        assert await telegram.until_sent(1) == [(7, "Hello, Bo")]


async def test_a_long_answer_is_sent_in_parts(make_host: MakeHost, telegram: Telegram) -> None:
    async with make_host(settings=telegram.settings):
        await telegram.say(1, 7, "A long one")
        assert [len(text) for _, text in await telegram.until_sent(2)] == [4096, 904]


async def test_where_the_agent_cannot_answer_the_chat_is_told(make_host: MakeHost, telegram: Telegram) -> None:
    async with make_host(settings={**telegram.settings, f"{PREFIX}agent": "nobody"}):
        await telegram.say(1, 7, "Hello")
        assert await telegram.until_sent(1) == [(7, "I cannot answer now.")]


@pytest.mark.tavern(serving=False)
async def test_a_command_answers_nobody(make_host: MakeHost, telegram: Telegram) -> None:
    async with make_host(settings=telegram.settings):
        await telegram.say(1, 7, "Hello")
    assert telegram.asked == []
