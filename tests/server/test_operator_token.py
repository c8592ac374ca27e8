"""The operator's token outlives the server, is renewed everywhere at once, and leaves nowhere; a page has a way in."""

from __future__ import annotations

import asyncio
import json
import logging
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import WSMsgType
from aiohttp.test_utils import TestClient, TestServer
from helpers.audit_logs import tail
from helpers.command_line import tavern
from helpers.repetition import Failures
from helpers.systems import on_linux

from tavern_host import Host
from tavern_host.contracts.settings import MASK
from tavern_host.server.app import make_app
from tavern_host.server.operator_token import TOKEN_FILE, OperatorToken
from tavern_host.testing.http import HttpClient, served

HTML = {"Accept": "text/html", "Authorization": None}


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[tuple[HttpClient, OperatorToken]]:
    """Serve a project with a token that is kept."""
    async with Host(tmp_path / "inn") as host:
        token = OperatorToken(host.folders.state)
        token.make()
        async with TestClient(TestServer(make_app(host, token=token, port=0))) as client:
            yield HttpClient(host, client, 0), token


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_the_token_stays_until_it_is_renewed(tmp_path: Path) -> None:
    project, state = tmp_path / "inn", tmp_path / "state"
    where = {"TAVERN_STATE_DIR": str(state)}
    assert tavern("init", "--empty", project).code == 0
    first, again = (tavern("--project", project, "token", **where).out for _ in range(2))
    assert first == again and len(first.strip()) == 32
    renewed = tavern("--project", project, "token", "--renew", "--json", **where).json()
    assert renewed["token"] != first.strip() and renewed["url"] is None
    assert tavern("--project", project, "token", **where).out.strip() == renewed["token"]
    assert (state / TOKEN_FILE).stat().st_mode & 0o777 == 0o600
    (entry,) = tail(project / ".tavern" / "audit" / "audit.sqlite3", 10)
    assert (entry.action, str(entry.actor)) == ("operator.token_renewed", "user:operator")
    assert renewed["token"] not in str(entry)


@on_linux
def test_a_token_that_others_may_know_or_that_is_damaged_is_refused_until_it_is_renewed(tmp_path: Path) -> None:
    project, file = tmp_path / "inn", tmp_path / "state" / TOKEN_FILE
    where = {"TAVERN_STATE_DIR": str(file.parent)}
    assert tavern("init", "--empty", project).code == 0

    def spoil(text: str, mode: int) -> None:
        file.unlink(missing_ok=True)
        file.write_text(text)
        file.chmod(mode)

    with Failures() as failures:
        for text, mode, why in (
            ("", 0o600, "it is no token"),
            ("x" * 31, 0o600, "it is no token"),
            ("x" * 31 + "ü", 0o600, "it is no token"),
            ("x" * 4000, 0o600, "it is no file of at most 33 bytes"),
            ("x" * 32, 0o644, "every user can read or write it"),
            ("x" * 32, 0o602, "every user can read or write it"),
        ):
            with failures.row((text, mode)):
                file.parent.mkdir(exist_ok=True)
                spoil(text, mode)
                told = f"Error: the operator's token {file} cannot be used: {why}; `tavern token --renew` makes another"
                for command in (["token"], ["serve", "--port", "0"]):
                    ran = tavern("--project", project, *command, **where)
                    assert (ran.code, ran.out, ran.error) == (2, "", told)
                assert tavern("--project", project, "token", "--renew", **where).code == 0
                assert file.stat().st_mode & 0o777 == 0o600


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    project, state = tmp_path / "inn", tmp_path / "state"
    assert tavern("init", "--empty", project).code == 0
    state.write_text("a file in the place of the folder")
    ran = tavern("--project", project, "token", TAVERN_STATE_DIR=str(state))
    assert (ran.code, ran.out) == (2, "")
    assert f"the operator's token {state / TOKEN_FILE} cannot be made: " in ran.error


def test_a_token_of_the_environment_is_shown_and_not_renewed_here(tmp_path: Path) -> None:
    project = tmp_path / "inn"
    assert tavern("init", "--empty", project).code == 0
    assert tavern("--project", project, "token", TAVERN_TOKEN="open-sesame").out == "open-sesame\n"
    ran = tavern("--project", project, "token", "--renew", TAVERN_TOKEN="open-sesame")
    assert (ran.code, "change it there, and start the server again" in ran.error) == (2, True)


