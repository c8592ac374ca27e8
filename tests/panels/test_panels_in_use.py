"""Panels in use: what somebody may who may run what panels hold, and nothing else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from helpers.folder_plugins import write_plugin
from helpers.repetition import Failures
from helpers.workflow_documents import function

from tavern_host import EXECUTION_ENGINE, Host
from tavern_host.contracts.accounts import ACCOUNTS
from tavern_host.projects import Folders
from tavern_host.testing.http import HttpClient, served
from tests.panels.conftest import element, panel, written

pytestmark = pytest.mark.asyncio(loop_scope="module")

INPUTS = {"greeting": {"shown": False, "value": "Hail"}, "apiKey": {"shown": False, "value": "sk-hidden"}}
DESK = panel(
    element("form", inputs=INPUTS, outputs=["text"], examples=[{"name": "Ada", "inputs": {"name": "Ada"}}]),
    element("picture", target="picture"),
    element("letters", target="letters"),
    element("slow", target="slow"),
    element("talk", "agent", "keeper"),
    {"id": "about", "kind": "text", "text": "# Welcome"},
    published=True,
)
LETTERS = function(
    "Letters", {"spell": "acme:Letters"}, *("in.text > spell.text", "spell.letters > out.letters"),
    takes={"text": "STRING"}, gives={"letters": "STRING"},
)  # fmt: skip
LETTERS["interfaceOutputs"]["letters"]["isStream"] = True
SLOW = function("Slow", {"hold": "acme:Hold"}, "hold.text > out.text", takes={}, gives={"text": "STRING"})
NODES = """
import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from tavern_host import Slot, node


@node()
async def letters(text: str) -> Annotated[AsyncIterator[str], Slot(key="letters")]:
    for letter in text:
        yield letter


@node()
async def hold() -> Annotated[str, Slot(key="text")]:
    await asyncio.Event().wait()
    return ""
