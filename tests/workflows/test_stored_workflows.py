"""Finding, reading and saving workflow files."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from helpers.folder_plugins import write_plugin
from workflows_bench import Bench, group

from tavern_host import WORKFLOW_MANAGER, Host, InvalidInput, NotFound
from tavern_host.contracts.errors import Conflict, TavernError
from tavern_host.contracts.workflows import Workflow, WorkflowNode

FULL: dict[str, Any] = {
    "id": "full",
    "name": "全部",
    "createdAt": "2025-01-01T00:00:00Z",
    "updatedAt": "2025-02-03T04:05:06Z",
    "viewport": None,
    "unknown": {"deep": [1, 1.0, None, {"ключ": "значение"}]},
    "nodes": [
        {"id": "n", "type": "core:Text", "position": {"x": 1, "y": 2.5}, "width": 300, "inputValues": {"text": None}}
    ],
    "edges": [],
    "interfaceInputs": {"a b": {"dataFlowType": "STRING", "matchCategories": ["Prompt"], "actions": [{"id": "x"}]}},
}


async def test_workflows_of_project_and_plugins_are_listed(bench: Bench) -> None:
    bench.write("b.json", name="Second")
    bench.write("sub/z.json", id="a", updatedAt="2025-02-03T04:05:06Z", description="Named after its path")

    listed = await bench.manager.list_workflows()

    assert [(w.id, w.name, w.source) for w in listed] == [
        ("b", "Second", "project"),
        ("sample", "A sample", "plugin:acme-samples"),
        ("shared", "Of the plugin", "plugin:acme-samples"),
        ("sub/z", "sub/z", "project"),
    ]
    assert listed[3].description == "Named after its path"
    assert listed[3].updated_at.isoformat() == "2025-02-03T04:05:06+00:00"


async def test_project_workflows_come_before_those_of_plugins(bench: Bench) -> None:
    bench.write("shared.json", name="Of the project")

    stored = await bench.manager.get("shared")

    assert (stored.workflow.name, stored.source) == ("Of the project", "project")


async def test_an_unknown_workflow_is_told_with_suggestions(bench: Bench) -> None:
    bench.write("greeting.json")

    with pytest.raises(NotFound, match=r"no workflow 'greetin' \(did you mean greeting\?\)"):
        await bench.manager.get("greetin")


async def test_a_copied_file_is_a_second_workflow(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    path = bench.write("one.json", id="one", name="first")
    for copy in ("two.json", "sub/one.json", "a/b/ü 1.json"):
        bench.write(copy, path.read_bytes())

    assert await bench.ids() == ["a/b/ü 1", "one", "sample", "shared", "sub/one", "two"]
    assert (await bench.manager.get("two")).workflow.id == "one"
    await bench.manager.save("two", Workflow(id="one", name="second"))
    assert [(await bench.manager.get(name)).workflow.name for name in ("one", "two")] == ["first", "second"]
    assert not caplog.records


async def test_a_path_means_the_workflow_in_its_file(bench: Bench) -> None:
    bench.write("sub/x.json", name="below")
    bench.write("y.json.json", name="twice")
    bench.write("workflows/x.json", name="deeper")
    bench.write("x.json", name="top")
    rows = {
        "sub/x": "below",
        "workflows/sub/x.json": "below",
        "sub/x.json": "below",
        "y.json": "twice",
        "workflows/x": "deeper",
        "workflows/x.json": "top",
        "./workflows/workflows/x.json": "deeper",
    }
    for reference, name in rows.items():
        assert (await bench.manager.get(reference)).workflow.name == name, reference
    await bench.manager.save("workflows/sub/x.json", Workflow(name="saved"))
    assert json.loads((bench.folder / "sub" / "x.json").read_text()) == {"name": "saved"}


async def test_groups_name_workflows_by_path_too(bench: Bench) -> None:
    inner = {"nodes": [{"id": "n", "type": "core:Text", "inputValues": {"text": "inside"}}]}
    bench.write("sub/inner.json", inner)
    bench.write("again.json", {"nodes": [group("g", "workflows/again.json")]})
    document = {"id": "sub/inner", "nodes": [group("g", "workflows/sub/inner.json"), group("h", "sub/inner")]}

    assert await bench.problems(document) == {}
    stored = await bench.manager.closure(Workflow.model_validate(document))
    assert {key: found.id for key, found in stored.items()} == dict.fromkeys(
        ("workflows/sub/inner.json", "sub/inner"), "sub/inner"
    )
    found = await bench.problems({"nodes": [group("g", "again")]})
    endless = "groups stand for one another without end: workflows/again.json → workflows/again.json"
    assert list(found.values()) == [endless]
    gone = await bench.problems({"nodes": [group("g", "sub/iner")]})
    assert "there is no workflow 'sub/iner' (did you mean sub/inner?)" in next(iter(gone.values()))


async def test_folders_behind_links_are_not_read(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench.write("sub/x.json")
    (tmp_path / "elsewhere").mkdir()
    (bench.folder / "out").symlink_to(tmp_path / "elsewhere")
    (bench.folder / "round").symlink_to(bench.folder)

    assert await bench.ids() == ["sample", "shared", "sub/x"]
    assert caplog.text.count("is a link to a folder and is not read") == 2
    for name in ("out/y", "round/y", "out/deep/y"):
        with pytest.raises(Conflict, match="is behind a link to a folder; nothing is written there"):
            await bench.manager.save(name, Workflow())
    with pytest.raises(TavernError, match="cannot be written"):
        await bench.manager.save("sub/x.json/y", Workflow())
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert await bench.ids() == ["sample", "shared", "sub/x"]


async def test_unreadable_files_are_left_out_and_reported(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.write("good.json")
    bench.write("comma.json", '{"nodes": [] 1}')
    bench.write("list.json", "[]")
    bench.write("latin.json", b'{"name": "\xe9"}')
    bench.write("huge.json", b" " * (16 * 1024 * 1024 + 1))
    bench.write("deep.json", "[" * 100_000)
    os.mkfifo(bench.folder / "pipe.json")

    assert await bench.ids() == ["good", "sample", "shared"]
    assert "comma.json is not JSON: line 1, column 14: " in caplog.text
    assert "list.json must hold a JSON object, not an array" in caplog.text
    assert "latin.json is not UTF-8 text (byte 10)" in caplog.text
    assert "huge.json is larger than 16 MiB" in caplog.text
    assert "deep.json is not JSON: line 1, column 101: it is nested more than 100 levels deep" in caplog.text
    assert "pipe.json is not a regular file" in caplog.text


async def test_a_malformed_file_is_refused_with_its_problems(bench: Bench) -> None:
    bench.write("broken.json", {"nodes": [{"id": 5}], "edges": {}})

    assert "broken" not in await bench.ids()
    with pytest.raises(InvalidInput) as caught:
        await bench.manager.get("broken")

    assert "broken.json is not a workflow" in str(caught.value)
    paths = [p["path"] for p in caught.value.info.details["problems"]]  # type: ignore[union-attr,index,call-overload]
    assert paths == ["$.nodes[0].id", "$.nodes[0].type", "$.edges"]


async def test_problems_of_plugin_files_are_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = {"comma": "{,}", "shape": '{"nodes": [{"id": 5}]}', "good": "{}", "twice": '{"id": "good"}'}
    files |= {f"many{number:02}": "{" for number in range(20)}
    texts = {f"workflows/{name}.json": text for name, text in files.items()}
    acme = write_plugin(tmp_path / "acme", texts, workflows={"entry": "./workflows"})
    async with Host(tmp_path / "project", plugins=[acme], trust=["acme"]) as host:
        for _ in range(3):
            listed = await host.services.get(WORKFLOW_MANAGER).list_workflows()
        told = {str(p).rpartition("/")[2] for p in host.plugin("acme").problems}

    hint = "(mend it there, or keep it out with `tavern plugins disable acme`)"
    expecting = "Expecting property name enclosed in double quotes"
    assert [w.id for w in listed if w.source == "plugin:acme"] == ["good", "twice"]
    assert f"many19.json: is not JSON: line 1, column 2: {expecting} {hint}" in told
    assert any(t.startswith("shape.json: is not a workflow: $.nodes[0].id: ") for t in told)
    assert caplog.text.count("comma.json: is not JSON: line 1, column 2") == 1


async def test_of_plugins_with_one_workflow_the_first_counts(tmp_path: Path) -> None:
    names = ("acme", "zenith")
    files = {"workflows/same.json": "{}"}
    plugins = [write_plugin(tmp_path / name, files, workflows={"entry": "./workflows"}) for name in names]
    async with Host(tmp_path / "project", plugins=plugins, trust=names) as host:
        assert (await host.services.get(WORKFLOW_MANAGER).get("same")).source == "plugin:acme"

        assert host.plugin("acme").problems == []
        (problem,) = host.plugin("zenith").problems
        first = tmp_path / "acme" / "workflows" / "same.json"
        assert problem.message == f"has the id 'same' of plugin acme ({first}) and is ignored"
        assert str(problem.file).endswith("zenith/workflows/same.json")


async def test_links_out_of_the_folder_are_not_followed(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "outside.json").write_text('{"name": "secret"}')
    bench.write("inside.json")
    (bench.folder / "out.json").symlink_to(tmp_path / "outside.json")
    (bench.folder / "alias.json").symlink_to(bench.folder / "inside.json")

    assert await bench.ids() == ["alias", "inside", "sample", "shared"]
    assert "out.json is a link that leads out of its folder and is ignored" in caplog.text


async def test_a_folder_outside_the_project_is_not_used(bench: Bench, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "x.json").write_text("{}")
    bench.folder.rmdir()
    bench.folder.symlink_to(elsewhere)

    assert "x" not in await bench.ids()
    with pytest.raises(Conflict, match="leads out of the project"):
        await bench.manager.save("y", Workflow())
    assert [p.name for p in elsewhere.iterdir()] == ["x.json"]


# --- saving ---------------------------------------------------------------------------------------


async def test_loading_and_saving_keeps_unknown_keys(bench: Bench) -> None:
    path = bench.write("full.json", FULL)

    loaded = await bench.manager.get("full")
    saved = await bench.manager.save("full", loaded.workflow)

    assert json.loads(path.read_text()) == FULL
    assert saved.revision == loaded.revision
    assert path.read_text().endswith("}\n") and "全部" in path.read_text()


async def test_a_saved_file_is_found_at_once(bench: Bench) -> None:
    saved = await bench.manager.save("new", Workflow(name="New", nodes=[WorkflowNode(id="n", type="core:Text")]))

    assert json.loads((bench.folder / "new.json").read_text()) == {
        "name": "New",
        "nodes": [{"id": "n", "type": "core:Text"}],
    }
    assert (saved.id, saved.source) == ("new", "project")
    assert (await bench.manager.get("new")) == saved


async def test_a_save_goes_to_the_ids_file(bench: Bench) -> None:
    path = bench.write("file.json", id="other", name="before")
    path.chmod(0o640)

    await bench.manager.save("file", Workflow(id="mine", name="after"))

    assert json.loads(path.read_text()) == {"id": "mine", "name": "after"}
    assert path.stat().st_mode & 0o777 == 0o640
    await bench.manager.save("other", Workflow(name="new"))
    assert json.loads((bench.folder / "other.json").read_text()) == {"name": "new"}


async def test_a_saved_copy_keeps_the_id_inside(bench: Bench) -> None:
    bench.write("full.json", FULL)
    loaded = await bench.manager.get("full")

    await bench.manager.save("copy", loaded.workflow)

    assert json.loads((bench.folder / "copy.json").read_text())["id"] == "full"
    assert (await bench.manager.get("full")).workflow.id == "full"


async def test_a_save_over_another_save_is_refused(bench: Bench) -> None:
    bench.write("w.json", name="one")
    seen = await bench.manager.get("w")
    theirs = await bench.manager.save("w", Workflow(name="two"), expected_revision=seen.revision)

    with pytest.raises(Conflict, match=f"changed by someone else: it is at revision {theirs.revision}, not"):
        await bench.manager.save("w", Workflow(name="three"), expected_revision=seen.revision)

    assert (await bench.manager.get("w")).workflow.name == "two"


async def test_a_change_of_the_file_itself_is_seen(bench: Bench) -> None:
    bench.write("w.json", name="one")
    seen = await bench.manager.get("w")
    bench.write("w.json", name="two")

    assert (await bench.manager.get("w")).revision != seen.revision
    with pytest.raises(Conflict):
        await bench.manager.save("w", Workflow(), expected_revision=seen.revision)


async def test_an_empty_expected_revision_expects_no_file(bench: Bench) -> None:
    await bench.manager.save("w", Workflow(), expected_revision="")

    with pytest.raises(Conflict, match="'w' exists already"):
        await bench.manager.save("w", Workflow(), expected_revision="")
    with pytest.raises(Conflict, match="'gone' does not exist any more"):
        await bench.manager.save("gone", Workflow(), expected_revision="0123456789abcdef")


async def test_of_simultaneous_saves_one_meets_the_revision(bench: Bench) -> None:
    start = await bench.manager.save("w", Workflow(name="start"))
    saves = [bench.manager.save("w", Workflow(name=f"v{i}"), expected_revision=start.revision) for i in range(10)]

    results = await asyncio.gather(*saves, return_exceptions=True)

    assert sum(isinstance(r, Conflict) for r in results) == 9
    assert [p.name for p in bench.folder.iterdir()] == ["w.json"]


async def test_workflows_of_plugins_are_read_only(bench: Bench) -> None:
    with pytest.raises(Conflict, match="belongs to the plugin acme-samples; save it under another id"):
        await bench.manager.save("sample", Workflow())


async def test_a_file_that_is_no_workflow_is_not_overwritten(bench: Bench) -> None:
    bench.write("taken.json", "[]")

    with pytest.raises(Conflict, match=r"taken\.json exists already"):
        await bench.manager.save("taken", Workflow())


@pytest.mark.in_process_only("the wire has JSON alone, so the caller is told before it is sent")
async def test_what_json_does_not_have_is_not_saved(bench: Bench) -> None:
    workflow = Workflow(nodes=[WorkflowNode(id="n", type="t", input_values={"x": float("nan")})])
    with pytest.raises(InvalidInput, match="cannot be written as JSON"):
        await bench.manager.save("nan", workflow)
    assert list(bench.folder.glob("*")) == []


async def test_a_failed_save_leaves_the_old_file(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.write("w.json", name="old")

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(TavernError, match=r"w\.json cannot be written: .*No space left"):
        await bench.manager.save("w", Workflow(name="new"))

    assert [p.name for p in bench.folder.iterdir()] == ["w.json"]
    assert (await bench.manager.get("w")).workflow.name == "old"


REFUSED = [
    *(
        ("", "it is empty"),
        ("../evil", "a name in it begins or ends"),
        ("a\\b", r"it holds '\\\\'"),
        ("a:b", "it holds ':'"),
    ),
    *(("nul\0byte", r"it holds '\\x00'"), ("line\nbreak", r"it holds '\\n'")),
    *((name, "a name in it is empty") for name in ("/etc/passwd", "a//b", "a/", "/")),
    *((name, "a name in it begins or ends with a dot") for name in (".hidden", "..", "end ", "a/../b", "a/.b", "a./b")),
    *((name, "it has 201 bytes, at most 200 are allowed") for name in ("x" * 201, "长" * 67)),
    *(("\ud800", "it is not Unicode"), ("/".join("a" * 21), "it has more than 20 parts")),
]


async def test_an_id_is_a_file_name(bench: Bench) -> None:
    before = sorted(bench.host.project.root.rglob("*"))
    for identifier, reason in REFUSED:
        with pytest.raises(InvalidInput, match=f"cannot be the id of a workflow: {reason}"):
            await bench.manager.save(identifier, Workflow())
    assert sorted(bench.host.project.root.rglob("*")) == before
    for identifier in ("a", "长" * 66, "with space", "dots.in.it", "a/b/c", "x" * 200):
        await bench.manager.save(identifier, Workflow(name="kept"))
        assert (await bench.manager.get(identifier)).workflow.name == "kept"
        assert (bench.folder / f"{identifier}.json").is_file()
