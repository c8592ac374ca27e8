"""Users of a server: logging in and out, tokens, passwords and their limits, as a browser or curl meets them."""

from __future__ import annotations

import contextlib
import sqlite3
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSMsgType
from helpers.folder_plugins import write_plugin
from helpers.held_time import HeldClock
from helpers.repetition import Failures

from tavern_accounts.limits import PER_CLIENT, PER_NAME, WINDOW, LoginLimits
from tavern_host import AUDIT, Host
from tavern_host.contracts.accounts import ACCOUNTS, Accounts
from tavern_host.contracts.errors import InvalidInput, LimitReached, Unauthorized
from tavern_host.testing.http import HttpClient, served

GOOD = "good evening"
HTML = {"Accept": "text/html,application/xhtml+xml"}
WHO_CAME = """
from tavern_host import hookimpl


@hookimpl
async def tavern_on_login(login, call, context):
    context.events.publish("ahoy.login", {**login.to_json(), "by": str(call.principal)})
    raise ValueError("the welcome failed")
"""
DOOR = """
from tavern_host import HttpResponse, RouteInfo, hookimpl


@hookimpl
def tavern_register_routes():
    return [RouteInfo(method="GET", path="/api/x/door/open", handler=f"{__name__}:door", access="public")]


async def door(request, context):
    return HttpResponse(data="open")
"""


@pytest.fixture
async def inn(tmp_path: Path) -> AsyncIterator[HttpClient]:
    """Serve a project to its operator, and to ann, a creator."""
    plugins = [
        write_plugin(tmp_path / name, {"__init__.py": code}, permissions={"hooks": [f"hook:server:{hook}"]})
        for name, code, hook in (("ahoy", WHO_CAME, "auth:login"), ("door", DOOR, "routes:register"))
    ]
    async with Host(tmp_path / "inn", dev=plugins) as host, served(host) as opened:
        await accounts_of(opened).add_user("ann", GOOD)
        yield opened


def accounts_of(inn: HttpClient) -> Accounts:
    return inn.host.services.get(ACCOUNTS)


async def log_in(inn: HttpClient, password: str = GOOD, name: str = "ann") -> tuple[int, Any, str]:
    """Log in as a browser does; return the status, the answer and the cookie."""
    headers = {"Authorization": None, "Origin": f"http://127.0.0.1:{inn.port}"}
    answer = await inn.post("/api/login", headers=headers, json={"name": name, "password": password})
    cookie = answer.cookies.get(f"tavern_{inn.port}")
    return answer.status, await answer.json(), cookie.value if cookie is not None else ""


def browser(inn: HttpClient, cookie: str) -> dict[str, Any]:
    """Return the headers of a page of this server after a login."""
    origin = f"http://127.0.0.1:{inn.port}"
    return {"Authorization": None, "Cookie": f"tavern_{inn.port}={cookie}", "Origin": origin}


async def test_a_user_logs_in_works_and_logs_out(inn: HttpClient) -> None:
    heard = inn.host.events.subscribe("ahoy.login")
    status, me, cookie = await log_in(inn, name=" Ann ")
    assert (status, me["user"], me["role"], me["permissions"]) == (200, "ann", "creator", ["read", "create"])
    headers = browser(inn, cookie)
    assert (await (await inn.get("/api/me", headers=headers)).json()) == me
    (event,) = [await anext(aiter(heard))]
    await heard.close()
    assert event.payload == {"user": "ann", "role": "creator", "client": "127.0.0.1", "by": "user:ann"}

    refused = await inn.post("/api/plugins/reload", headers=headers)
    assert (refused.status, (await refused.json())["error"]) == (
        403,
        "user:ann is 'creator', which may not use /api/plugins/reload: that needs 'operate'",
    )
    made = await inn.post("/api/workflows", headers=headers, json={"id": "of-ann", "workflow": {"name": "x"}})
    assert made.status in (201, 400)  # it was let in

    socket = await inn.client.ws_connect("/ws", headers={k: v for k, v in headers.items() if v is not None})
    other = (await log_in(inn))[2]
    left = await inn.post("/api/logout", headers=headers)
    assert (left.status, left.cookies[f"tavern_{inn.port}"]["max-age"]) == (200, "0")
    assert (await inn.get("/api/me", headers=headers)).status == 401
    await socket.send_json({"type": "PROMPT_REQUEST", "payload": {}})
    while (message := await socket.receive(timeout=60)).type is WSMsgType.TEXT:
        assert message.json()["type"] != "error"
    assert (message.type, message.data) == (WSMsgType.CLOSE, 1008)
    assert (await inn.get("/api/me", headers=browser(inn, other))).status == 200


