"""Which role may use which route and which socket message: one table, in which every one of them has its row."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from helpers.repetition import Failures

from tavern_host import Host
from tavern_host.contracts.accounts import ACCOUNTS
from tavern_host.projects import Folders, make_project
from tavern_host.server.app import ROUTES
from tavern_host.server.websocket import OWN_MESSAGES
from tavern_host.testing.http import HttpClient, served

TABLE = {
    "public": """
        GET /login | GET /login/openid | GET /login/openid/callback | POST /api/login | GET /healthz | GET /readyz
        | GET /pages.css | POST /api/hooks/{id} | POST /api/hooks/{id}/{secret}
        """,
    "read": """
        GET / | GET /sandbox | GET /ws | /ws/SUBSCRIBE | GET /metrics | GET /api/figures | GET /plugins/{name}/{path:.+}
        GET /api/figures/history
        GET /api/openapi.json | GET /api/docs | GET /docs | GET /api/config | GET /api/permissions
        GET /api/why/{subject} | GET /api/plugins | GET /api/plugins/{name} | GET /api/plugins/{name}/settings
        GET /api/packages
        GET /api/projects | GET /api/projects/{projectId} | GET /api/blobs/{hash}
        GET /api/me | PUT /api/me/password | POST /api/logout | POST /api/logout/everywhere
        GET /api/tokens | POST /api/tokens | DELETE /api/tokens/{id} | GET /api/members
        GET /api/workflows | GET /api/workflows/{workflowId} | POST /api/workflows/check | POST /api/layout
        GET /api/workflows/{workflowId}/draft | GET /api/workflows/{workflowId}/history
        GET /api/workflows/{workflowId}/history/{number} | GET /api/workflows/{workflowId}/uses
        GET /api/workflow-history | GET /api/workflow-search
        GET /api/nodes | GET /api/system_stats | GET /api/prompt/{promptId} | GET /api/executions
        GET /api/runs | GET /api/runs/{runId} | GET /api/runs/{runId}/workflow | GET /api/runs/{runId}/outputs/{key}
        GET /api/files | GET /api/files/{path}
        GET /api/tool-files | GET /api/tool-files/{name}
        GET /api/import-kinds
        GET /api/tools | GET /api/tools/{id} | GET /api/tasks | GET /api/tasks/{id} | GET /api/approvals
        GET /api/models
        GET /.well-known/agent-card.json | GET /a2a | GET /a2a/{agent}/.well-known/agent-card.json
        GET /v1/models | GET /v1/models/{model} | GET /v1/models/{kind}/{model}
        GET /api/agents | GET /api/agents-check | GET /api/agents/schema
        GET /api/agents/{id} | GET /api/agents/{id}/memory
        GET /api/agent-runs | GET /api/agent-runs/{run} | GET /api/agent-runs/{run}/recording
        GET /api/agent-runs/{run}/trace
        GET /api/histories | GET /api/histories/{id} | GET /api/histories/{id}/children
        GET /api/histories/{id}/export | GET /api/histories/{id}/messages | GET /api/histories/{id}/tree
        GET /api/characters | GET /api/characters/{id}
        GET /api/characters/{id}/export | GET /api/characters/{id}/picture
        GET /api/character-chats/{id} | GET /api/persona
        GET /api/knowledge | GET /api/knowledge/{base} | GET /api/knowledge/{base}/entries
        GET /api/knowledge/{base}/entries/{entry} | GET /api/knowledge/{base}/export
        POST /api/knowledge-activate | POST /api/knowledge-search
        POST /api/patches/check
        GET /api/triggers | GET /api/triggers/{id} | GET /api/triggers/{id}/firings | GET /api/trigger-kinds
        POST /api/trigger-times
        GET /api/scenes | GET /api/scene-runs | GET /api/scene-runs/{run}
        GET /api/panels | GET /api/panels-check | GET /api/panels/schema | GET /api/panels/{id}
        GET /api/panels/{id}/shown | GET /api/panels/{id}/elements/{element}/messages
        GET /api/panels/{id}/runs/{run} | GET /api/panels/{id}/runs/{run}/events
        GET /api/panels/{id}/runs/{run}/outputs/{key}
        """,
    "create": """
        POST /mcp | GET /mcp | DELETE /mcp
        POST /v1/chat/completions | POST /v1/responses | POST /v1/embeddings | POST /a2a/{agent}
        POST /api/blobs | POST /api/prompt | DELETE /api/interrupt/{promptId}
        POST /api/runs/{runId}/rerun | POST /api/runs/{runId}/resume
        POST /api/workflows | PUT /api/workflows/{workflowId}
        PATCH /api/workflows/{workflowId} | DELETE /api/workflows/{workflowId}
        PUT /api/workflows/{workflowId}/draft | DELETE /api/workflows/{workflowId}/draft
        PATCH /api/workflows/{workflowId}/history/{number}
        POST /api/nodes/{type}/actions/{action} | POST /api/tools/execute | POST /api/tasks/{id}/cancel
        POST /api/models/test
        POST /api/patches | POST /api/patches/undo | POST /api/assistant/requests
        PUT /api/files/{path} | DELETE /api/files/{path}
        PUT /api/tool-files/{name} | DELETE /api/tool-files/{name}
        POST /api/tool-check | POST /api/tool-draft | POST /api/tool-try
        POST /api/approvals/{id}
        PUT /api/agents/{id} | DELETE /api/agents/{id}
        POST /api/agents/{id}/run | POST /api/agents/{id}/runs | POST /api/agents/{id}/memory
        POST /api/agent-runs/{run}/interrupt | POST /api/agent-runs/{run}/messages | POST /api/agent-runs/{run}/pause
        POST /api/agent-runs/{run}/replay | POST /api/agent-runs/{run}/resume
        POST /api/histories | DELETE /api/histories/{id} | PATCH /api/histories/{id} | POST /api/histories/{id}/active
        POST /api/histories/{id}/branches | DELETE /api/histories/{id}/branches/{branch}
        POST /api/histories/{id}/branches/{branch}/rename | POST /api/histories/{id}/fork
        POST /api/histories/{id}/messages | POST /api/histories/{id}/messages/{message}/edit
        POST /api/histories/{id}/messages/{message}/swipe
        PUT /api/knowledge/{base} | DELETE /api/knowledge/{base} | POST /api/knowledge/{base}/entries
        PUT /api/knowledge/{base}/entries/{entry} | DELETE /api/knowledge/{base}/entries/{entry}
        POST /api/knowledge/{base}/import | POST /api/imports
        PUT /api/triggers/{id} | DELETE /api/triggers/{id} | POST /api/triggers/{id}/disable
        POST /api/triggers/{id}/enable | POST /api/triggers/{id}/fire
        PATCH /api/characters/{id} | PUT /api/characters/{id}/picture | DELETE /api/characters/{id}/picture
        POST /api/characters | POST /api/characters/{id}/conversations | PUT /api/persona
        POST /api/character-chats | POST /api/character-presets | POST /api/scenes
        POST /api/scenes/{id}/runs | POST /api/scene-runs/{run}/events | POST /api/scene-runs/{run}/messages
        POST /api/scene-runs/{run}/stop | POST /api/scene-runs/{run}/world
        POST /api/panels | POST /api/panels-preview | PUT /api/panels/{id} | DELETE /api/panels/{id}
        POST /api/panels/{id}/elements/{element}/runs | POST /api/panels/{id}/elements/{element}/messages
        POST /api/panels/{id}/runs/{run}/answers | POST /api/panels/{id}/runs/{run}/stop
        /ws/PROMPT_REQUEST | /ws/INTERRUPT_REQUEST | /ws/APPROVAL_DECISION | /ws/button_click
        """,
    "operate": """
        POST /api/plugins/reload | POST /api/plugins/{name}/reload | POST /api/nodes/reload
        POST /api/commands/{name}
        GET /api/packages/index
        POST /api/models | PUT /api/models/default | DELETE /api/models/{name}
        POST /api/packages | POST /api/packages/{name}/upgrade | POST /api/packages/{name}/rollback
        DELETE /api/packages/{name}
        POST /api/plugins/{name}/grant | POST /api/plugins/{name}/revoke
        POST /api/plugins/{name}/settings | PUT /api/plugins/{name}/state | PUT /api/plugins/{name}/placement
        POST /api/settings-patches | POST /api/settings-patches/undo
        POST /api/projects | DELETE /api/projects/{projectId}
        GET /api/audit | GET /api/project-archive | GET /api/project-parts
        GET /api/users | POST /api/users | DELETE /api/users/{name} | DELETE /api/users/{name}/sessions
        PUT /api/users/{name}/role | PUT /api/users/{name}/password
        POST /api/work/stop | PUT /api/members | PUT /api/members/{name} | DELETE /api/members/{name}
        """,
}
NEEDS = {
    row.strip(): access for access, rows in TABLE.items() for row in rows.replace("\n", "|").split("|") if row.strip()
}
MAY = {
    "nobody": {"public"},
    "viewer": {"public", "read"},
    "creator": {"public", "read", "create"},
    "admin": {"public", "read", "create", "operate"},
}
ROLES = [*MAY, "curator"]
CURATOR = ["read", "create:/api/knowledge*"]
"""A role of the operator's: what creators may, but with knowledge alone."""
ENDS_THE_SESSION = {"POST /api/logout", "POST /api/logout/everywhere"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def inn(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[HttpClient, dict[str, str]]]:
    """Serve a project to a user of each role; give their tokens too."""
    place = tmp_path_factory.mktemp("rights")
    folders = Folders(place / "config", place / "state", place / "data")
    settings = {"extensions.tavern-accounts.roles": {"curator": CURATOR}}
    async with Host(place / "inn", folders=folders, settings=settings, serving=True) as host, served(host) as opened:
        accounts, tokens = host.services.get(ACCOUNTS), {"nobody": ""}
        for role in ROLES[1:]:
            await accounts.add_user(f"a-{role}", "good evening", role=role)
            tokens[role] = (await accounts.make_token(f"a-{role}", "test")).token
        yield opened, tokens


def allowed(role: str, row: str) -> bool:
    if role == "curator":
        return NEEDS[row] in ("public", "read") or (NEEDS[row] == "create" and "/api/knowledge" in row)
    return NEEDS[row] in MAY[role]


@pytest.mark.asyncio(loop_scope="module")
async def test_every_route_and_message_has_a_row(inn: tuple[HttpClient, dict[str, str]]) -> None:
    registrations = inn[0].host.registrations
    infos = [*(info for info, _ in ROUTES), *(one.info for one in registrations.routes.values())]
    there = {f"{info.method} {info.path}": info.needs for info in infos}
    there |= {f"/ws/{type}": one.info.access for type, one in registrations.messages.items()}
    there |= {f"/ws/{type}": access for type, access in OWN_MESSAGES.items()}
    assert there == NEEDS


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_role_may_use_what_its_row_says(inn: tuple[HttpClient, dict[str, str]], role: str) -> None:
    client, token = inn[0], inn[1][role]
    with Failures() as failures:
        for row in NEEDS:
            method, _, path = row.partition(" ")
            if not method.startswith("/ws") and not (row in ENDS_THE_SESSION and allowed(role, row)):
                for spelled in _spellings(path)[: 1 if allowed(role, row) else None]:
                    status, body = await _asked(client, method, spelled, token)
                    with failures.row(f"{role}: {method} {spelled}"):
                        if allowed(role, row):
                            assert status != 401 or row == "POST /api/login"
                            assert status != 403 or "that needs" not in body["error"]
                        elif role == "nobody":
                            assert (status, body["code"]) == (401, "unauthorized")
                        else:
                            assert (status, body["code"]) == (403, "forbidden")
                            assert f"that needs '{NEEDS[row]}'" in body["error"]


def _spellings(path: str) -> list[str]:
    """Return ways to ask for a route: as it is, and below its project."""
    asked = path.replace("{path:.+}", "index.js").replace("{projectId}", "default")
    asked = re.sub(r"\{\w+\}", "none", asked)
    if not asked.startswith("/api/") or asked.startswith("/api/projects"):
        return [asked]
    return [asked, asked.replace("/api/", "/api/projects/default/"), f"{asked}?projectId=default"]


async def _asked(client: HttpClient, method: str, path: str, token: str) -> tuple[int, Any]:
    """Send a request with a body that no route takes."""
    headers = {"Authorization": f"Bearer {token}" if token else None}
    data = None if method == "GET" else '"nonsense"'
    answer = await client.request(method, path, headers=headers, data=data)
    is_json = "json" in answer.headers.get("Content-Type", "")
    body = await answer.json(content_type=None) if is_json else {}
    if path.lstrip("/").startswith("v1/") and isinstance(body, dict) and "error" in body:  # OpenAI's form
        code, body = body["error"]["code"], {"error": body["error"]["message"]}
        body["code"] = "unauthorized" if code == "invalid_api_key" else code
    return answer.status, body


@pytest.mark.asyncio(loop_scope="module")
async def test_no_route_knows_a_project_to_those_who_are_no_members(
    inn: tuple[HttpClient, dict[str, str]], tmp_path: Path
) -> None:
    client, tokens = inn
    make_project(tmp_path / "barn")
    barn = (await (await client.post("/api/projects", json={"path": str(tmp_path / "barn")})).json())["id"]
    closed = await client.request("PUT", f"/api/projects/{barn}/members", json={"open": False})
    assert (await closed.json())["open"] is False
    with Failures() as failures:
        for row in NEEDS:
            method, _, path = row.partition(" ")
            if path and NEEDS[row] != "public":
                asked = _spellings(path)[0]
                below = asked.replace("/api/", f"/api/projects/{barn}/") if asked.startswith("/api/") else asked
                named = asked.replace("/projects/default", f"/projects/{barn}")
                for spelled in {f"{asked}?projectId={barn}", below, named} - {asked}:
                    status, body = await _asked(client, method, spelled, tokens["creator"])
                    with failures.row(f"{method} {spelled}"):
                        assert status == 404
                        assert f"no project '{barn}'" in body.get("error", "")
    assert (await client.request("DELETE", f"/api/projects/{barn}")).status == 200


@pytest.mark.asyncio(loop_scope="module")
async def test_a_role_may_send_and_hear_what_its_row_says(inn: tuple[HttpClient, dict[str, str]]) -> None:
    client, tokens = inn
    with Failures() as failures:
        for role in ROLES[1:]:
            headers = {"Authorization": f"Bearer {tokens[role]}"}
            async with client.client.ws_connect("/ws", headers=headers) as socket:
                for row in (row for row in NEEDS if row.startswith("/ws/")):
                    await socket.send_json({"type": row.removeprefix("/ws/"), "payload": {"nonsense": 1}})
                    details = (await socket.receive_json(timeout=60))["payload"].get("details") or {}
                    with failures.row((role, row)):
                        assert (details.get("code") == "forbidden") is not allowed(role, row)
            since = client.host.events.last_seq
            for type in ("ALARM", "ADVISORY", "SETTINGS_CHANGED"):
                client.host.events.publish(type, {"of": "the test"})
            told = ["ALARM", "ADVISORY"] if allowed(role, "GET /api/audit") else []  # they tell of the audit log
            for asked in (f"since={since}", f"since={since}&types=A*&types=SETTINGS_CHANGED"):
                async with client.client.ws_connect(f"/ws?{asked}", headers=headers) as socket:
                    heard = [(await socket.receive_json(timeout=60))["type"]]
                    while heard[-1] != "SETTINGS_CHANGED":
                        heard.append((await socket.receive_json(timeout=60))["type"])
                with failures.row((role, asked)):
                    assert [type for type in heard if type in ("ALARM", "ADVISORY")] == told
