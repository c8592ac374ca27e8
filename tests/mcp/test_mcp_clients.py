"""Tools of a project at MCP clients over HTTP: the SDK's own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp.test_utils
import aiohttp.web
import pytest
import pytest_asyncio
from helpers.mcp_desk import OFFER, SERVERS, Desk, make_project
from helpers.repetition import Failures
from helpers.upstream_proxy import upstream_proxy

from tavern_host import Host, projects
from tavern_host.contracts.accounts import ACCOUNTS
from tavern_host.contracts.audit import AUDIT
from tavern_host.contracts.calls import operator_call
from tavern_host.contracts.settings import SETTINGS as HOST_SETTINGS
from tavern_host.contracts.settings import SettingsChange
from tavern_host.testing.http import TOKEN, HttpClient, served
from tavern_mcp import transport
from tavern_mcp.api.servers import MCP_SERVERS
from tavern_tools.api.toolcalls import ToolErrorType
from tavern_tools.api.tools import TOOL_MANAGER

pytest.importorskip("mcp", reason="needs the extra: pip install tavern-host[mcp]")
import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

pytestmark = pytest.mark.asyncio(loop_scope="module")
ERAS = ("auto", "legacy")
SETTINGS = {OFFER: ["text:*", "workflow:count"], "extensions.tavern-accounts.roles": {"client": ["create:/mcp"]}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def web(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HttpClient]:
    place = tmp_path_factory.mktemp("clients")
    folders = make_project(place, SETTINGS)
    async with Host(place / "project", folders=folders, serving=True) as host, served(host) as client:
        yield client


def write_count(root: Path) -> None:
    """Write a workflow that gives three numbers, one after the other."""
    nodes = [
        {"id": "list", "type": "core:ListToStream", "inputValues": {"items": [1, 2, 3]}},
        {"id": "out", "type": "core:GroupOutput"},
    ]
    edge = {"id": "e", "source": "list", "sourceHandle": "stream", "target": "out", "targetHandle": "items"}
    slots = {"items": {"dataFlowType": "INTEGER", "isStream": True}}
    (root / "workflows").mkdir(exist_ok=True)
    document = {"nodes": nodes, "edges": [edge], "interfaceOutputs": slots}
    (root / "workflows" / "count.json").write_text(json.dumps(document))


class Person:
    """Who answers what a client asks."""

    def __init__(self, answer: types.ElicitResult) -> None:
        self.answer = answer
        self.asked: list[str] = []
        self.told: list[tuple[float, float | None, str | None]] = []
        self.news, self.moved = asyncio.Event(), asyncio.Event()

    async def elicit(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(params.message)
        return self.answer

    async def heard(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.news.set()

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.told.append((progress, total, message))
        self.moved.set()


YES = types.ElicitResult(action="accept", content={"approve": True})
NO = (types.ElicitResult(action="accept", content={"approve": False}), types.ElicitResult(action="decline"))


@asynccontextmanager
async def over_http(
    web: HttpClient, mode: str, person: Person | None, token: str = TOKEN, query: str = ""
) -> AsyncIterator[Client]:
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=30) as http:
        transport = streamable_http_client(f"http://127.0.0.1:{web.port}/mcp{query}", http_client=http)
        elicit = None if person is None else person.elicit
        heard = None if person is None else person.heard
        async with Client(transport, mode=mode, elicitation_callback=elicit, message_handler=heard) as client:
            yield client


async def check(client: Client, person: Person, failures: Failures, name: str) -> None:
    """Look at what every client is to find."""
    with failures.row(f"{name}: tools"):
        assert [tool.name for tool in (await client.list_tools()).tools] == ["text_asked", "text_loud"]
    with failures.row(f"{name}: call"):
        result = await client.call_tool("text_loud", {"text": "hi"}, progress_callback=person.progress)
        assert not result.is_error and text(result) == "HI"
        assert [told[0] for told in person.told] == sorted({told[0] for told in person.told})  # it has to grow
        assert person.told[-1][0] == pytest.approx(1.0, abs=0.01) and "is done" in str(person.told)
    with failures.row(f"{name}: wrong"):
        result = await client.call_tool("text_loud", {"txt": "hi"})
        assert result.is_error and "did you mean text?" in text(result)
        result = await client.call_tool("node_core_LowerCase", {"text": "hi"})
        assert result.is_error and "there is no tool" in text(result)
    with failures.row(f"{name}: approval"):
        result = await client.call_tool("text_asked", {"text": "please"})
        assert (result.is_error, text(result)) == (False, "PLEASE")
        assert len(person.asked) == 1 and '{"text": "please"}' in person.asked[0]
    for answer in NO:
        with failures.row(f"{name}: {answer.action}"):
            person.answer = answer
            result = await client.call_tool("text_asked", {"text": "please"})
            assert result.is_error and text(result).startswith("ApprovalRefused")


def text(result: types.CallToolResult) -> str:
    return "".join(part.text for part in result.content if isinstance(part, types.TextContent))


async def test_clients_over_http(web: HttpClient) -> None:
    with Failures() as failures:
        for mode in ERAS:
            person = Person(YES)
            async with over_http(web, mode, person) as client:
                await check(client, person, failures, mode)
            async with over_http(web, mode, None) as client:
                result = await client.call_tool("text_asked", {"text": "please"})
                with failures.row(f"{mode}: nobody to ask"):
                    assert result.is_error and "waits for a person to approve it" in text(result)
    entries = await web.host.services.get(AUDIT).tail(500, call=operator_call())
    assert ("agent:mcp", "tool.called") in {(str(entry.actor), entry.action) for entry in entries}
    tasks = await web.host.services.get(TOOL_MANAGER).tasks(call=operator_call())
    decided = {str(task.approval.decided_by) for task in tasks if task.approval is not None and task.approval.decision}
    assert decided == {"user:operator"}  # who uses the client, not the client


async def test_clients_have_their_users_rights(web: HttpClient) -> None:
    accounts = web.host.services.get(ACCOUNTS)
    tokens: dict[str, str] = {}
    for role in ("viewer", "client"):
        await accounts.add_user(f"a-{role}", "good evening", role=role)
        tokens[role] = (await accounts.make_token(f"a-{role}", "test")).token
    for role, path, status in (("viewer", "/mcp", 403), ("client", "/api/tools/execute", 403)):
        headers = {"Authorization": f"Bearer {tokens[role]}"}
        assert (await web.request("POST", path, headers=headers, json={})).status == status
    assert (await web.request("POST", "/mcp", headers={"Authorization": None}, json={})).status == 401
    async with over_http(web, "auto", Person(YES), tokens["client"]) as client:
        result = await client.call_tool("text_loud", {"text": "hi"})
        assert text(result) == "HI"
    audit = await web.host.services.get(AUDIT).tail(500, call=operator_call())
    assert "agent:mcp.a-client" in {str(entry.actor) for entry in audit}
    assert await begun(web, tokens["client"], TOKEN) == 404  # a session is nobody else's
    assert await begun(web, tokens["client"], tokens["client"]) == 200


@asynccontextmanager
async def told_of_other_tools(client: Client, person: Person) -> AsyncIterator[None]:
    """Have a client told, in the way of its era, of other tools; leave when it was."""
    async with asyncio.timeout(60), AsyncExitStack() as stack:
        if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            events = await stack.enter_async_context(client.listen(tools_list_changed=True))
            await client.list_tools()
            yield
            assert type(await anext(aiter(events))).__name__ == "ToolsListChanged"
        else:
            assert client.server_capabilities.tools is not None and client.server_capabilities.tools.list_changed
            await client.list_tools()
            person.news.clear()
            yield
            await person.news.wait()


async def test_clients_are_told_of_other_tools(web: HttpClient) -> None:
    new, other = (web.host.project.root / "tools" / f"{name}.tool.json" for name in ("new", "other"))
    settings = web.host.services.get(HOST_SETTINGS)
    text = '{"id": "text:new", "implementation": {"type": "node", "nodeType": "core:UpperCase"}}'
    described = text.replace("{", '{"description": "New.", ', 1)
    all_of_them = ["text_asked", "text_loud", "text_new"]
    alike = {one: f"text___{sha256(one.encode()).hexdigest()[:8]}" for one in ("text:呼", "text:喊")}

    async def offer(*patterns: str) -> None:
        await settings.save(SettingsChange(plugin="tavern-mcp", values={OFFER: [*patterns]}))

    async def offer_alike() -> None:
        for file, one in zip((new, other), alike, strict=True):
            file.write_text(text.replace("text:new", one))
        await offer(*alike)

    steps: dict[str, tuple[Callable[[], Awaitable[object]], list[str]]] = {
        "file": (lambda: asyncio.to_thread(new.write_text, text), all_of_them),
        "description": (lambda: asyncio.to_thread(new.write_text, described), all_of_them),
        "setting": (lambda: offer("text:new", "workflow:count"), ["text_new"]),
        "workflow": (lambda: asyncio.to_thread(write_count, web.host.project.root), ["text_new", "workflow_count"]),
        "plugin": (lambda: web.host.disable("tavern-nodes"), ["workflow_count"]),
        "plugin again": (lambda: web.host.enable("tavern-nodes"), ["text_new", "workflow_count"]),
        "names": (offer_alike, [*alike.values()]),
        "nothing": (lambda: asyncio.to_thread(new.unlink), [alike["text:喊"]]),
    }
    people = {mode: Person(YES) for mode in ERAS}
    async with AsyncExitStack() as stack:
        clients = {mode: await stack.enter_async_context(over_http(web, mode, people[mode])) for mode in ERAS}
        assert clients["auto"].protocol_version != clients["legacy"].protocol_version
        for name, (change, offered) in steps.items():
            async with AsyncExitStack() as told:
                for mode in ERAS:
                    await told.enter_async_context(told_of_other_tools(clients[mode], people[mode]))
                await change()
            for mode, client in clients.items():
                assert [tool.name for tool in (await client.list_tools()).tools] == offered, (name, mode)
    other.unlink()
    (web.host.project.root / "workflows" / "count.json").unlink()
    await offer("text:*", "workflow:count")


async def test_a_stream_of_another_project_is_reported(web: HttpClient, tmp_path: Path) -> None:
    projects.make_project(tmp_path / "barn")
    write_count(tmp_path / "barn")
    barn = (await (await web.post("/api/projects", json={"path": str(tmp_path / "barn")})).json())["id"]
    for mode in ERAS:
        person = Person(YES)
        async with over_http(web, mode, person, query=f"?projectId={barn}") as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["workflow_count"]
            result = await client.call_tool("workflow_count", {}, progress_callback=person.progress)
            assert (text(result), result.is_error) == ("[1, 2, 3]", False)
            assert person.told[-1][2] == "3", person.told


async def test_what_breaks_the_protocol_is_told_in_it(web: HttpClient) -> None:
    accept = {"Accept": "application/json, text/event-stream"}
    with Failures() as failures:
        for method, headers, body, status in (
            ("POST", accept, None, 400),
            ("POST", {**accept, "Content-Type": "text/plain"}, b"{}", 400),
            ("POST", {**accept, "Content-Type": "application/json"}, b"{", 400),
            ("POST", {**accept, "Content-Type": "application/json", "Mcp-Session-Id": "x"}, b"{}", 404),
            ("POST", {"Accept": "text/html", "Content-Type": "application/json"}, b"{}", 406),
            ("GET", accept, None, 400),
            ("GET", {**accept, "Mcp-Session-Id": "x"}, None, 404),
            ("DELETE", {}, None, 400),
            ("DELETE", {"Mcp-Session-Id": "x"}, None, 404),
        ):
            with failures.row(f"{method} {headers} {body!r}"):
                answer = await web.request(method, "/mcp", headers=headers, data=body)
                assert (answer.status, answer.content_type) == (status, "application/json"), await answer.text()
                assert types.JSONRPCError.model_validate(await answer.json()).error.message


async def test_a_host_is_a_server_of_another(web: HttpClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_TOKEN", f"Bearer {TOKEN}")
    other = {"url": f"http://127.0.0.1:{web.port}/mcp", "headers": {"Authorization": {"env": "OTHER_TOKEN"}}}
    folders = make_project(tmp_path, {SERVERS: {"other": other, "shut": {**other, "headers": {}}}})
    async with Host(tmp_path / "project", folders=folders) as host:
        desk = Desk(host)
        result = await desk.call("mcp:other/text_loud", text="from afar")
        assert (result.structured, result.error) == ("FROM AFAR", None)
        states = {one.name: one.status for one in await host.services.get(MCP_SERVERS).servers()}
        assert states == {"other": "connected", "shut": "failed"}


class OldServer:
    """A server of before 2026 at an address, which forgets its sessions when it is started again."""

    def __init__(self) -> None:
        self.sessions: set[str] = set()
        self.compresses = self.tells_events = False
        self.more = ""
        self.app = aiohttp.web.Application()
        self.app.router.add_route("*", "/mcp", self.answer)

    async def answer(self, request: aiohttp.web.Request) -> aiohttp.web.Response:
        if request.method != "POST":
            return aiohttp.web.Response(status=405)
        asked = await request.json()
        session, tool = request.headers.get("Mcp-Session-Id", ""), {"name": "t", "inputSchema": {"type": "object"}}
        if asked.get("method") == "initialize":
            self.sessions.add(session := f"session-{len(self.sessions)}")
        elif session not in self.sessions:
            return aiohttp.web.Response(status=404 if session else 400)
        about = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "x", "version": ""},
        }
        results = {
            "tools/list": {"tools": [tool]},
            "tools/call": {"content": [{"type": "text", "text": session + self.more}]},
        }
        if "id" not in asked:
            return aiohttp.web.Response(status=202)
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": results.get(asked["method"], about)}
        response = aiohttp.web.json_response(answer, headers={"Mcp-Session-Id": session})
        if self.tells_events:
            response = aiohttp.web.Response(text=f"data: {json.dumps(answer)}\n\n", content_type="text/event-stream")
        if self.compresses or "gzip" in request.headers.get("Accept-Encoding", ""):
            response.enable_compression(aiohttp.web.ContentCoding.gzip)
        return response


async def test_a_server_that_forgot_its_session_is_connected_again(tmp_path: Path) -> None:
    old = OldServer()
    async with aiohttp.test_utils.TestServer(old.app) as there:
        url = str(there.make_url("/mcp"))
        folders = make_project(tmp_path, {SERVERS: {"one": {"url": url}, "two": {"url": url}}})
        async with Host(tmp_path / "project", folders=folders) as host:
            desk = Desk(host)
            sessions = {str((await desk.call(f"mcp:{name}/t")).structured) for name in ("one", "two")}
            assert sessions == {"session-0", "session-1"}  # tools of the same name are those of their servers
            old.sessions = {"another"}
            lost = await desk.call("mcp:one/t")
            assert lost.error is not None and lost.error.type is ToolErrorType.SERVICE_UNAVAILABLE
            assert "has ended the session" in lost.error.message
            assert (await desk.call("mcp:one/t")).structured == "session-1"


async def test_a_server_is_reached_through_the_hosts_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with aiohttp.test_utils.TestServer(OldServer().app) as there, upstream_proxy(there.port or 0) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.address)
        folders = make_project(tmp_path, {SERVERS: {"one": {"url": "http://mcp.example/mcp"}}})
        async with Host(tmp_path / "project", folders=folders) as host:
            assert (await Desk(host).call("mcp:one/t")).structured == "session-0"
        assert proxy.asked and {*proxy.asked} <= {f"{how} http://mcp.example/mcp" for how in ("POST", "GET", "DELETE")}


async def test_no_answer_that_is_compressed_is_taken(tmp_path: Path) -> None:
    old = OldServer()  # a small one could become any size
    async with aiohttp.test_utils.TestServer(old.app) as there:
        folders = make_project(tmp_path, {SERVERS: {"one": {"url": str(there.make_url("/mcp"))}}})
        async with Host(tmp_path / "project", folders=folders) as host:
            desk = Desk(host)
            assert (await desk.call("mcp:one/t")).structured == "session-0"
            old.compresses = True
            refused = await desk.call("mcp:one/t")
            assert refused.error is not None and "compresses its answers" in refused.error.message


async def test_an_answer_that_is_too_long_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MOST_BYTES", 1 << 20)
    old = OldServer()
    async with aiohttp.test_utils.TestServer(old.app) as there:
        folders = make_project(tmp_path, {SERVERS: {"one": {"url": str(there.make_url("/mcp"))}}})
        async with Host(tmp_path / "project", folders=folders) as host:
            desk = Desk(host)
            for tells_events, told in (
                (False, "used: it sent a message of more than 1 MiB"),
                (True, "lost: SSE stream failed: Server-sent event exceeded"),
            ):
                old.more, old.tells_events = "", False
                assert "session" in str((await desk.call("mcp:one/t")).structured)
                old.more, old.tells_events = "x" * (1 << 20), tells_events
                refused = await desk.call("mcp:one/t")
                assert refused.error is not None and told in refused.error.message


async def begun(web: HttpClient, begins: str, uses: str) -> int:
    """Begin a session with a token, and return the status of the use of it with another."""
    accept = {"Accept": "application/json, text/event-stream"}
    info = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": info}
    headers = {**accept, "Authorization": f"Bearer {begins}"}
    answer = await web.post("/mcp", headers=headers, json=first)
    assert (answer.status, answer.content_type) == (200, "text/event-stream")
    session = answer.headers["mcp-session-id"]
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    answer = await web.post("/mcp", headers={**headers, "Mcp-Session-Id": session}, json=ready)
    assert (answer.status, await answer.read()) == (202, b"")
    headers = {**accept, "Authorization": f"Bearer {uses}", "Mcp-Session-Id": session}
    return (await web.post("/mcp", headers=headers, json={"jsonrpc": "2.0", "id": 2, "method": "ping"})).status
