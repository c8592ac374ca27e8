"""Projects with members: nobody else sees such a project or does anything in it, by whatever way they ask."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import WSMsgType, WSServerHandshakeError
from helpers.command_line import Ran, tavern
from helpers.repetition import Failures

from tavern_host import Host
from tavern_host.contracts.accounts import ACCOUNTS, Accounts
from tavern_host.contracts.errors import InvalidInput, NotFound
from tavern_host.projects import Folders, make_project
from tavern_host.testing.http import HttpClient, served

GOOD = "good evening"
USERS = {"ann": "creator", "bob": "creator", "eve": "creator", "cleo": "admin", "dan": "curator"}
ROLES = {"curator": ["read", "create:/api/knowledge*"], "judge": ["read", "operate:/api/plugins*"]}
ROLES["judge-to-be"] = ["read"]


class Inn:
    """A server of the open project `inn` and of `barn`, of which ann is a viewer and bob a member."""

    def __init__(self, client: HttpClient, tokens: dict[str, str], barn: str, service: Accounts) -> None:
        self.client, self.tokens, self.barn, self.of_barn = client, tokens, barn, service

    def headers(self, user: str) -> dict[str, str]:
        """Return the headers with which a user asks."""
        return {"Authorization": f"Bearer {self.tokens[user]}"}

    async def asked(self, user: str, method: str, path: str, **options: Any) -> tuple[int, Any]:
        """Return the status and the body that a user gets."""
        answer = await self.client.request(method, path, headers=self.headers(user), **options)
        return answer.status, await answer.json(content_type=None)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def inn(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Inn]:
    """Serve both projects to all users."""
    place = tmp_path_factory.mktemp("members")
    folders = Folders(place / "config", place / "state", place / "data")
    folders.config.mkdir()
    (folders.config / "host.yaml").write_text(json.dumps({"settings": {"extensions.tavern-accounts.roles": ROLES}}))
    make_project(place / "barn")
    async with Host(place / "inn", folders=folders, serving=True) as host, served(host) as opened:
        answer = await opened.post("/api/projects", json={"path": str(place / "barn")})
        barn = (await answer.json())["id"]
        service, tokens = host.services.get(ACCOUNTS), {}
        for user, role in USERS.items():
            await service.add_user(user, GOOD, role=role)
            tokens[user] = (await service.make_token(user, "test")).token
        for member, role in (("ann", "viewer"), ("bob", "")):
            path = f"/api/projects/{barn}/members/{member}"
            assert (await opened.request("PUT", path, json={"role": role})).status == 200
        async with Host(place / "barn", folders=folders, create=False) as beside:
            yield Inn(opened, tokens, barn, beside.services.get(ACCOUNTS))


@pytest.mark.asyncio(loop_scope="module")
async def test_each_user_lists_their_own_projects(inn: Inn) -> None:
    for user in USERS:
        status, projects = await inn.asked(user, "GET", "/api/projects")
        seen = {"inn", "barn"} if user in ("ann", "bob", "cleo") else {"inn"}
        assert (status, {project["name"] for project in projects}) == (200, seen), user
        status, me = await inn.asked(user, "GET", "/api/me")
        there = {"ann": {inn.barn: ["read"]}, "bob": {inn.barn: ["read", "create"]}}.get(user, {})
        assert (status, me["role"], me["projects"]) == (200, USERS[user], there)


WAYS = (
    ("GET", "/api/projects/BARN/workflows?projectId=BARN"),
    ("GET", "/api/plugins?%70rojectId=BARN"),
    ("GET", "/projects/BARN/plugins/tavern-demo/index.js"),
    ("GET", "/?projectId=BARN"),
    ("GET", "/ws?projectId=BARN"),
    ("GET", "/api/projects/BARN/ws"),
    ("POST", "/api/workflows?projectId=BARN"),
    ("POST", '/api/workflows {"id": "x", "workflow": {}, "projectId": "BARN"}'),
    ("POST", '/api/tools/execute {"\\u0070rojectId": "BARN", "projectId": "BARN"}'),
)
"""Requests that name the barn in ways of their own; the table of rights tries all routes in the usual ways."""


@pytest.mark.asyncio(loop_scope="module")
async def test_a_project_is_not_there_for_others(inn: Inn) -> None:
    with Failures() as failures:
        for user in ("eve", "dan"):
            for method, asked in WAYS:
                path, _, data = asked.replace("BARN", inn.barn).partition(" ")
                with failures.row(f"{user}: {method} {path} {data}"):
                    status, body = await inn.asked(user, method, path, data=data or None)
                    _, unknown = await inn.asked(user, "GET", "/api/projects/cellar")
                    assert status == 404
                    assert body["error"].replace(inn.barn, "cellar") == unknown["error"]
            near = inn.barn[:-1] + "~"
            with failures.row(f"{user}: no hint at the id"):
                assert inn.barn not in str(await inn.asked(user, "GET", f"/api/projects/{near}/workflows"))


@pytest.mark.asyncio(loop_scope="module")
async def test_the_role_in_a_project_is_what_holds_there(inn: Inn) -> None:
    with Failures() as failures:
        for user, path, status in (
            ("ann", f"/api/projects/{inn.barn}/workflows", 403),
            ("ann", f"/api/workflows?projectId={inn.barn}", 403),
            ("ann", "/api/workflows", 400),
            ("bob", f"/api/projects/{inn.barn}/workflows", 400),
            ("cleo", f"/api/projects/{inn.barn}/workflows", 400),
        ):
            with failures.row(f"{user} {path}"):
                assert (await inn.asked(user, "POST", path, data="{"))[0] == status
                assert (await inn.asked(user, "GET", path))[0] == 200
        for user, status in (("ann", 403), ("bob", 403), ("cleo", 200)):
            with failures.row(f"{user} decides over members"):
                path = f"/api/projects/{inn.barn}/members"
                assert (await inn.asked(user, "PUT", path, json={"open": False}))[0] == status


@pytest.mark.asyncio(loop_scope="module")
async def test_no_role_in_a_project_decides_over_the_server(inn: Inn) -> None:
    for role in ("admin", "judge"):
        with pytest.raises(InvalidInput, match=f"'{role}' may operate, which is for the whole server"):
            await inn.of_barn.set_member("dan", role)
    with pytest.raises(InvalidInput, match="there is no role 'cretor' \\(did you mean creator\\?\\)"):
        await inn.of_barn.set_member("dan", "cretor")
    with pytest.raises(NotFound, match="there is no user 'dna' \\(did you mean dan\\?\\)"):
        await inn.of_barn.set_member("dna")
    with pytest.raises(NotFound, match="'dan' is no member of this project"):
        await inn.of_barn.remove_member("dan")
    assert [member.user for member in (await inn.of_barn.members()).members] == ["ann", "bob"]

    # A role that may operate later on does not in a project.
    await inn.of_barn.set_member("eve", "judge-to-be")
    key = "extensions.tavern-accounts.roles"
    body = {key: {**ROLES, "judge-to-be": ["read", "operate"]}}
    assert (await inn.client.post("/api/plugins/tavern-accounts/settings", json=body)).status == 200
    assert (await inn.client.host.services.get(ACCOUNTS).roles())["judge-to-be"] == ["read", "operate"]
    path = f"/api/projects/{inn.barn}/members"
    assert (await inn.asked("eve", "GET", path))[0] == 200
    assert (await inn.asked("eve", "PUT", path, json={"open": True}))[0] == 403
    await inn.of_barn.remove_member("eve")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_socket_ends_with_the_membership(inn: Inn) -> None:
    path = f"/ws?projectId={inn.barn}"
    with pytest.raises(WSServerHandshakeError, match="404"):
        await inn.client.client.ws_connect(path, headers=inn.headers("dan"))
    await inn.of_barn.set_member("dan", "viewer")
    async with inn.client.client.ws_connect(path, headers=inn.headers("dan")) as socket:
        await socket.send_json({"type": "PROMPT_REQUEST", "payload": {}})
        refused = await socket.receive_json(timeout=60)
        assert refused["payload"]["details"]["code"] == "forbidden"
        await inn.of_barn.set_member("dan", "creator")
        await socket.send_json({"type": "PROMPT_REQUEST", "payload": {}})
        taken = await socket.receive_json(timeout=60)
        assert (taken["payload"].get("details") or {}).get("code") != "forbidden"
        await inn.of_barn.remove_member("dan")
        await socket.send_json({"type": "SUBSCRIBE", "payload": {}})
        while (message := await socket.receive(timeout=60)).type is WSMsgType.TEXT:
            assert message.json()["type"] != "SUBSCRIBED"
        assert (message.type, message.data) == (WSMsgType.CLOSE, 1008)
    async with inn.client.client.ws_connect("/ws", headers=inn.headers("eve")) as socket:
        await socket.send_json({"type": "SUBSCRIBE", "payload": {"projectId": inn.barn}})
        reply = await socket.receive_json(timeout=60)
        assert "this server has no project" in reply["payload"]["message"]


@pytest.mark.asyncio(loop_scope="module")
async def test_the_first_project_may_have_members_too(inn: Inn) -> None:
    client = inn.client
    assert (await client.request("PUT", "/api/members", json={"open": False})).status == 200
    try:
        with Failures() as failures:
            for method, path in (("GET", "/"), ("GET", "/api/workflows"), ("POST", "/api/prompt"), ("GET", "/ws")):
                with failures.row(f"{method} {path}"):
                    status, body = await inn.asked(user := "ann", method, path)
                    assert (status, body["error"]) == (
                        403,
                        f"user:{user} is no member of this project, which its members alone may enter",
                    )
            page = await client.get("/", headers={**inn.headers("ann"), "Accept": "text/html"})
            with failures.row("the page of projects"):
                text = await page.text()
                assert page.status == 200
                assert f'<li><a href="?projectId={inn.barn}">barn</a></li></ul>' in text
                assert text.count("<li>") == 1
            page = await client.get("/", headers={**inn.headers("eve"), "Accept": "text/html"})
            with failures.row("no projects"):
                assert "You are a member of none" in await page.text()
            page = await client.get(f"/?projectId={inn.barn}", headers={**inn.headers("ann"), "Accept": "text/html"})
            loaded = re.findall(r'(?:src|href)="(/projects/[^"]+)"', await page.text())
            with failures.row("all that the page of the other project loads"):
                assert len(loaded) == 3
                assert [(await inn.client.get(one, headers=inn.headers("ann"))).status for one in loaded] == [200] * 3
            for path in ("/api/me", "/api/tokens", "/api/projects", f"/api/projects/{inn.barn}/workflows"):
                with failures.row(path):
                    assert (await inn.asked("ann", "GET", path))[0] == 200
            assert (await inn.asked("cleo", "GET", "/api/workflows"))[0] == 200
    finally:
        assert (await client.request("PUT", "/api/members", json={"open": True})).status == 200
    assert (await inn.asked("ann", "GET", "/api/workflows"))[0] == 200


@pytest.mark.asyncio(loop_scope="module")
async def test_a_project_without_members_left_stays_closed(inn: Inn) -> None:
    accounts = inn.client.host.services.get(ACCOUNTS)
    before = await inn.of_barn.members()
    await accounts.add_user("gus", GOOD)
    for member in before.members:
        await inn.of_barn.remove_member(member.user)
    await inn.of_barn.set_member("gus")
    await accounts.remove_user("gus")
    assert await inn.of_barn.members() == before.model_copy(update={"members": []})
    await accounts.add_user("gus", GOOD)  # another one of that name is no member
    token = {"Authorization": f"Bearer {(await accounts.make_token('gus', 'test')).token}"}
    assert (await inn.client.get(f"/api/projects/{inn.barn}", headers=token)).status == 404
    await inn.of_barn.set_open(True)
    assert (await inn.client.get(f"/api/projects/{inn.barn}", headers=token)).status == 200
    for member in before.members:
        await inn.of_barn.set_member(member.user, member.role)
    assert (await inn.client.get(f"/api/projects/{inn.barn}", headers=token)).status == 404


@pytest.fixture
def said(tmp_path: Path) -> Callable[..., Ran]:
    """Return the function that runs a command for a new project, with what is typed."""
    project = tmp_path / "inn"
    assert tavern("init", "--empty", project).code == 0
    return lambda words, typed="": tavern("--project", project, *words.split(), stdin=typed)


def test_the_operator_manages_users_by_commands(said: Callable[..., Ran]) -> None:
    added = said("users add ann --role viewer", f"{GOOD}\n")
    assert (added.code, added.out.strip()) == (0, "ann is added, as viewer.")
    assert said("users add bob", "short\n").code == 2
    assert said("users role ann admin").code == 0
    assert [(user["name"], user["role"]) for user in said("users list --json").json()] == [("ann", "admin")]
    assert said("users token ann --days 1").out.startswith("tavern_")
    assert said("users passwd ann", "good morning\n").code == said("users logout ann").code == 0
    assert said("users remove ann").code == 0
    assert said("users remove ann").error == "Error: there is no user 'ann'"


def test_the_operator_manages_members_by_commands(said: Callable[..., Ran]) -> None:
    assert said("users add ann", f"{GOOD}\n").code == 0
    assert said("members list").out.strip() == "All users may enter the project."
    added = said("members add ann --role viewer")
    assert (added.code, added.out.strip()) == (0, "ann is a member of the project, as viewer.")
    assert said("members list --json").json() == {"open": False, "members": [{"user": "ann", "role": "viewer"}]}
    assert said("members open").code == 0
    assert said("members list --json").json()["open"] is True
    assert said("members close").code == said("members remove ann").code == 0
    assert said("members remove ann").error == "Error: 'ann' is no member of this project"
    assert said("members list --json").json() == {"open": False, "members": []}