async def test_a_renewed_token_ends_sessions_and_sockets(own: tuple[HttpClient, OperatorToken]) -> None:
    site, token = own
    old = token()
    socket = await site.client.ws_connect("/ws", headers=bearer(old))
    entered = await site.get(f"/?token={old}", headers=HTML)
    cookie = {"Authorization": None, "Cookie": f"tavern_0={entered.cookies['tavern_0'].value}"}
    assert (await site.get("/api/plugins", headers=cookie)).status == 200
    token.renew()  # as another process does
    assert (await site.get("/api/plugins", headers=cookie)).status == 401
    assert (await site.get("/api/plugins", headers=bearer(old))).status == 401
    assert (await site.get("/api/plugins", headers=bearer(token()))).status == 200
    while (message := await socket.receive()).type is WSMsgType.TEXT:
        pass
    assert (message.data, message.extra) == (1008, "this session is over")
    async with site.client.ws_connect("/ws", headers=bearer(token())):
        pass


async def test_a_token_that_is_damaged_or_gone_while_it_is_used_lets_nobody_else_in(
    own: tuple[HttpClient, OperatorToken], caplog: pytest.LogCaptureFixture
) -> None:
    site, token = own
    file = site.host.folders.state / TOKEN_FILE
    with Failures() as failures, caplog.at_level(logging.ERROR, "tavern.server"):
        for change in (lambda: file.write_text(""), file.unlink):
            with failures.row(change):
                change()
                assert (await site.get("/api/plugins", headers=bearer(token()))).status == 200
                for nobody in ({"Authorization": None}, bearer(""), {"Authorization": None, "Cookie": "tavern_0="}):
                    assert (await site.get("/api/plugins", headers=nobody)).status == 401
    assert sum("the token from before stays in use" in line for line in caplog.messages) >= 2


async def test_no_answer_and_no_message_has_the_token(own: tuple[HttpClient, OperatorToken]) -> None:
    site, token = own
    for _ in range(2):
        answer = await site.get(f"/api/workflows/{token()}", headers=bearer(token()))
        text = await answer.text()
        assert (answer.status, token() in text, MASK in text) == (404, False, True)
        async with site.client.ws_connect("/ws", headers=bearer(token())) as socket:
            await socket.send_str(json.dumps({"type": token()}))
            while (message := await socket.receive_json())["type"] != "error":
                pass
        assert f"unknown message type '{MASK}'" in message["payload"]["message"]
        token.renew()


def test_no_backup_has_the_token(tmp_path: Path) -> None:
    project, file, where = tmp_path / "inn", tmp_path / "backup.zip", {"TAVERN_STATE_DIR": str(tmp_path / "state")}
    assert tavern("init", "--empty", project).code == 0
    token = tavern("--project", project, "token", **where).out.strip().encode()
    assert tavern("--project", project, "backup", file, **where).code == 0
    with zipfile.ZipFile(file) as archive:
        assert [name for name in archive.namelist() if token in archive.read(name)] == []


async def test_an_address_without_a_session_gives_a_page_with_a_way_in(tmp_path: Path) -> None:
    async with Host(tmp_path / "inn") as host, served(host) as site:
        answer = await site.get("/api/docs?projectId=a%22%3E%3Cscript%3E&token=wrong", headers=HTML)
        page = await answer.text()
        assert (answer.status, answer.content_type, "<script" in page) == (401, "text/html", False)
        assert '<input id="token" name="token" type="password"' in page and 'href="/login"' in page
        assert 'name="projectId" value="a&quot;&gt;&lt;script&gt;"' in page, "it leads to where one was to go"
        assert "That is not the token of this server" in page
        style = await site.get("/pages.css", headers={"Authorization": None})
        assert (style.status, style.content_type) == (200, "text/css")
        assert 'href="/pages.css"' in page
        assert 'href="/pages.css"' in await (await site.get("/login", headers=HTML)).text()
        assert "That is not the token" not in await (await site.get("/", headers=HTML)).text()


async def test_without_accounts_no_page_leads_to_a_login(tmp_path: Path) -> None:
    async with Host(tmp_path / "inn", without=["tavern-accounts"]) as host, served(host) as site:
        assert "/login" not in await (await site.get("/", headers=HTML)).text()


async def test_many_who_make_the_token_at_once_have_one(tmp_path: Path) -> None:
    makers = [OperatorToken(tmp_path / "state") for _ in range(8)]
    await asyncio.gather(*(asyncio.to_thread(one.make) for one in makers))
    assert len({one() for one in makers}) == 1
    assert [file.name for file in (tmp_path / "state").iterdir()] == [TOKEN_FILE]
