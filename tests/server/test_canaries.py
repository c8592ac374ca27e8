"""No secret leaves: one is planted in every place that takes any, and every role reads every route, message and file.

Routes are found in the host's own description (`/api/openapi.json`), and what stands in their paths in the answers of
the routes above them, so that a new route is walked without being named here.
"""

from __future__ import annotations

import asyncio
import json
import re
import zipfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio
from aiohttp import ClientWebSocketResponse
from helpers.folder_plugins import write_plugin
from helpers.repetition import Failures
from helpers.tavern_project import Tavern, action
from helpers.waiting import until
from helpers.workflow_documents import workflow_document

from tavern_host import Host
from tavern_host.context import Project
from tavern_host.contracts.accounts import ACCOUNTS
from tavern_host.contracts.settings import MASK
from tavern_host.projects import Folders
from tavern_host.testing.http import HttpClient, served
from tavern_operations.backup import make_backup

pytestmark = pytest.mark.asyncio(loop_scope="module")

TYPED = "canary-typed-0c4f91"
"""Typed into nodes and tool calls, under names of secrets: who may change the document may read it there."""
HELD = [f"canary-{kind}-7b1e42" for kind in ("setting", "list", "model", "header", "variable", "tool", "webhook")]
SETTING, LISTED, MODEL, HEADER, VARIABLE, TOOL, WEBHOOK = HELD
"""Held by the host: nobody is shown them, anywhere."""
STORED = "canary-stored-5d20aa"
"""Saved among the settings, and so encrypted on the disk."""
PUT = f"Mine is {SETTING}."
"""Put into a Blob and a file, which are sent as they were put, and said to an agent."""
ROLES = ("viewer", "creator", "admin")
MAY_EDIT = ("creator", "admin")
EDITED = re.compile(r"/api/workflows/[^/]+(/draft|/history/\d+)?|/api/(agents|panels)/[^/]+")
"""Where those who may change a document see what they typed into it."""
# The socket has a test of its own, and files of front ends are as they were reviewed.
NOT_WALKED = {"/ws", "/plugins/{name}/{path}"}
# Routes for which the answers above them name nothing; Blobs are content of people, sent as it was put.
NOTHING_THERE = {"/api/blobs/{hash}", "/api/runs/{runId}/outputs/{key}", "/api/why/{subject}"}
OF_RUN = "/api/panels/{id}/runs/{run}"
NOTHING_THERE |= {OF_RUN, f"{OF_RUN}/events", f"{OF_RUN}/outputs/{{key}}"}
NOTHING_THERE.add("/api/panels/{id}/elements/{element}/messages")
NOTHING_THERE |= {"/v1/models/{model}", "/v1/models/{kind}/{model}", "/a2a/{agent}/.well-known/agent-card.json"}
NOTHING_THERE |= {"/api/triggers/{id}", "/api/triggers/{id}/firings"}
# Databases of what nodes and tools gave, which whoever resumes a run needs as it was.
KEPT = ("runs.sqlite3", "agents.sqlite3")
LEAKS = """
import os
from urllib.parse import quote
from tavern_host import HttpResponse, RouteInfo, hookimpl
from tavern_host.contracts.errors import InvalidInput

WAYS = ("says", "shows", "fails", "breaks")

@hookimpl
def tavern_register_routes():
    named = {"method": "GET", "access": "read"}
    return [RouteInfo(path=f"/api/x/acme/{one}", handler=f"{__name__}:{one}", **named) for one in WAYS]

def secrets(context):
    listed = context.settings.get("many", {}).get("key", "")
    return f"{context.settings.get('key')} and \\u00e9 {listed} and {os.environ['ACME_CANARY']}"

async def says(request, context):
    context.events.publish("acme.said", {"text": secrets(context)})
    context.log.warning("said %s", secrets(context))
    return HttpResponse(data={"text": secrets(context)})

async def shows(request, context):
    page = f"<p>{secrets(context)} {quote(secrets(context))}</p>".encode()
    headers = {"X-Said": secrets(context).replace("\\u00e9", "e")}
    return HttpResponse(body=page, content_type="text/html", headers=headers)

async def fails(request, context):
    raise InvalidInput(f"wrong: {secrets(context)}", where=secrets(context))

async def breaks(request, context):
    raise RuntimeError(secrets(context))
"""
LEAKING_NODE = """
from tavern_host import NodeContext, node
from tavern_host.contracts.errors import InvalidInput
from .. import secrets

@node(type="Leak", category="Test", display_name="Leak")
async def leak(context: NodeContext, fail: bool = False, password: str = "") -> str:
    '''Say what is secret.'''
    if fail:
        raise InvalidInput(secrets(context.plugin))
    return secrets(context.plugin)
"""