"""


@dataclass
class Desk:
    """The server, and the headers of people."""

    site: HttpClient
    headers: dict[str, dict[str, str]]

    async def ask(self, who: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return the status and the JSON of an answer."""
        sent = {} if body is None else {"json": body}
        answer = await self.site.request(method, path, headers=self.headers[who], **sent)
        text = await answer.text()
        return answer.status, json.loads(text) if text.startswith(("{", "[")) else text

    async def events(self, who: str, run: str) -> list[tuple[str, Any]]:
        """Return the events of a run in the panel, to its end."""
        path = f"/api/panels/desk/runs/{run}/events"
        answer = await self.site.request("GET", path, headers=self.headers[who])
        assert answer.status == 200
        found = []
        for part in (await answer.text()).replace("\r\n", "\n").split("\n\n"):
            fields = dict(line.split(": ", 1) for line in part.splitlines() if ": " in line)
            if "event" in fields:
                found.append((fields["event"], json.loads(fields["data"])))
        return found

    async def run(self, who: str, name: str, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return how a run of an element ended."""
        status, run = await self.ask(who, "POST", f"/api/panels/desk/elements/{name}/runs", {"inputs": inputs})
        assert status == 202, run
        kind, last = (await self.events(who, run["id"]))[-1]
        assert kind == "run"
        return dict(last)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    """Serve a project with a panel to two guests, a viewer, a creator and the operator."""
    place = tmp_path_factory.mktemp("desk")
    project = written(place / "inn")
    project.write("panels/desk.json", DESK)
    project.write("panels/draft.json", panel(element("form")))
    project.write("workflows/letters.json", LETTERS)
    project.write("workflows/slow.json", SLOW)
    write_plugin(project.root / "plugins" / "acme", {"nodes/__init__.py": NODES}, nodes={"entry": "./nodes"})
    folders = Folders(place / "config", place / "state", place / "data")
    async with Host(project.root, folders=folders, serving=True) as host, served(host) as site:
        await host.grant("acme")
        accounts = host.services.get(ACCOUNTS)
        headers: dict[str, dict[str, str]] = {"operator": {}}
        for name, role in (("eve", "guest"), ("gus", "guest"), ("vic", "viewer"), ("cleo", "creator")):
            await accounts.add_user(name, "good evening", role=role)
            headers[name] = {"Authorization": f"Bearer {(await accounts.make_token(name, 'test')).token}"}
        yield Desk(site, headers)


async def test_who_may_not_change_panels_is_shown_those_that_are_published(desk: Desk) -> None:
    for who, seen in (
        ("eve", ["desk"]),
        ("vic", ["desk"]),
        ("cleo", ["desk", "draft"]),
        ("operator", ["desk", "draft"]),
    ):
        status, listed = await desk.ask(who, "GET", "/api/panels")
        assert (status, [one["id"] for one in listed]) == (200, seen), who
    assert (await desk.ask("eve", "GET", "/api/panels/draft/shown"))[0] == 404
    assert (await desk.ask("eve", "POST", "/api/panels/draft/elements/form/runs", {}))[0] == 404
    assert (await desk.ask("cleo", "GET", "/api/panels/draft/shown"))[0] == 200


async def test_a_guest_may_use_panels_and_nothing_else(desk: Desk) -> None:
    with Failures() as failures:
        for method, path in (
            ("GET", "/api/panels/desk"),
            ("PUT", "/api/panels/desk"),
            ("DELETE", "/api/panels/desk"),
            ("GET", "/api/workflows/join"),
            ("GET", "/api/runs"),
            ("POST", "/api/prompt"),
            ("POST", "/api/agents/keeper/runs"),
            ("GET", "/api/histories"),
            ("GET", "/api/files"),
            ("GET", "/api/plugins"),
            ("GET", "/ws"),
        ):
            with failures.row(f"{method} {path}"):
                status, answer = await desk.ask("eve", method, path, {} if method != "GET" else None)
                assert (status, answer["code"]) == (403, "forbidden")
    assert (await desk.ask("eve", "GET", "/"))[0] == 200, "the page itself"
    assert (await desk.ask("vic", "POST", "/api/panels/desk/elements/form/runs", {}))[0] == 403, "viewers only look"


async def test_a_run_has_the_inputs_that_are_shown_and_the_values_of_the_panel(desk: Desk) -> None:
    run = await desk.run("eve", "form", {"name": "Ada"})
    assert (run["status"], run["outputs"], run["inputs"]) == ("complete", {"text": "Hail Ada"}, {"name": "Ada"})
    assert "sk-hidden" not in json.dumps(run)
    path = "/api/panels/desk/elements/form/runs"
    for body, slot in (({"greeting": "Bye", "name": "x"}, "greeting"), ({}, "name"), ({"name": {"a": 1}}, "name")):
        status, refused = await desk.ask("eve", "POST", path, {"inputs": body})
        assert (status, [one["slot"] for one in refused["details"]["problems"]]) == (400, [slot]), "beside its field"
    assert (await desk.ask("eve", "POST", "/api/panels/desk/elements/nothing/runs", {}))[0] == 404
    assert (await desk.ask("eve", "POST", "/api/panels/desk/elements/talk/runs", {}))[0] == 404


async def test_a_run_is_of_the_person_and_the_panel(desk: Desk) -> None:
    run = (await desk.run("eve", "form", {"name": "Ada"}))["id"]
    for who, panel_id, status in (
        ("eve", "desk", 200),
        ("gus", "desk", 404),
        ("operator", "desk", 404),
        ("cleo", "draft", 404),
    ):
        assert (await desk.ask(who, "GET", f"/api/panels/{panel_id}/runs/{run}"))[0] == status, (who, panel_id)
        assert (await desk.ask(who, "POST", f"/api/panels/{panel_id}/runs/{run}/stop"))[0] == status
    output = f"/api/panels/desk/runs/{run}/outputs"
    assert await desk.ask("eve", "GET", f"{output}/text") == (200, "Hail Ada")
    assert (await desk.ask("eve", "GET", f"{output}/echo"))[0] == 404, "the panel does not show it"
    prompt = {"workflowId": "join", "inputs": {"name": "x"}, "metadata": {}}
    status, other = await desk.ask("cleo", "POST", "/api/prompt", prompt)
    assert (await desk.ask("cleo", "GET", f"/api/panels/desk/runs/{other.get('promptId')}"))[0] == 404


async def test_pictures_go_in_and_come_out(desk: Desk) -> None:
    headers = {**desk.headers["eve"], "Content-Type": "image/png"}
    put = await desk.site.request("POST", "/api/blobs", data=b"\x89PNG evening", headers=headers)
    handle = await put.json()
    run = await desk.run("eve", "picture", {"file": handle})
    assert (put.status, run["outputs"]["file"]) == (201, handle)
    got = await desk.site.request("GET", f"/api/blobs/{handle['hash']}", headers=desk.headers["eve"])
    assert await got.read() == b"\x89PNG evening"


async def test_a_stream_grows_while_it_runs(desk: Desk) -> None:
    _, run = await desk.ask("eve", "POST", "/api/panels/desk/elements/letters/runs", {"inputs": {"text": "ale"}})
    events = await desk.events("eve", run["id"])
    assert events[-1][1]["outputs"] == {"letters": "ale"}
    assert {data["key"] for kind, data in events if kind == "piece"} <= {"letters"}


async def test_a_run_is_stopped(desk: Desk) -> None:
    _, run = await desk.ask("eve", "POST", "/api/panels/desk/elements/slow/runs", {})
    status, stopped = await desk.ask("eve", "POST", f"/api/panels/desk/runs/{run['id']}/stop")
    assert (status, stopped["id"]) == (200, run["id"])
    assert (await desk.events("eve", run["id"]))[-1][1]["status"] == "interrupted"


async def test_a_guest_talks_to_an_agent_in_a_conversation_of_their_own(desk: Desk) -> None:
    path = "/api/panels/desk/elements/talk/messages"
    status, run = await desk.ask("eve", "POST", path, {"message": "Evening!"})
    last = (await desk.events("eve", run["id"]))[-1][1]
    assert (status, last["status"], last["outputs"]) == (202, "complete", {"reply": "Good evening."})
    said = [("user", "Evening!"), ("assistant", "Good evening.")]
    _, more = await desk.ask("eve", "POST", path, {"message": "Please shout.", "conversation": 3})
    notes = [data for kind, data in await desk.events("eve", more["id"]) if kind == "note"]
    _, loud = await desk.ask("eve", "GET", f"{path}?conversation=3")
    assert [one["text"] for one in loud] == ["Please shout.", "Good evening."], "no calls, and not what they gave"
    assert "ale" not in json.dumps(notes), "a tool is named, but not what it is called with"
    for who, query, seen in (("eve", "", said), ("eve", "?conversation=2", []), ("gus", "", []), ("operator", "", [])):
        status, messages = await desk.ask(who, "GET", path + query)
        assert (status, [(one["role"], one["text"]) for one in messages]) == (200, seen), who
    assert (await desk.ask("gus", "GET", f"/api/panels/desk/runs/{run['id']}"))[0] == 404
    for wrong in ({"message": " "}, {"message": "x", "conversation": 0}, {"message": "x", "profileId": "other"}):
        assert (await desk.ask("eve", "POST", path, wrong))[0] == 400


async def test_what_a_guest_began_ends_with_the_role(desk: Desk) -> None:
    accounts = desk.site.host.services.get(ACCOUNTS)
    await accounts.add_user("ivy", "good evening", role="guest")
    token = (await accounts.make_token("ivy", "test")).token
    desk.headers["ivy"] = {"Authorization": f"Bearer {token}"}
    _, run = await desk.ask("ivy", "POST", "/api/panels/desk/elements/slow/runs", {})
    await accounts.remove_user("ivy")
    assert (await desk.ask("ivy", "GET", f"/api/panels/desk/runs/{run['id']}"))[0] == 401
    runs = await desk.site.host.services.get(EXECUTION_ENGINE).wait(run["id"])
    assert runs.status == "interrupted"