async def test_sessions_and_tokens_end_when_they_should(inn: HttpClient) -> None:
    accounts = accounts_of(inn)
    first, second = browser(inn, (await log_in(inn))[2]), browser(inn, (await log_in(inn))[2])
    answer = await inn.post("/api/tokens", headers=first, json={"name": "ci", "days": 1})
    made = await answer.json()
    token = {"Authorization": f"Bearer {made['token']}"}
    listed = await (await inn.get("/api/tokens", headers=token)).json()
    assert [one["kind"] for one in listed] == ["token", "session", "session"]
    assert made["token"] not in str(listed)

    assert (await inn.post("/api/logout/everywhere", headers=first)).status == 200
    assert [(await inn.get("/api/me", headers=one)).status for one in (first, second, token)] == [401, 401, 200]
    assert (await inn.request("DELETE", "/api/tokens/token_none", headers=token)).status == 404
    ended = await inn.request("DELETE", f"/api/tokens/{made['session']['id']}", headers=token)
    assert (ended.status, (await inn.get("/api/me", headers=token)).status) == (200, 401)

    for change in ("role", "password", "removed"):
        token = {"Authorization": f"Bearer {(await accounts.make_token('ann', 'ci')).token}"}
        assert (await inn.get("/api/me", headers=token)).status == 200
        if change == "role":
            await accounts.set_role("ann", "viewer")
            assert (await inn.post("/api/workflows", headers=token, json={})).status == 403
        elif change == "password":
            body = {"current": "wrong password", "password": "good morning"}
            assert (await inn.request("PUT", "/api/me/password", headers=token, json=body)).status == 401
            body["current"] = GOOD
            assert (await inn.request("PUT", "/api/me/password", headers=token, json=body)).status == 200
            assert (await inn.get("/api/me", headers=token)).status == 401
            assert [(await log_in(inn, one))[0] for one in (GOOD, "good morning")] == [401, 200]
        else:
            await accounts.remove_user("ann")
            assert (await inn.get("/api/me", headers=token)).status == 401
            assert (await log_in(inn, "good morning"))[0] == 401


async def test_tokens_expire_and_nothing_secret_is_kept(inn: HttpClient) -> None:
    made = await accounts_of(inn).make_token("ann", "ci", days=1)
    token = {"Authorization": f"Bearer {made.token}"}
    assert (await inn.get("/api/me", headers=token)).status == 200
    files = list((inn.host.folders.state / "accounts").iterdir())
    kept = b"".join(file.read_bytes() for file in files)
    assert b"$argon2id$" in kept
    assert made.token.encode() not in kept and GOOD.encode() not in kept
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    (file,) = inn.host.folders.state.glob("accounts/*.sqlite3")
    with contextlib.closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE sessions SET expires = '2020-01-01T00:00:00+00:00'")
    assert (await inn.get("/api/me", headers=token)).status == 401


