"""Refusals in the audit log: by role and by token, of routes, messages and tools, few entries for many."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio
from helpers.repetition import Failures
from helpers.waiting import let_pass, until

from tavern_host import Host
from tavern_host.contracts.accounts import ACCOUNTS
from tavern_host.contracts.audit import AUDIT, AuditEntry
from tavern_host.contracts.events import Event
from tavern_host.server.refusals import MINUTE, MOST, Refusals
from tavern_host.testing.http import HttpClient, served


@pytest_asyncio.fixture
async def inn(tmp_path: Path) -> AsyncIterator[tuple[HttpClient, dict[str, str]]]:
    """Serve a project to a viewer and a creator; give their tokens too."""
    async with Host(tmp_path / "inn", serving=True) as host, served(host) as site:
        tokens = {"nobody": ""}
        for role in ("viewer", "creator"):
            await host.services.get(ACCOUNTS).add_user(f"a-{role}", "good evening", role=role)
            tokens[role] = (await host.services.get(ACCOUNTS).make_token(f"a-{role}", "test")).token
        yield site, tokens


def bearer(token: str) -> dict[str, str | None]:
    return {"Authorization": f"Bearer {token}" if token else None}


async def entries(host: Host) -> list[AuditEntry]:
    await host.audit.written()
    return [entry for entry in await host.services.get(AUDIT).tail(1000) if entry.action == "access.refused"]


def counted(found: list[AuditEntry], actor: str) -> tuple[int, set[str]]:
    """Return how many refusals of somebody the entries stand for, and of which routes."""
    own: list[Any] = [entry.details for entry in found if entry.actor == actor]
    return sum(details["count"] for details in own), {route for details in own for route in details["routes"]}


async def test_every_route_that_is_refused_is_in_the_log(inn: tuple[HttpClient, dict[str, str]]) -> None:
    site, tokens = inn
    description = await (await site.get("/api/openapi.json")).json()
    refused: dict[str, list[str]] = {"nobody": [], "viewer": [], "creator": []}
    for path, methods in description["paths"].items():
        for method in sorted(methods) if "logout" not in path else ():
            asked = re.sub(r"\{[^}]+\}", "none", path)
            for role, token in tokens.items():
                answer = await site.request(method.upper(), asked, headers=bearer(token))
                if answer.status in (401, 403) and asked != "/api/login":
                    refused[role].append(f"{method.upper()} {asked}")
    assert all(len(routes) > 30 for routes in (refused["nobody"], refused["viewer"]))
    with Failures() as failures:
        for role, routes in refused.items():
            with failures.row(role):
                await until(lambda role=role, routes=routes: is_counted(site.host, role, len(routes)))


async def is_counted(host: Host, role: str, count: int) -> bool:
    actor = "user:nobody" if role == "nobody" else f"user:a-{role}"
    return counted(await entries(host), actor)[0] == count


async def test_what_the_gate_refuses_is_in_the_log(inn: tuple[HttpClient, dict[str, str]]) -> None:
    site, _ = inn
    for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}, bearer("no such token")):
        assert (await site.get("/api/me", headers=headers)).status in (401, 403, 421)
    await until(lambda: is_counted(site.host, "nobody", 3))
    assert counted(await entries(site.host), "user:nobody")[1] == {"GET /api/me"}


async def test_no_spelling_of_a_request_escapes_the_log(inn: tuple[HttpClient, dict[str, str]]) -> None:
    site, tokens = inn
    asked = ["HEAD /api/audit", "get /api/audit", "GET /api/%61udit", f"GET /api/audit?{'x' * 5000}"]
    asked += [
        "POST /api/commands/audit%20tail",
        "POST /api/commands/none",
        "POST /api/blobs",
        "POST /api/tools/execute",
    ]
    for method, _, path in (one.partition(" ") for one in asked):
        assert (await site.request(method, path, headers=bearer(tokens["viewer"]))).status == 403
    await until(lambda: is_counted(site.host, "viewer", len(asked)))


async def test_a_refused_message_of_the_socket_is_in_the_log(inn: tuple[HttpClient, dict[str, str]]) -> None:
    site, tokens = inn
    async with site.client.ws_connect("/ws", headers=bearer(tokens["viewer"])) as socket:
        for _ in range(3):
            await socket.send_str(json.dumps({"type": "PROMPT_REQUEST", "payload": {}}))
            while (await socket.receive_json())["type"] != "error":
                pass
    await until(lambda: is_counted(site.host, "viewer", 3))
    assert counted(await entries(site.host), "user:a-viewer")[1] == {"/ws/PROMPT_REQUEST"}


async def test_whoever_used_the_connection_before_is_not_blamed(inn: tuple[HttpClient, dict[str, str]]) -> None:
    site, tokens = inn
    assert (await site.get("/api/me", headers=bearer(tokens["viewer"]))).status == 200
    assert (await site.get("/api/me", headers=bearer("no such token"))).status == 401
    await until(lambda: is_counted(site.host, "nobody", 1))
    assert await is_counted(site.host, "viewer", 0)


async def test_a_refused_login_has_its_own_record_alone(inn: tuple[HttpClient, dict[str, str]]) -> None:
    site, _ = inn
    answer = await site.post("/api/login", json={"name": "ann", "password": "wrong"}, headers=bearer(""))
    assert answer.status == 401
    await site.host.audit.written()
    assert [e.action for e in await site.host.services.get(AUDIT).tail(5)][-1] == "account.login_refused"
    assert await entries(site.host) == []


async def test_many_refusals_are_few_entries(tmp_path: Path) -> None:
    async with Host(tmp_path / "inn") as host:
        refusals = Refusals()
        for number in range(1000):
            refusals.count(host, "ann", "192.0.2.1", f"GET /api/{number}", "forbidden")
        assert len(await entries(host)) == 10
        refusals.flush()
        found = await entries(host)
        assert (len(found), counted(found, "user:ann")[0]) == (11, 1000)
        assert len(counted(found[-1:], "user:ann")[1]) <= 20


async def test_addresses_without_end_are_counted_as_one(tmp_path: Path) -> None:
    async with Host(tmp_path / "inn") as host:
        refusals = Refusals()
        for number in range(3 * MOST):
            refusals.count(host, "nobody", f"2001:db8::{number:x}", "GET /", "unauthorized")
        refusals.flush()
        found = await entries(host)
        assert (counted(found, "user:nobody")[0], counted(found, "user:others")[0]) == (MOST, 2 * MOST)
        assert len(found) < MOST + 20


async def test_counting_begins_again_every_minute(tmp_path: Path) -> None:
    async with Host(tmp_path / "inn") as host:
        refusals = Refusals()
        for _ in range(3):
            refusals.count(host, "ann", "", "GET /", "forbidden")
        assert counted(await entries(host), "user:ann")[0] == 2
        await let_pass(MINUTE)
        assert counted(await entries(host), "user:ann")[0] == 3
        refusals.count(host, "ann", "", "GET /", "forbidden")
        assert counted(await entries(host), "user:ann")[0] == 4
        refusals.flush()


async def test_refusals_raise_an_alarm(inn: tuple[HttpClient, dict[str, str]]) -> None:
    site, tokens = inn
    alarms = site.host.events.subscribe("ALARM")
    for token in (tokens["viewer"], "no such token"):
        for _ in range(40):
            assert (await site.get("/api/audit", headers=bearer(token))).status in (401, 403)
    said = [await anext(aiter(alarms)) for _ in range(2)]
    subjects = {event.payload["subject"] for event in said if isinstance(event, Event)}
    assert subjects == {"user:a-viewer", "somebody without a token from 127.0.0.1"}
