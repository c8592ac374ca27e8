"""Drafts and histories of workflows: what is kept, what runs, and that nobody's work is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from helpers.waiting import until
from workflows_bench import asked

from tavern_host import WORKFLOW_MANAGER, Host, NotFound
from tavern_host.contracts.calls import operator_call
from tavern_host.contracts.errors import Conflict
from tavern_host.contracts.workflows import Workflow
from tavern_host.testing.http import HttpClient, served
from tavern_workflows import history as store
from tavern_workflows.api.workflows import WorkflowManager

PATH = "/api/workflows/greet"


def says(text: str, **more: Any) -> dict[str, Any]:
    nodes = [
        {"id": "say", "type": "core:Text", "inputValues": {"text": text}},
        {"id": "out", "type": "core:GroupOutput"},
    ]
    edge = {"id": "e", "source": "say", "sourceHandle": "text", "target": "out", "targetHandle": "said"}
    return {"nodes": nodes, "edges": [edge], "interfaceOutputs": {"said": {"dataFlowType": "STRING"}}, **more}


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[HttpClient]:
    folder = tmp_path / "project" / "workflows"
    folder.mkdir(parents=True)
    (folder / "greet.json").write_text(json.dumps(says("hello")))
    async with Host(tmp_path / "project", third_party=False) as host, served(host) as client:
        yield client


@pytest.fixture
def manager(site: HttpClient) -> WorkflowManager:
    found: WorkflowManager = site.host.services.get(WORKFLOW_MANAGER)
    return found


async def said(site: HttpClient, workflow: str) -> Any:
    run = await site.request("POST", "/api/prompt", json={"workflowId": workflow})
    prompt = (await run.json())["promptId"]

    async def is_over() -> bool:
        return (await asked(site, "GET", f"/api/prompt/{prompt}"))[1]["status"] in ("complete", "error")

    await until(is_over)
    return (await asked(site, "GET", f"/api/runs/{prompt}"))[1]["outputs"]["said"]


async def kinds(site: HttpClient, path: str = PATH) -> list[tuple[int, str, str]]:
    found = (await asked(site, "GET", f"{path}/history"))[1]
    return [(one["number"], one["kind"], one["reason"]) for one in found]


async def test_a_draft_is_apart_from_what_is_published_until_it_is(site: HttpClient) -> None:
    status, none, tag = await asked(site, "GET", f"{PATH}/draft")
    assert (status, none.get("workflow"), none["base"], f'"{none["published"]}"') == (200, None, none["published"], tag)
    assert (await asked(site, "PUT", f"{PATH}/draft", {"workflow": says("hi")}))[0] == 428

    body = {"workflow": says("hi", ours=[1]), "reason": "Change Text"}
    status, draft, mine = await asked(site, "PUT", f"{PATH}/draft", body, If_Match=tag)
    assert (status, draft["workflow"], draft["by"], mine != tag) == (
        200,
        says("hi", ours=[1], id="greet"),
        "user:operator",
        True,
    )
    assert (await asked(site, "PUT", f"{PATH}/draft", body, If_Match=tag))[0] == 412, (
        "another browser's draft is not overwritten"
    )
    assert [await said(site, one) for one in ("greet", "greet@draft", "greet@r1", "greet@r2")] == [
        "hello", "hi", "hello", "hi"
    ]  # fmt: skip
    assert await kinds(site) == [(2, "draft", "Change Text"), (1, "outside", "")]

    published = await asked(site, "PUT", PATH, {**draft["workflow"], "updatedAt": "2026-01-01T00:00:00Z"}, If_Match=tag)
    assert published[0] == 200
    assert (await asked(site, "GET", f"{PATH}/draft"))[1].get("workflow") is None
    assert await said(site, "greet") == "hi"
    assert (await kinds(site))[0] == (3, "published", "")
    assert (await asked(site, "GET", f"{PATH}/history/1"))[1] == says("hello", id="greet")
    for number in ("4", "0", "x", "9" * 30, "-1"):
        assert (await asked(site, "GET", f"{PATH}/history/{number}"))[0] == 404


async def test_a_draft_as_the_file_is_and_one_given_up_are_none(site: HttpClient) -> None:
    _, _, tag = await asked(site, "GET", f"{PATH}/draft")
    _, _, mine = await asked(site, "PUT", f"{PATH}/draft", {"workflow": says("hi")}, If_Match=tag)
    _, draft, after = await asked(site, "PUT", f"{PATH}/draft", {"workflow": says("hello", id="greet")}, If_Match=mine)
    assert (draft.get("workflow"), after) == (None, tag)
    _, _, mine = await asked(site, "PUT", f"{PATH}/draft", {"workflow": says("hey")}, If_Match=tag)
    assert (await asked(site, "DELETE", f"{PATH}/draft", If_Match=tag))[0] == 412
    assert (await asked(site, "DELETE", f"{PATH}/draft", If_Match=mine))[1].get("workflow") is None
    assert (await asked(site, "GET", f"{PATH}/history/3"))[1]["nodes"] == says("hey")["nodes"], "its revisions stay"
    assert (await asked(site, "GET", "/api/workflows/greet%40draft"))[0] == 404


async def test_a_file_that_something_else_changes_is_a_revision_and_a_draft_is_behind_it(site: HttpClient) -> None:
    file = site.host.project.root / "workflows" / "greet.json"
    _, _, tag = await asked(site, "GET", f"{PATH}/draft")
    _, _, mine = await asked(site, "PUT", f"{PATH}/draft", {"workflow": says("hi")}, If_Match=tag)
    events = site.host.events.subscribe("WORKFLOW_CHANGED")
    file.write_text(json.dumps(says("by git")))
    _, draft, _ = await asked(site, "GET", f"{PATH}/draft")
    assert draft["base"] != draft["published"] and draft["workflow"] == says("hi", id="greet")
    event = await asyncio.wait_for(anext(events), 60)
    assert (event.payload["workflowId"], event.payload["change"]) == ("greet", "outside")
    assert (await kinds(site))[0] == (3, "outside", "")

    _, draft, mine = await asked(site, "PUT", f"{PATH}/draft", {"workflow": says("ho")}, If_Match=mine)
    assert draft["base"] != draft["published"], "going on with a draft does not decide whose is right"
    _, draft, _ = await asked(site, "PUT", f"{PATH}/draft", {"workflow": says("ho"), "rebase": True}, If_Match=mine)
    assert draft["base"] == draft["published"]


async def test_a_host_that_serves_tells_of_changed_files_by_itself(tmp_path: Path) -> None:
    async with Host(tmp_path / "project", third_party=False, serving=True) as host:
        manager = host.services.get(WORKFLOW_MANAGER)
        await manager.save("greet", Workflow.model_validate(says("hello")), call=operator_call(host.project.id))
        events = host.events.subscribe("WORKFLOW_CHANGED")
        (host.project.root / "workflows" / "greet.json").write_text(json.dumps(says("by git")))
        event = await asyncio.wait_for(anext(events), 60)
        assert (event.payload["change"], event.payload["by"]) == ("outside", None)


async def test_histories_follow_moves_and_outlive_deletion(site: HttpClient, manager: WorkflowManager) -> None:
    _, _, tag = await asked(site, "GET", f"{PATH}/draft")
    await asked(site, "PUT", f"{PATH}/draft", {"workflow": says("hi")}, If_Match=tag)
    await asked(site, "PATCH", PATH, {"id": "sub/greet"}, If_Match=tag)
    moved = "/api/workflows/sub%2Fgreet"
    assert (await asked(site, "GET", f"{moved}/draft"))[1]["workflow"] == says("hi", id="sub/greet")
    assert await kinds(site, moved) == [(2, "draft", ""), (1, "outside", "")] and await kinds(site) == []
    named = await asked(site, "PATCH", f"{moved}/history/1", {"name": "before the party"})
    assert (named[0], named[1]["name"]) == (200, "before the party")
    assert (await asked(site, "PATCH", f"{moved}/history/9", {"name": "x"}))[0] == 404

    await asked(site, "DELETE", moved, If_Match="*")
    newest = (await asked(site, "GET", "/api/workflow-history"))[1]
    assert [(one["workflow"], one["kind"], one["by"]) for one in newest] == [("sub/greet", "deleted", "user:operator")]
    assert (await asked(site, "GET", f"{moved}/draft"))[0] == 404
    back = (await asked(site, "GET", f"{moved}/history/3"))[1]
    assert back == says("hello", id="sub/greet") and (await asked(site, "PUT", moved, back))[0] == 201
    assert (await asked(site, "GET", f"{moved}/draft"))[1].get("workflow") is None, "the draft went with the file"
    other = await manager.save("sub/other", Workflow.model_validate(says("other")))
    await manager.delete("sub/greet")
    await manager.move("sub/other", "sub/greet", expected_revision=other.revision)
    assert [number for number, _, _ in await kinds(site, moved)] == [6, 5, 4, 3, 2, 1], "what was there stays readable"


async def test_the_oldest_revisions_without_a_name_go(site: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MOST", 3)
    _, _, tag = await asked(site, "GET", f"{PATH}/draft")
    await asked(site, "PATCH", f"{PATH}/history/1", {"name": "first"})
    for number in range(6):
        _, _, tag = await asked(site, "PUT", f"{PATH}/draft", {"workflow": says(f"hi {number}")}, If_Match=tag)
    assert [number for number, _, _ in await kinds(site)] == [7, 6, 5, 4, 1]
    monkeypatch.setattr(store, "MOST_BYTES", 1)
    await asked(site, "PUT", f"{PATH}/draft", {"workflow": says("x" * 5000)}, If_Match=tag)
    assert [number for number, _, _ in await kinds(site)] == [8, 7, 1], (
        "the draft, the newest beside it, and a named one"
    )
    assert (await asked(site, "GET", f"{PATH}/draft"))[1]["workflow"]["nodes"] == says("x" * 5000)["nodes"]


async def test_of_two_drafts_at_once_one_is_kept(manager: WorkflowManager) -> None:
    before = await manager.draft("greet")
    saving = [
        manager.save_draft("greet", Workflow.model_validate(says(text)), expected_revision=before.revision)
        for text in ("a", "b", "c")
    ]
    ended = await asyncio.gather(*saving, return_exceptions=True)
    assert sorted(type(one).__name__ for one in ended) == ["Conflict", "Conflict", "WorkflowDraft"]
    with pytest.raises(Conflict):
        await manager.discard_draft("greet", expected_revision=before.revision)
    with pytest.raises(NotFound):
        await manager.save_draft("absent", Workflow())


async def test_words_are_found_in_names_nodes_and_values(site: HttpClient, manager: WorkflowManager) -> None:
    await manager.save(
        "letters", Workflow.model_validate(says("Straße nach Rom", name="Briefe", description="a letter"))
    )

    async def found(text: str) -> list[tuple[str, str | None, str]]:
        status, matches, _ = await asked(site, "GET", f"/api/workflow-search?text={text}")
        assert status == 200
        return [
            (one["workflow"], one.get("node"), one["path"])
            for one in matches
            if one["workflow"] in ("greet", "letters")
        ]

    assert await found("STRASSE core:text") == [("letters", "say", "$.nodes[0].inputValues.text")]
    assert await found("letter briefe") == [("letters", None, "$.id")]
    assert await found("hello") == [("greet", "say", "$.nodes[0].inputValues.text")]
    assert await found("hello rom") == await found("%20") == []