@dataclass
class Inn:
    """A served project with canaries in it, and a token and a socket for each role."""

    site: HttpClient
    root: Path
    folders: Folders
    blob: str = ""
    tokens: dict[str, str] = field(default_factory=dict)
    sockets: dict[str, ClientWebSocketResponse] = field(default_factory=dict)

    async def ask(self, role: str, method: str, path: str, body: Any = None, tag: str = "") -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {self.tokens[role]}"} | ({"If-Match": tag} if tag else {})
        answer = await self.site.request(method, path, headers=headers, **({} if body is None else {"json": body}))
        assert [one for one in (TYPED, *HELD) if one in str(answer.headers)] == []
        return answer.status, await answer.text(errors="replace")

    async def told(self, method: str, path: str, body: Any = None, tag: str = "") -> Any:
        """Return the admin's answer, which must be well."""
        status, text = await self.ask("admin", method, path, body, tag)
        assert status < 300, (method, path, status, text)
        return json.loads(text)


def write_project(project: Tavern) -> None:
    project.replies(*(({"contains": f"Please {it}."}, action(it)) for it in ("leak", "ask")), ({}, "Done."))
    project.profile(tool_ids_inventory=["leak", "ask"], model_options={"api_key": TYPED})
    leak = {"id": "leak", "implementation": {"type": "node", "nodeType": "acme:Leak"}}
    project.write("tools/leak.tool.json", leak)
    project.write("tools/ask.tool.json", {**leak, "id": "ask", "requiresApproval": True})
    project.write("characters/mira.json", {"name": "Mira", "first_mes": "Hello."})
    (project.root / "characters" / "mira.png").write_bytes(b"picture")
    scene = {"id": "inn", "name": "The inn", "description": "Rain.", "initial_world_state": {}}
    project.write("scenes/inn.json", {**scene, "agent_instances": [{"instance_id": "ada", "profile_id": "keeper"}]})


def settings() -> dict[str, Any]:
    far = {"adapter": "openai", "base_url": "http://127.0.0.1:9/v1", "model": "m", "api_key": MODEL, "retry_seconds": 0}
    remote = {"url": "http://127.0.0.1:9/mcp", "headers": {"X-Note": HEADER}}
    local = {"command": "/nowhere/mcp", "env": {"ANYTHING": VARIABLE}}
    return {
        "extensions.acme.key": SETTING,
        "extensions.acme.many": {"key": LISTED, "name": "visible"},
        "extensions.acme.tools.leak.cookie": TOOL,
        "extensions.tavern-llm.models": {"far": far},
        "extensions.tavern-llm.defaultModel": "m",
        "extensions.tavern-agents.recordRuns": True,
        "extensions.tavern-mcp.servers": {"remote": remote, "local": local},
        "extensions.tavern-operations.webhookSecret": WEBHOOK,
    }


def acme(folder: Path) -> Path:
    named: dict[str, dict[str, Any]] = {"key": {"type": "password"}, "tools.leak.cookie": {"type": "password"}}
    named["many"] = {"type": "json", "secretKeys": ["key"]}
    options = [{"key": f"extensions.acme.{key}", "label": key, **about} for key, about in named.items()]
    permissions, files = (
        {"hooks": ["hook:server:routes:register"]},
        {"__init__.py": LEAKS, "nodes/__init__.py": LEAKING_NODE},
    )
    nodes = {"entry": "./nodes", "namespace": "acme"}
    return write_plugin(folder, files, configOptions=options, permissions=permissions, nodes=nodes)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def inn(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Inn]:
    """Serve a project in which every canary stands where it belongs, and do with it what people do."""
    place = tmp_path_factory.mktemp("canaries")
    folders = Folders(place / "config", place / "state", place / "data")
    project = Tavern(place / "inn")
    write_project(project)
    plugin = acme(place / "acme")
    patch = pytest.MonkeyPatch()
    patch.setenv("ACME_CANARY", LISTED)
    host = Host(place / "inn", folders=folders, plugins=[plugin], trust=["acme"], settings=settings(), serving=True)
    async with host, served(host) as site:
        made = Inn(site, place, folders)
        for role in ROLES:
            await host.services.get(ACCOUNTS).add_user(f"a-{role}", "good evening", role=role)
            made.tokens[role] = (await host.services.get(ACCOUNTS).make_token(f"a-{role}", "test")).token
            headers = {"Authorization": f"Bearer {made.tokens[role]}"}
            made.sockets[role] = await site.client.ws_connect("/ws", headers=headers)
        await live(made)
        yield made
    patch.undo()


