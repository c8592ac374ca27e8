"""A secret of the settings that somebody wrote into a document: readers are shown a mask, and saving loses nothing."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures
from helpers.workflow_documents import workflow_document
from workflows_bench import asked

from tavern_host import Host
from tavern_host.contracts.settings import MASK
from tavern_host.testing.http import HttpClient, served

SECRET = "whsec-7b1e42-0c4f91"
ONE = "/api/workflows/keyed"
Change = Callable[[Any], object]


def document() -> dict[str, Any]:
    nodes = {
        "a": {"type": "core:StringInput", "inputValues": {"value": SECRET, "other": "plain"}},
        "b": {"type": "core:StringInput", "inputValues": {"value": f"Bearer {SECRET}"}},
        "c": {"type": "core:StringInput", "inputValues": {"value": ["x", {"deep": SECRET}], "note": f"a {MASK} b"}},
    }
    return workflow_document(nodes, id="keyed", name="Keyed")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[HttpClient]:
    """Serve a project with a secret that stands in a file of it."""
    settings = {"extensions.tavern-operations.webhookSecret": SECRET}
    folder = tmp_path / "inn" / "workflows"
    folder.mkdir(parents=True)
    (folder / "keyed.json").write_text(json.dumps(document()))
    async with Host(tmp_path / "inn", third_party=False, settings=settings) as host, served(host) as client:
        yield client


def kept(site: HttpClient) -> Any:
    """Return the document in the file."""
    return json.loads((site.host.project.root / "workflows" / "keyed.json").read_text())


async def put(site: HttpClient, shown: Any, tag: str, where: str = ONE) -> tuple[int, Any, str]:
    body = shown if where == ONE else {"workflow": shown}
    return await asked(site, "PUT", where, body, If_Match=tag)


async def test_a_document_that_is_saved_as_it_was_shown_keeps_its_secrets(site: HttpClient) -> None:
    _, shown, tag = await asked(site, "GET", ONE)
    assert SECRET not in json.dumps(shown)
    status, after, tag = await put(site, {**shown, "name": "Hi", "nodes": shown["nodes"][::-1]}, tag)
    assert (status, SECRET in json.dumps(after)) == (200, False)
    assert kept(site) == {**document(), "name": "Hi", "nodes": document()["nodes"][::-1]}

    _, shown, tag = await asked(site, "GET", ONE)
    status, _, tag = await asked(site, "PATCH", ONE, {"nodes": shown["nodes"][::-1]}, If_Match=tag)
    assert (status, kept(site)["nodes"]) == (200, document()["nodes"])


async def test_a_draft_keeps_its_secrets_until_it_is_published(site: HttpClient) -> None:
    _, shown, tag = await asked(site, "GET", ONE)
    shown["nodes"][0]["inputValues"]["other"] = "changed"
    assert (await put(site, shown, tag, f"{ONE}/draft"))[0] == 200
    _, draft, _ = await asked(site, "GET", f"{ONE}/draft")
    assert SECRET not in json.dumps(draft)
    assert (await put(site, draft["workflow"], tag))[0] == 200
    values = {**document()["nodes"][0]["inputValues"], "other": "changed"}
    assert kept(site)["nodes"] == [{**document()["nodes"][0], "inputValues": values}, *document()["nodes"][1:]]


async def test_what_only_the_draft_holds_is_published_with_it(site: HttpClient) -> None:
    _, shown, tag = await asked(site, "GET", ONE)
    shown["nodes"][0]["inputValues"]["other"] = SECRET
    assert (await put(site, shown, tag, f"{ONE}/draft"))[0] == 200
    _, draft, _ = await asked(site, "GET", f"{ONE}/draft")
    assert draft["workflow"]["nodes"][0]["inputValues"]["other"] == MASK
    assert (await put(site, draft["workflow"], tag))[0] == 200
    assert kept(site)["nodes"][0]["inputValues"]["other"] == SECRET


def _copied_node(shown: Any) -> None:
    shown["nodes"].append({**copy.deepcopy(shown["nodes"][0]), "id": "d"})


MOVES: dict[str, tuple[Change, str]] = {
    "a node that was copied": (_copied_node, "$.nodes[3].inputValues.value"),
    "another slot": (lambda shown: shown["nodes"][0]["inputValues"].update(other=MASK), "$.nodes[0].inputValues.other"),
    "another type of node": (lambda shown: shown["nodes"][0].update(type="core:Wait"), "$.nodes[0].inputValues.value"),
    "another node by its id": (
        lambda shown: [shown["nodes"][0].update(id="b"), shown["nodes"].pop(1)],
        "$.nodes[0].inputValues.value",
    ),
    "a part of a text, copied": (
        lambda shown: shown["nodes"][0]["inputValues"].update(other=f"Bearer {MASK}"),
        "$.nodes[0].inputValues.other",
    ),
    "a text that was changed around it": (
        lambda shown: shown["nodes"][1]["inputValues"].update(value=f"Basic {MASK}"),
        "$.nodes[1].inputValues.value",
    ),
    "the item of a list that has become longer": (
        lambda shown: shown["nodes"][2]["inputValues"]["value"].insert(0, "y"),
        "$.nodes[2].inputValues.value[2].deep",
    ),
    "a key": (lambda shown: shown["nodes"][0]["inputValues"].update({MASK: 1}), "$.nodes[0].inputValues"),
}


async def test_a_mask_in_another_place_is_refused_and_copies_no_secret(site: HttpClient) -> None:
    before = kept(site)
    _, shown, tag = await asked(site, "GET", ONE)
    with Failures() as failures:
        for what, (change, place) in MOVES.items():
            for where in (ONE, f"{ONE}/draft"):
                with failures.row(f"{what}: {where}"):
                    edited = copy.deepcopy(shown)
                    change(edited)
                    status, said, _ = await put(site, edited, tag, where)
                    assert (status, said["detail"].split(" has ")[0], SECRET in json.dumps(said)) == (400, place, False)
        with failures.row("a new workflow"):
            status, said, _ = await asked(site, "POST", "/api/workflows", {**shown, "id": "other"})
            assert (status, said["detail"].split(" has ")[0]) == (400, "$.nodes[0].inputValues.value")
    assert kept(site) == before


async def test_a_new_value_takes_the_place_of_a_secret(site: HttpClient) -> None:
    _, shown, tag = await asked(site, "GET", ONE)
    shown["nodes"][0]["inputValues"] = {"value": "new", "other": f"five stars: {MASK}"}
    assert (await put(site, shown, tag))[0] == 200
    assert kept(site)["nodes"][0]["inputValues"] == {"value": "new", "other": f"five stars: {MASK}"}


async def test_profiles_and_tool_files_keep_their_secrets_too(site: HttpClient) -> None:
    root, tool = site.host.project.root, {"id": "keyed", "implementation": {"type": "node", "nodeType": "core:Wait"}}
    profile = {"id": "keyed", "name": "Keyed", "version": "1.0.0", "schema_version": "1.0", "notes": [SECRET]}
    profile["core_deliberation_workflow_id"] = "keyed"
    stored = {
        "/api/agents/keyed": (root / "agents" / "keyed.json", json.dumps(profile)),
        "/api/tool-files/keyed": (root / "tools" / "keyed.tool.json", json.dumps({**tool, "description": SECRET})),
    }
    with Failures() as failures:
        for where, (file, text) in stored.items():
            with failures.row(where):
                file.parent.mkdir(exist_ok=True)
                file.write_text(text)
                _, shown, tag = await asked(site, "GET", where)
                assert SECRET not in json.dumps(shown)
                document = shown.get("source", shown)
                status, said, _ = await asked(site, "PUT", where, document, If_Match=tag)
                assert (status, json.loads(file.read_text())) == (200, json.loads(text)), said
                edited = json.loads(json.dumps(document).replace(MASK, f"{MASK} copied"))
                tag = (await asked(site, "GET", where))[2]
                status, said, _ = await asked(site, "PUT", where, edited, If_Match=tag)
                assert (status, f" has {MASK}" in said["detail"]) == (400, True), said