async def test_the_audit_log_names_who_did_what(inn: HttpClient) -> None:
    await accounts_of(inn).set_role("ann", "admin")
    headers = browser(inn, (await log_in(inn))[2])
    assert (await inn.request("PUT", "/api/plugins/ahoy/state", headers=headers, json={"enabled": False})).status == 200
    assert (await log_in(inn, "wrong password"))[0] == 401
    entries = await inn.host.services.get(AUDIT).tail(50)
    assert {(entry.actor, entry.action, entry.subject) for entry in entries} >= {
        ("user:operator", "account.added", "ann"),
        ("user:operator", "account.role_changed", "ann"),
        ("user:ann", "account.logged_in", "ann"),
        ("user:ann", "plugin.disabled", "ahoy"),
    }
    assert ("account.login_refused", "ann") in {(entry.action, entry.subject) for entry in entries}
    assert GOOD not in str(entries) and "wrong password" not in str(entries)


async def test_wrong_logins_are_slowed_down(inn: HttpClient) -> None:
    cookie = (await log_in(inn))[2]
    for name in ("ann", "nobody-there"):
        answers = [await log_in(inn, "wrong password", name) for _ in range(PER_NAME)]
        assert {(status, body["error"]) for status, body, _ in answers} == {(401, "the name or the password is wrong")}
        status, body, _ = await log_in(inn, GOOD, name)
        assert (status, body["code"]) == (429, "limit_reached")
        assert 0 < body["details"]["retry_after"] <= WINDOW
    assert (await inn.get("/api/me", headers=browser(inn, cookie))).status == 200


def test_failed_logins_count_for_minutes_and_by_address(held_clock: HeldClock) -> None:
    limits = LoginLimits()
    for _ in range(3 * PER_NAME):
        limits.begin("ann", "a")()  # each succeeds
    for number in range(PER_CLIENT):
        limits.begin(f"name-{number}", "a")
    with pytest.raises(LimitReached) as refused:
        limits.begin("ann", "a")
    assert refused.value.info.details["retry_after"] == WINDOW
    limits.begin("ann", "b")
    held_clock.advance(WINDOW)
    limits.begin("ann", "a")


async def test_a_browser_without_the_token_is_told_what_to_do(inn: HttpClient) -> None:
    nobody = {"Authorization": None, **HTML}
    (problem,) = inn.host.plugin("door").problems  # plugins of others open no route to everybody
    assert "the route GET /api/x/door/open cannot be public: only first-party ones are" in problem.message
    assert (await inn.get("/api/x/door/open", headers=nobody)).status == 401
    answer = await inn.get("/", headers=nobody)
    text = await answer.text()
    assert (answer.status, answer.content_type) == (401, "text/html")
    assert "<code>tavern serve</code>" in text and 'href="/login"' in text
    login = await inn.get("/login", headers=nobody)
    assert (login.status, login.content_type) == (200, "text/html")
    assert 'method="post" action="/api/login"' in await login.text()
    assert (await (await inn.get("/", headers={"Authorization": None})).json())["code"] == "unauthorized"

    form = {"name": "ann", "password": GOOD}
    origin = {"Origin": f"http://localhost:{inn.port}"}
    refused = await inn.post("/api/login", headers={**nobody, **origin}, data={**form, "password": "wrong password"})
    assert (refused.status, refused.content_type) == (401, "text/html")
    assert "the name or the password is wrong" in await refused.text()
    entered = await inn.post("/api/login", headers={**nobody, **origin}, data=form)
    assert (entered.status, entered.headers["Location"]) == (303, "/")
    cookie = entered.cookies[f"tavern_{inn.port}"]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Strict", "/")
    page = await inn.get("/", headers={**nobody, "Cookie": f"tavern_{inn.port}={cookie.value}"})
    assert page.status == 200