async def live(inn: Inn) -> None:
    """Make workflows, drafts, runs, tool calls, agents' runs and scenes with the canaries."""
    nodes = {
        "key": {"type": "core:APISettings", "inputValues": {"api_key": TYPED, "use_env_vars": False, "base_url": ""}},
        "leak": {"type": "acme:Leak", "inputValues": {"password": TYPED}},
        "ask": {
            "type": "core:LlmApiRequest",
            "inputValues": {"model": "far", "messages": [{"role": "user", "content": "Hi"}]},
        },
        "fail": {"type": "acme:Leak", "inputValues": {"fail": True}, "configValues": {"headers": {"Cookie": TYPED}}},
    }
    document = workflow_document(nodes)
    await inn.told("POST", "/api/workflows", {**document, "id": "keyed"})
    form = {"id": "form", "kind": "workflow", "target": "keyed", "inputs": {"api_key": {"value": TYPED}}}
    form["examples"] = [{"name": "try", "inputs": {"password": TYPED}}]
    await inn.told("PUT", "/api/panels/desk", {"name": "Desk", "published": True, "elements": [form]})
    draft = await inn.site.get("/api/workflows/keyed/draft")
    kept = {"workflow": {**document, "name": "kept", "id": "keyed"}}
    await inn.told("PUT", "/api/workflows/keyed/draft", kept, draft.headers["ETag"])
    run = (await inn.told("POST", "/api/prompt", {"workflowId": "keyed"}))["promptId"]
    await until(lambda: run_ended(inn, run))
    await inn.told("POST", "/api/tools/execute", {"toolId": "leak", "arguments": {"password": TYPED}})
    await inn.ask("admin", "POST", "/api/tools/execute", {"toolId": "leak", "arguments": {"fail": True}})
    await inn.told("POST", "/api/agents/keeper/runs", {"message": "Please ask.", "conversationId": "c2"})
    await inn.told("PUT", "/api/files/note.txt", {"content": "said"})
    await inn.told("PUT", "/api/files/mine.txt", {"content": PUT})
    about = {"Authorization": f"Bearer {inn.tokens['creator']}", "Content-Type": "text/plain"}
    inn.blob = (await (await inn.site.post("/api/blobs", data=PUT, headers=about)).json())["hash"]
    await inn.told("POST", "/api/plugins/acme/settings", {"key": STORED})
    await inn.ask("admin", "POST", "/api/agents/keeper/run", {"message": f"Please leak. {PUT}", "conversationId": "c1"})
    await inn.told("PUT", "/api/knowledge/notes", {"entries": []})
    await inn.told("POST", "/api/scenes/inn/runs", {})
    await until(lambda: waits(inn))
    for path in ("says", "fails", "breaks"):
        await inn.ask("admin", "GET", f"/api/x/acme/{path}")


async def waits(inn: Inn) -> bool:
    return bool((await inn.told("GET", "/api/tasks"))["tasks"])


async def run_ended(inn: Inn, run: str) -> bool:
    return (await inn.told("GET", f"/api/prompt/{run}"))["status"] not in ("queued", "running", "pending")


def names_in(value: Any, key: str = "") -> list[str]:
    """Return the short texts and numbers in an answer, which may be names of something; ids first."""
    found: list[tuple[bool, str]] = []

    def look(value: Any, key: str) -> None:
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(item, dict | list):
                look(item, name if isinstance(name, str) else key)
            elif isinstance(item, str | int) and 0 < len(str(item)) <= 100 and "\n" not in str(item):
                found.append((str(name).lower().endswith(("id", "name", "number", "hash", "path")), str(item)))

    look(value, "")
    return [*dict.fromkeys(text for _, text in sorted(found, key=lambda one: not one[0]))]


class Walk:
    """Finds an address for each thing that can be read, of every route there is."""

    def __init__(self, inn: Inn) -> None:
        self.inn = inn
        self.found: dict[str, list[str]] = {}
        self.seen: dict[str, None] = {}

    async def addresses(self) -> list[str]:
        description = await self.inn.told("GET", "/api/openapi.json")
        routes = [path for path, methods in description["paths"].items() if "get" in methods and path not in NOT_WALKED]
        for route in sorted(routes, key=lambda one: (one.count("{"), one.count("/"))):
            self.found[route] = await self._of(route) or [re.sub(r"\{[^}]+\}", "none", route)]
        return [path for addresses in self.found.values() for path in addresses]

    async def _of(self, route: str) -> list[str]:
        above, brace, rest = route.rpartition("{")
        if not brace:
            await self._names(route)
            return [route]
        name, _, tail = rest.partition("}")
        if known := self.found.get(f"{above}{{{name}}}"):
            return [address + tail for address in known]
        parents = self.found.get(above.rstrip("/"), [])
        names = [(parent, name) for parent in parents for name in await self._names(parent)]
        asked = [f"{parent}/{quote(name, safe='')}{tail}" for parent, name in names[:400]]
        if not parents:
            asked = [f"{above}{quote(name, safe='')}{tail}" for name in self.seen] if "{" not in above else []
        return [one for one in asked if (await self.inn.ask("admin", "GET", one))[0] == 200][:40]

    async def _names(self, address: str) -> list[str]:
        status, text = await self.inn.ask("admin", "GET", address)
        names = names_in(json.loads(text)) if status == 200 and text[:1] in ("[", "{") else []
        self.seen |= dict.fromkeys(one for one in names if "_" in one or len(one) == 64)
        return names


