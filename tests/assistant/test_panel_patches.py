"""Panels changed by patches, and by requests to the creation assistant."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from helpers.repetition import Failures
from helpers.stub_llm import said

from tavern_assistant.api.assistant import ASSISTANT, UPDATE_PANEL, UPDATE_WORKFLOW
from tavern_assistant.patches.panels import apply_to_panel, panel_changes
from tavern_host.contracts.events import Event
from tavern_host.testing.http import HttpClient, served
from tavern_panels.api.panels import PANEL_MANAGER
from tests.agents.agent_bench import AgentBench, agent_bench
from tests.panels.conftest import JOIN, element, panel

pytestmark = pytest.mark.asyncio(loop_scope="module")

DESK = panel(element("form", x=0, y=0, w=12, h=10), {"id": "note", "kind": "text", "text": "Hi"}, glow=1)
SIDE_BY_SIDE: list[Any] = [
    {"op": "add", "path": "/elements/-", "value": {"localId": "talk", "kind": "agent", "target": "keeper"}},
    {"op": "add", "path": "/elements/talk/x", "value": 7},
    {"op": "add", "path": "/elements/talk/y", "value": 0},
    {"op": "replace", "path": "/elements/form/w", "value": 7},
    {"op": "add", "path": "/elements/form/inputs", "value": {"greeting": {"shown": False, "value": "Hail"}}},
    {"op": "remove", "path": "/elements/note"},
    {"op": "replace", "path": "/name", "value": "The desk"},
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AgentBench]:
    """Give a project with a workflow, an agent, and a model that gives the replies of a script."""

    def prepare(project: Any) -> None:
        project.write("workflows/join.json", JOIN)

    async with agent_bench(tmp_path_factory.mktemp("panels"), prepare) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(bench: AgentBench) -> AsyncIterator[HttpClient]:
    """Serve it."""
    async with served(bench.host) as client:
        yield client


async def test_elements_are_named_by_ids_and_local_ids() -> None:
    patched, problems, local_ids = apply_to_panel(DESK, SIDE_BY_SIDE)
    assert (problems, local_ids, patched["glow"]) == ([], {"keeper": "talk"}, 1)
    form, talk = patched["elements"]
    assert (form["w"], form["inputs"]["greeting"]["value"]) == (7, "Hail")
    assert talk == {"id": "keeper", "kind": "agent", "target": "keeper", "x": 7, "y": 0}
    assert [(one.kind, one.what, one.id, one.local_id) for one in panel_changes(DESK, patched, local_ids)] == [
        ("changed", "element", "form", None),
        ("removed", "element", "note", None),
        ("added", "element", "keeper", "talk"),
        ("changed", "value", "/name", None),
    ]


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "an element that is none": ({"op": "remove", "path": "/elements/from"}, "unknown_element", "did you mean form?"),
    "the whole list": ({"op": "replace", "path": "/elements", "value": []}, "whole_document", "/elements/-"),
    "the whole panel": ({"op": "replace", "path": "", "value": {}}, "whole_document", "one by one"),
    "no element": ({"op": "add", "path": "/elements/-", "value": "x"}, "bad_value", "localId"),
    "a value that is another": ({"op": "test", "path": "/elements/form/w", "value": 1}, "test_failed", "again"),
}


async def test_what_cannot_be_applied_says_why_and_what_to_do() -> None:
    with Failures() as failures:
        for name, (operation, code, hint) in REFUSED.items():
            with failures.row(name):
                patched, (problem,), _ = apply_to_panel(DESK, [operation])
                assert (patched, problem.code, hint in problem.hint) == (DESK, code, True), problem


async def test_a_patch_is_checked_before_it_is_applied_and_can_be_taken_back(
    bench: AgentBench, site: HttpClient
) -> None:
    manager = bench.host.services.get(PANEL_MANAGER)
    saved = await manager.save("desk", DESK)
    asked = {"kind": "panel", "id": "desk", "operations": SIDE_BY_SIDE, "revision": saved.revision}
    proposed = await (await site.post("/api/patches/check", json=asked)).json()
    assert (proposed["applied"], (await manager.get("desk")).document) == (True, DESK), "nothing is changed yet"
    made = await site.post("/api/patches", json=asked)
    result = await made.json()
    assert (made.status, result["document"]) == (200, (await manager.get("desk")).document)
    late = await site.post("/api/patches", json=asked)
    assert (late.status, (await late.json())["conflict"]["expected"]) == (409, saved.revision)
    undo = {"kind": "panel", "id": "desk", "revision": result["revision"], "to": result["former"]}
    assert (await site.post("/api/patches/undo", json=undo)).status == 200
    assert (await manager.get("desk")).document == DESK
    lost = {"op": "add", "path": "/elements/-", "value": {"kind": "workflow", "target": "joyn"}}
    hidden = {"op": "add", "path": "/elements/form/inputs", "value": {"name": {"shown": False}}}
    for operation, message in ((lost, "there is no workflow 'joyn'"), (hidden, "is required, is not shown")):
        refused = await bench.host.services.get(ASSISTANT).propose_patch([operation], kind="panel", id="desk")
        assert (refused.applied, message in refused.problems[0].message) == (False, True)


async def test_the_assistant_proposes_a_panel_which_is_shown_before_it_is_made(
    bench: AgentBench, site: HttpClient
) -> None:
    manager = bench.host.services.get(PANEL_MANAGER)
    await manager.save("bar", panel(element("form", w=12, inputs={"apiKey": {"value": "sk-typed"}})))
    before = (await manager.get("bar")).document
    wrong = {"reply": "I add it.", "operations": [{"op": "add", "path": "/elements/-", "value": {"kind": "video"}}]}
    right = {"reply": "The chat is on the right.", "operations": SIDE_BY_SIDE[:4]}
    model = bench.answers(said(json.dumps(wrong)), said(json.dumps(right)))
    events = bench.host.events.subscribe(UPDATE_PANEL, UPDATE_WORKFLOW)
    body = {"panelId": "bar", "message": "Put a chat on the right.", "conversationId": "c1"}
    started = await site.post("/api/assistant/requests", json=body)
    assert started.status == 202, await started.text()
    reply = await bench.ended((await started.json())["id"])
    await events.close()
    (event,) = [one async for one in events if isinstance(one, Event)]
    told = model.asked[0].messages[-1].content
    assert (reply.text, len(model.asked)) == ("The chat is on the right.", 2), "the first answer is mended"
    assert "Workflows that may stand on the panel" in told and '"id":"join"' in told and "sk-typed" not in told
    assert "grid of 12 columns" in model.asked[0].messages[0].content
    assert (event.type, event.payload["panelId"], event.payload["mode"]) == (UPDATE_PANEL, "bar", "preview")
    assert [one["id"] for one in event.payload["panel"]["elements"]] == ["form", "keeper"]
    assert (await manager.get("bar")).document == before, "a proposal changes nothing"
    for both in ({"message": "x"}, {"message": "x", "panelId": "bar", "workflowId": "join"}):
        assert (await site.post("/api/assistant/requests", json=both)).status == 400
    assert (await site.post("/api/assistant/requests", json={"message": "x", "panelId": "none"})).status == 404