async def test_pages_of_other_origins_cannot_act(inn: HttpClient) -> None:
    cookie = (await log_in(inn))[2]
    with Failures() as failures:
        others = ["null", "", "http://evil.example", f"https://127.0.0.1:{inn.port}", "http://127.0.0.1:1", None]
        for origin in others:
            for method, path in (("POST", "/api/logout"), ("DELETE", "/api/tokens/x"), ("PUT", "/api/me/password")):
                with failures.row(f"{origin} {method} {path}"):
                    headers = {**browser(inn, cookie), "Origin": origin}
                    answer = await inn.request(method, path, headers=headers, data="{}")
                    assert (answer.status, (await answer.json())["code"]) == (403, "forbidden")
            if origin is not None:
                headers = {"Authorization": None, "Origin": origin}
                answer = await inn.post("/api/login", headers=headers, json={"name": "ann", "password": GOOD})
                with failures.row(f"{origin} logs in"):
                    assert (answer.status, answer.cookies.get(f"tavern_{inn.port}")) == (403, None)
    assert (await inn.get("/api/me", headers=browser(inn, cookie))).status == 200


async def test_what_a_stranger_sends_is_small_and_understood(inn: HttpClient) -> None:
    nobody = {"Authorization": None}
    for data, status in (
        (b"{", 400),
        (b"[]", 400),
        (b'{"name": "ann"}', 400),
        (b'{"name": "ann", "password": 5}', 400),
        (b'{"name": "ann", "password": "good evening", "role": "admin"}', 400),
        (b'{"name": "\\ud800", "password": "\\ud800"}', 400),
        (b'{"name": "ann", "password": "' + b"x" * (1 << 16) + b'"}', 413),
    ):
        answer = await inn.post("/api/login", headers=nobody, data=data)
        assert answer.status == status, data[:60]
        assert "good evening" not in await answer.text()

    async def endless() -> AsyncIterator[bytes]:
        yield b'{"name": '

    assert (await inn.post("/api/login", headers=nobody, data=endless())).status == 413
    for token in ("tavern_", "tavern_\udcff", "tavern_" + "x" * 5000, "' OR 1=1 --"):
        assert (await inn.get("/api/me", headers={"Authorization": f"Bearer {token}"})).status == 401


async def test_users_have_names_passwords_and_roles_that_fit(inn: HttpClient) -> None:
    accounts = accounts_of(inn)
    with Failures() as failures:
        for name in ("operator", "Nobody", "", "a b", "../x", "a\nb", "ä", "-a", "x" * 65, "a/b"):
            with failures.row(name), pytest.raises(InvalidInput, match="cannot be the name of a user"):
                await accounts.add_user(name, GOOD)
    with pytest.raises(InvalidInput, match="a password has 8 to 1024 characters"):
        await accounts.add_user("bob", "short")
    with pytest.raises(InvalidInput, match="there is no role 'admni' \\(did you mean admin\\?\\)"):
        await accounts.add_user("bob", GOOD, role="admni")
    operator = {"user": "operator", "role": "operator", "permissions": ["read", "create", "operate"]}
    operator |= {"projects": {}, "session": ""}
    assert await (await inn.get("/api/me")).json() == operator
    assert (await inn.post("/api/logout")).status == 400
    again = await inn.post("/api/users", json={"name": "ann", "password": GOOD})
    assert (again.status, (await again.json())["error"]) == (409, "there is a user 'ann' already")
    assert (await inn.post("/api/users", json={"name": "bob", "password": GOOD, "role": "viewer"})).status == 201
    assert [user.name for user in await accounts.list_users()] == ["ann", "bob"]


async def test_without_the_plugin_the_operator_alone_enters(inn: HttpClient) -> None:
    token = (await accounts_of(inn).make_token("ann", "ci")).token
    with pytest.raises(Unauthorized):  # as after a removal during the login
        await accounts_of(inn).log_in("gone", GOOD)
    await inn.host.disable("tavern-accounts")
    assert (await inn.get("/api/plugins", headers={"Authorization": f"Bearer {token}"})).status == 401
    assert (await inn.get("/", headers={"Authorization": None, **HTML})).status == 401
    assert (await inn.get("/api/plugins")).status == 200