async def test_no_answer_has_a_canary(inn: Inn) -> None:
    walk = Walk(inn)
    walked = await walk.addresses()
    assert {route for route, addresses in walk.found.items() if "none" in addresses[0]} == NOTHING_THERE
    with Failures() as failures:
        for path in walked:
            for role in ROLES:
                _, text = await inn.ask(role, "GET", path)
                with failures.row(f"{role}: GET {path}"):
                    assert [one for one in HELD if one in text and path != "/api/files/mine.txt"] == []
                    assert TYPED not in text or (role in MAY_EDIT and EDITED.fullmatch(path)), text[:2000]


async def test_who_may_edit_a_document_reads_what_was_typed_into_it(inn: Inn) -> None:
    for path in ("/api/workflows/keyed", "/api/workflows/keyed/draft", "/api/workflows/keyed/history/1"):
        answers = {role: (await inn.ask(role, "GET", path))[1] for role in ROLES}
        assert {role: TYPED in text for role, text in answers.items()} == {role: role in MAY_EDIT for role in ROLES}
        assert MASK in answers["viewer"] and "use_env_vars" in answers["viewer"]


async def test_no_patch_copies_a_secret_to_where_it_is_shown(inn: Inn) -> None:
    copy = {"op": "copy", "from": "/nodes/key/inputValues/api_key", "path": "/nodes/key/inputValues/base_url"}
    asked = {"id": "keyed", "operations": [copy]}
    found = [await inn.ask(role, "POST", "/api/patches/check", asked) for role in ROLES[:2]]
    assert [(status, TYPED in text) for status, text in found] == [(403, False), (200, True)]


async def test_no_message_of_the_socket_has_a_canary(inn: Inn) -> None:
    for socket in inn.sockets.values():
        await socket.send_str(json.dumps({"type": "SUBSCRIBE", "payload": {}}))
        heard: list[str] = []
        async with asyncio.timeout(30):
            while not heard or json.loads(heard[-1])["type"] != "SUBSCRIBED":
                heard.append(await socket.receive_str())
        types = {json.loads(text)["type"] for text in heard}
        assert {"acme.said", "NODE_ERROR", "WORKFLOW_CHANGED", "AGENT_TRACE"} <= types
        assert [text for text in heard if any(one in text for one in (TYPED, *HELD))] == []


async def test_no_answer_to_what_is_sent_has_a_canary(inn: Inn) -> None:
    """Walked last: whatever a body of nonsense does is done."""
    description = await inn.told("GET", "/api/openapi.json")
    with Failures() as failures:
        for path, methods in sorted(description["paths"].items()):
            for method in methods.keys() - {"get", "parameters"}:
                asked = re.sub(r"\{[^}]+\}", "keyed", path)
                if "logout" in path or method == "delete":
                    continue
                for role in ROLES[:2]:
                    _, text = await inn.ask(role, method.upper(), asked, {"nonsense": 1})
                    with failures.row(f"{role}: {method} {asked}"):
                        assert [one for one in (TYPED, *HELD) if one in text] == []


async def test_blobs_and_files_are_sent_as_they_were_put(inn: Inn) -> None:
    for path in (f"/api/blobs/{inn.blob}", "/api/files/mine.txt"):
        assert await inn.ask("viewer", "GET", path) == (200, PUT)


def leaking(files: Mapping[str, bytes]) -> list[str]:
    """Return the files that have what the host holds, but for what people put and what runs need as it was."""
    as_it_was = (name for name in files if Path(name).name.startswith(KEPT) or name.endswith("files/mine.txt"))
    left_out = {*as_it_was, *(name for name in files if ".tavern/blobs/" in name)}
    return [name for name in files.keys() - left_out if any(one.encode() in files[name] for one in (*HELD, STORED))]


async def test_no_file_has_what_the_host_holds(inn: Inn) -> None:
    assert leaking({str(file): file.read_bytes() for file in inn.root.rglob("*") if file.is_file()}) == []


async def test_a_backup_has_no_more_than_its_files_and_no_key(inn: Inn, tmp_path: Path) -> None:
    assert [*make_backup(Project.of(inn.root / "inn"), inn.folders, tmp_path / "inn.backup")]
    with zipfile.ZipFile(tmp_path / "inn.backup") as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    assert {"runs.sqlite3", "agents.sqlite3"} <= {Path(name).name for name in files}
    assert leaking(files) == [] and [name for name in files if name.endswith(".key")] == []
