"""An agent on a panel asks the guest who uses it, in words and by a file; nobody else can answer in their place."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest_asyncio
from helpers.tavern_project import action
from helpers.waiting import until

from tavern_host import Host
from tavern_host.contracts.accounts import ACCOUNTS
from tavern_host.testing.http import HttpClient, served
from tests.panels.conftest import element, panel, written

ASK = "system:request_user_interaction"


@dataclass
class Desk:
    """The server, and the headers of two guests."""

    host: Host
    site: HttpClient
    headers: dict[str, dict[str, str]]

    async def ask(self, who: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return the status and the JSON of an answer."""
        sent = {} if body is None else {"json": body}
        answer = await self.site.request(method, f"/api/panels/desk{path}", headers=self.headers[who], **sent)
        return answer.status, await answer.json()

    async def asked(self, who: str, run: str) -> dict[str, Any]:
        """Return what a run asks, once it does."""

        async def look() -> Any:
            return (await self.ask(who, "GET", f"/runs/{run}"))[1].get("question")

        return dict(await until(look, "it asks"))


@pytest_asyncio.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    project = written(tmp_path / "inn")
    project.replies(
        ({"last_contains": "Please ask."}, action(ASK, question="Whose name?")),
        ({"last_contains": "Ada"}, action(ASK, question="A picture?", kind="file")),
        ({"last_contains": "me.png"}, "Thank you."),
        ({"last_contains": "declined"}, "As you like."),
        ({}, "Good evening."),
    )
    project.profile(tool_ids_inventory=[ASK])
    project.write("panels/desk.json", panel(element("talk", "agent", "keeper"), published=True))
    async with Host(project.root, serving=True) as host, served(host) as site:
        accounts, headers = host.services.get(ACCOUNTS), dict[str, dict[str, str]]()
        for name in ("eve", "gus"):
            await accounts.add_user(name, "good evening", role="guest")
            headers[name] = {"Authorization": f"Bearer {(await accounts.make_token(name, 'test')).token}"}
        yield Desk(host, site, headers)


async def test_a_guest_answers_what_an_agent_of_a_panel_asks(desk: Desk) -> None:
    _, run = await desk.ask("eve", "POST", "/elements/talk/messages", {"message": "Please ask."})
    path = f"/runs/{run['id']}/answers"
    first = await desk.asked("eve", run["id"])
    assert (first["kind"], first["message"]) == ("text", "Whose name?")
    assert (await desk.ask("gus", "POST", path, {"question": first["id"], "answer": "Gus"}))[0] == 404
    assert (await desk.ask("eve", "POST", path, {"question": first["id"], "answer": " "}))[0] == 400
    assert (await desk.ask("eve", "POST", path, {"question": first["id"], "answer": "Ada"}))[0] == 200
    assert (await desk.ask("eve", "POST", path, {"question": first["id"], "answer": "Ada"}))[0] == 409

    async def second() -> Any:
        return (found := await desk.asked("eve", run["id"]))["id"] != first["id"] and found

    file = await until(second, "it asks for a file")
    assert file["kind"] == "file"
    _, said_so_far = await desk.ask("eve", "GET", "/elements/talk/messages")
    assert said_so_far[-1]["run"] == run["id"], "a page that is loaded now finds the run that asks"
    assert (await desk.ask("eve", "POST", path, {"question": file["id"], "answer": "tavern.yaml"}))[0] == 400
    sent = await desk.site.request("POST", "/api/blobs", headers=desk.headers["eve"], data=io.BytesIO(b"\x89PNG"))
    said = {"question": file["id"], "file": await sent.json(), "name": ".."}
    assert (await desk.ask("eve", "POST", path, said))[0] == 400
    assert not (desk.host.project.folder("files") / "answers").exists()
    said["name"] = "../../me.png"
    assert (await desk.ask("eve", "POST", path, said))[0] == 200

    async def ended() -> Any:
        _, found = await desk.ask("eve", "GET", f"/runs/{run['id']}")
        return found["status"] == "complete" and found

    assert (await until(ended))["outputs"] == {"reply": "Thank you."}
    assert (desk.host.project.folder("files") / "answers" / file["id"] / "me.png").read_bytes() == b"\x89PNG"


async def test_a_guest_may_decline(desk: Desk) -> None:
    _, run = await desk.ask("gus", "POST", "/elements/talk/messages", {"message": "Please ask."})
    question = await desk.asked("gus", run["id"])
    said = {"question": question["id"], "decline": True}
    assert (await desk.ask("gus", "POST", f"/runs/{run['id']}/answers", said))[0] == 200

    async def ended() -> Any:
        return (await desk.ask("gus", "GET", f"/runs/{run['id']}"))[1].get("outputs")

    assert await until(ended) == {"reply": "As you like."}
