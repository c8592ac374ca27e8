"""Panels as files of the project: read, checked, saved and deleted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import tavern
from helpers.repetition import Failures
from helpers.tavern_project import Tavern

from tavern_host import Host
from tavern_host.contracts.errors import Conflict, InvalidInput, Misconfigured, NotFound, TavernError
from tavern_host.contracts.events import Event
from tavern_host.testing.http import served
from tavern_panels.api.panels import MAX_ELEMENTS, MAX_PANEL, PANEL_MANAGER
from tavern_panels.files import parsed
from tavern_panels.layout import places
from tavern_panels.web import panel_schema
from tavern_workflows.api.workflows import WORKFLOW_MANAGER
from tests.panels.conftest import element, panel

ROOT = Path(__file__).parents[2]


async def test_a_panel_keeps_what_it_does_not_know(project: Tavern) -> None:
    document = panel({**element("a"), "glow": [1, {"deep": None}]}, mood="odd", id="another")
    async with Host(project.root) as host:
        manager = host.services.get(PANEL_MANAGER)
        saved = await manager.save("desk", document, expected_revision="")
        assert json.loads((project.root / "panels/desk.json").read_text()) == document
        assert (await manager.get("desk")) == saved
        with pytest.raises(Conflict, match="there is a panel 'desk' already"):
            await manager.save("desk", document, expected_revision="")
        changed = await manager.save("desk", {**document, "name": "Bar"}, expected_revision=saved.revision)
        with pytest.raises(Conflict, match="not " + saved.revision):
            await manager.delete("desk", expected_revision=saved.revision)
        await manager.delete("desk", expected_revision=changed.revision)
        with pytest.raises(NotFound, match="there is no panel 'desk'"):
            await manager.get("desk")


async def test_a_broken_file_hides_no_other(project: Tavern) -> None:
    project.write("panels/whole.json", panel())
    project.write("panels/half.json", '{"name": ')
    project.write("panels/wrong.json", panel(element("a b"), {"id": "t", "kind": "text", "x": 12}))
    (project.root / "panels/out.json").symlink_to("/etc/hostname")
    async with Host(project.root) as host:
        manager = host.services.get(PANEL_MANAGER)
        listed = {one.id: one.problem for one in await manager.list_panels()}
        assert (listed["whole"], "leads out of the project" in str(listed["out"])) == (None, True)
        assert "$.elements[0].id" in str(listed["wrong"]) and "$.elements[1].x" in str(listed["wrong"])
        with pytest.raises(Misconfigured, match="cannot be used"):
            await manager.get("half")
        assert {problem.panel for problem in await manager.check()} == {"half", "out", "wrong"}


WRONG: dict[str, tuple[Any, str]] = {
    "no name": ({"elements": []}, "$.name: Field required"),
    "a kind that is none": (panel(element("a", "video")), "$.elements[0].kind"),
    "an id twice": (panel(element("a"), element("a")), "$.elements[1].id: 'a' is the id of $.elements[0] already"),
    "no target": (panel(element("a", target="")), "$.elements[0].target: names no workflow; give its id"),
    "too many": (panel(*(element(f"a{n}") for n in range(MAX_ELEMENTS + 1))), "at most 60 items"),
    "too large": (panel(note="x" * MAX_PANEL), "$: is larger than 256 KiB"),
    "too wide": (panel(element("a", w=13)), "$.elements[0].w"),
}


def test_what_is_no_panel_is_said_with_its_place() -> None:
    with Failures() as failures:
        for name, (document, text) in WRONG.items():
            with failures.row(name):
                assert text in "; ".join(parsed(document)[1])


async def test_ids_are_names_of_files(project: Tavern) -> None:
    async with Host(project.root) as host:
        manager = host.services.get(PANEL_MANAGER)
        with Failures() as failures:
            for wrong in ("", "../up", "a/b", ".hidden", "a\x00b", "x" * 81, "字" * 70, "a:b", " a"):
                with failures.row(wrong), pytest.raises(InvalidInput):
                    await manager.save(wrong, panel())
        await manager.save("柜台 1", panel())
        assert [one.id for one in await manager.list_panels()] == ["柜台 1"]


async def test_a_check_names_elements_whose_parts_are_gone(project: Tavern) -> None:
    inputs = {"nam": {"label": "Name"}, "name": {"shown": False}}
    example = {"name": "try", "inputs": {"old": 1}}
    project.write(
        "panels/desk.json",
        panel(
            element("form", inputs=inputs, outputs=["txt"], examples=[example]),
            *(element("lost", target="joyn"), element("who", "agent", "keper"), {"id": "t", "kind": "text"}),
        ),
    )
    async with Host(project.root) as host:
        found = await host.services.get(PANEL_MANAGER).check("desk")
        shown = await host.services.get(PANEL_MANAGER).show("desk")
    assert [(one.element, one.path, one.message) for one in found] == [
        ("form", "$.elements[0].inputs.nam", "the workflow 'join' has no input 'nam' (did you mean name?)"),
        ("form", "$.elements[0].inputs.name", "the input 'name' is required, is not shown, and has no value"),
        ("form", "$.elements[0].examples[0].inputs.old", "there is no input 'old'"),
        ("form", "$.elements[0].outputs[0]", "the workflow 'join' has no output 'txt' (did you mean text?)"),
        ("lost", "$.elements[1].target", "there is no workflow 'joyn' (did you mean join?)"),
        ("who", "$.elements[2].target", "there is no agent 'keper' (did you mean keeper?)"),
    ]
    assert all(one.hint and one.file == "panels/desk.json" for one in found)
    assert "joyn" in str(shown.elements[1].problem), "the page shows it in its place"


async def test_people_are_shown_the_panels_words_and_no_secret(project: Tavern) -> None:
    inputs = {
        "apiKey": {"value": "sk-very-secret"},
        "name": {"label": "Who", "value": "Ada", "hint": "A guest"},
        "greeting": {"shown": False, "value": "Hail"},
    }
    project.write("panels/desk.json", panel(element("form", inputs=inputs, outputs=["text"])))
    async with Host(project.root) as host:
        shown = await host.services.get(PANEL_MANAGER).show("desk")
    (form,) = shown.elements
    key, name = form.inputs
    assert (form.title, [one.key for one in form.outputs]) == ("Join", ["text"])
    assert (name.slot.display_name, name.slot.description, name.slot.default) == ("Who", "A guest", "Ada")
    assert (key.key, key.slot.has_default) == ("apiKey", False)
    assert "secret" not in shown.model_dump_json() and "Hail" not in shown.model_dump_json()


def test_elements_without_a_place_stand_below_the_others() -> None:
    found, problems = parsed(panel(element("a"), element("b", x=8, y=3, w=6, h=4), element("c", "agent", "keeper")))
    assert found is not None and problems == []
    assert places(found.elements) == [(0, 7, 12, 10), (6, 3, 6, 4), (0, 17, 6, 12)]


async def test_changes_of_others_are_told(project: Tavern) -> None:
    project.write("panels/desk.json", panel())
    async with Host(project.root) as host:
        manager = host.services.get(PANEL_MANAGER)
        await manager.list_panels()
        events = host.events.subscribe("PANELS_CHANGED")
        project.write("panels/desk.json", panel(name="Bar"))
        project.write("panels/new.json", panel())
        await manager.list_panels()
        await events.close()
        assert [one.payload async for one in events if isinstance(one, Event)] == [{"changed": ["desk", "new"]}]


async def test_a_workflow_knows_the_panels_that_it_stands_on(project: Tavern) -> None:
    project.write("panels/desk.json", panel({"id": "t", "kind": "text"}, element("form")))
    async with Host(project.root) as host:
        uses = await host.services.get(WORKFLOW_MANAGER).uses("join")
    assert [(one.kind, one.id, one.name, one.place) for one in uses] == [
        ("panel", "desk", "Desk", "$.elements[1].target")
    ]


async def test_documents_over_http_say_which_they_change(project: Tavern) -> None:
    async with Host(project.root) as host, served(host) as site:
        made = await site.post("/api/panels", json={"name": "The desk", "workflows": ["join"], "agents": ["keeper"]})
        tag = made.headers["ETag"]
        document = await made.json()
        assert (made.status, made.headers["Location"].rpartition("/")[2]) == (201, "The-desk")
        assert [(one["id"], one["kind"], one["x"], one["y"], one["w"]) for one in document["elements"]] == [
            ("join", "workflow", 0, 0, 7),
            ("keeper", "agent", 7, 0, 5),
        ]
        path = "/api/panels/The-desk"
        again = await site.get(path, headers={"If-None-Match": tag})
        unsaid = await site.request("PUT", path, json=document)
        saved = await site.request("PUT", path, json={**document, "name": "Bar"}, headers={"If-Match": tag})
        late = await site.request("PUT", path, json=document, headers={"If-Match": tag})
        wrong = await site.request("PUT", path, json={"name": ""}, headers={"If-Match": "*"})
        assert [one.status for one in (again, unsaid, saved, late, wrong)] == [304, 428, 200, 412, 400]
        assert (await site.request("PUT", "/api/panels/a%2Fb", json=document)).status == 400
        assert (await site.post("/api/panels", json={"workflows": ["none"]})).status == 404
        gone = await site.request("DELETE", path, headers={"If-Match": saved.headers["ETag"]})
        assert (gone.status, await (await site.get("/api/panels")).json()) == (200, [])


def test_the_published_schema_is_this_one() -> None:
    """After a change: `tavern panels schema > docs/panel.schema.json`."""
    assert json.loads((ROOT / "docs" / "panel.schema.json").read_text("utf-8")) == panel_schema()


def test_panels_on_the_command_line(project: Tavern) -> None:
    def panels(*words: str) -> Any:
        return tavern("--project", project.root, "panels", *words)

    made = panels("new", "desk", "--workflow", "join", "--agent", "keeper")
    assert (made.code, "#/panels/desk" in made.out) == (0, True)
    assert "Join" in panels("show", "desk").out
    assert (panels("publish", "desk").code, "yes" in panels("list").out) == (0, True)
    assert (panels("withdraw", "desk").code, panels("check").code) == (0, 0)
    (project.root / "workflows/join.json").unlink()
    broken = panels("check")
    assert (broken.code, "panels/desk.json: $.elements[0].target (join): there is no workflow" in broken.out) == (
        1,
        True,
    )
    assert "there is a panel 'desk' already" in panels("new", "desk", "--agent", "keeper").err
    assert (panels("delete", "desk").code, panels("delete", "desk").code) == (0, 2)


async def test_a_panel_that_cannot_be_written_says_so(project: Tavern) -> None:
    (project.root / "panels").mkdir(exist_ok=True)
    (project.root / "panels/desk.json").mkdir()
    async with Host(project.root) as host:
        with pytest.raises(TavernError, match=r"desk\.json"):
            await host.services.get(PANEL_MANAGER).save("desk", panel())
