"""Finding, reading and saving workflow files."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.folder_plugins import write_plugin
from helpers.repetition import refused
from helpers.systems import on_linux
from workflows_bench import Bench, group

from tavern_host import WORKFLOW_MANAGER, Host, InvalidInput, NotFound
from tavern_host.contracts.errors import Conflict, TavernError
from tavern_host.contracts.workflows import Workflow, WorkflowNode
from tavern_workflows.api.workflows import StoredWorkflow

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
    bench.write("shared.json", name="Of the project")
    stored = await bench.manager.get("shared")
    assert (stored.workflow.name, stored.source) == ("Of the project", "project"), "those of plugins come after"
    with pytest.raises(NotFound, match=r"no workflow 'sampel' \(did you mean sample\?\)"):
        await bench.manager.get("sampel")


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


async def test_links_out_of_the_folder_are_not_followed(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "secret.json").write_text("{}")
    bench.write("sub/x.json")
    for link, target in {
        "out": elsewhere,
        "round": bench.folder,
        "out.json": elsewhere / "secret.json",
        "alias.json": bench.folder / "sub" / "x.json",
    }.items():
        (bench.folder / link).symlink_to(target)

    assert await bench.ids() == ["alias", "sample", "shared", "sub/x"]
    assert caplog.text.count("is a link to a folder and is not read") == 2
    assert "out.json is a link that leads out of its folder and is ignored" in caplog.text
    behind = "is behind a link to a folder; nothing is written there"
    await refused(
        [(bench.manager.save(f"{name}/y", Workflow()), Conflict, behind) for name in ("out", "round", "out/deep")]
    )
    with pytest.raises(TavernError, match="cannot be written"):
        await bench.manager.save("sub/x.json/y", Workflow())
    shutil.rmtree(bench.folder)
    bench.folder.symlink_to(elsewhere)
    assert await bench.ids() == ["sample", "shared"], "a folder outside of the project is not used"
    await refused([(bench.manager.save("y", Workflow()), Conflict, "leads out of the project")])
    assert [path.name for path in elsewhere.iterdir()] == ["secret.json"]


async def test_unreadable_files_are_left_out_and_reported(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.write("good.json")
    bench.write("comma.json", '{"nodes": [] 1}')
    bench.write("list.json", "[]")
    bench.write("latin.json", b'{"name": "\xe9"}')
    bench.write("huge.json", b" " * (16 * 1024 * 1024 + 1))
    bench.write("deep.json", "[" * 100_000)
    bench.write("broken.json", {"nodes": [{"id": 5}], "edges": {}})
    os.mkfifo(bench.folder / "pipe.json")

    assert await bench.ids() == ["good", "sample", "shared"]
    for reported in (
        "comma.json is not JSON: line 1, column 14: ",
        "list.json must hold a JSON object, not an array",
        "latin.json is not UTF-8 text (byte 10)",
        "huge.json is larger than 16 MiB",
        "deep.json is not JSON: line 1, column 101: it is nested more than 100 levels deep",
        "pipe.json is not a regular file",
    ):
        assert reported in caplog.text
    with pytest.raises(InvalidInput, match=r"broken\.json is not a workflow") as caught:
        await bench.manager.get("broken")
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


# --- saving ---------------------------------------------------------------------------------------


async def test_what_is_saved_is_found_with_all_its_keys(bench: Bench) -> None:
    path = bench.write("full.json", FULL)
    loaded = await bench.manager.get("full")
    saved = await bench.manager.save("full", loaded.workflow)
    assert json.loads(path.read_text()) == FULL
    assert saved.revision == loaded.revision
    assert path.read_text().endswith("}\n") and "全部" in path.read_text()

    saved = await bench.manager.save("new", Workflow(name="New", nodes=[WorkflowNode(id="n", type="core:Text")]))
    assert json.loads((bench.folder / "new.json").read_text()) == {
        "name": "New",
        "nodes": [{"id": "n", "type": "core:Text"}],
    }
    assert (saved.id, saved.source) == ("new", "project")
    assert (await bench.manager.get("new")) == saved


@on_linux
async def test_a_save_goes_to_the_file_named_by_the_id(bench: Bench) -> None:
    path = bench.write("file.json", id="other", name="before")
    path.chmod(0o640)
    for identifier, workflow in (
        ("file", Workflow(id="mine", name="after")),
        ("other", Workflow(name="new")),
        ("copy", (await bench.manager.get("file")).workflow),
    ):
        await bench.manager.save(identifier, workflow)
    kept = {path.stem: json.loads(path.read_text()) for path in bench.folder.iterdir()}
    assert kept == {
        "file": {"id": "mine", "name": "after"},
        "other": {"name": "new"},
        "copy": {"nodes": [], "id": "other", "name": "before"},
    }
    assert path.stat().st_mode & 0o777 == 0o640


async def test_nothing_is_saved_over_what_nobody_has_seen(bench: Bench) -> None:
    async def save(identifier: str, name: str, expected: str | None = None) -> StoredWorkflow:
        return await bench.manager.save(identifier, Workflow(name=name), expected_revision=expected)

    bench.write("w.json", name="one")
    bench.write("list.json", "[]")
    seen = await bench.manager.get("w")
    theirs = await save("w", "two", seen.revision)
    await save("new", "first", "")
    changed = f"changed by someone else: it is at revision {theirs.revision}, not"
    await refused(
        [
            (save("w", "three", seen.revision), Conflict, changed),
            (save("new", "second", ""), Conflict, "'new' exists already"),
            (save("gone", "", seen.revision), Conflict, "'gone' does not exist any more"),
            (save("sample", ""), Conflict, "belongs to the plugin acme-samples; save it under another id"),
            (save("list", ""), Conflict, "list.json exists already"),
        ]
    )
    assert [(await bench.manager.get(name)).workflow.name for name in ("w", "new")] == ["two", "first"]
    bench.write("w.json", name="by hand")
    assert (await bench.manager.get("w")).revision != theirs.revision
    with pytest.raises(Conflict):
        await save("w", "three", theirs.revision)
    now = (await bench.manager.get("w")).revision
    results = await asyncio.gather(*(save("w", f"v{i}", now) for i in range(10)), return_exceptions=True)
    assert sum(isinstance(result, Conflict) for result in results) == 9
    assert sorted(path.name for path in bench.folder.iterdir()) == ["list.json", "new.json", "w.json"]


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
    *((name, "a name in it begins or ends with a dot") for name in (".hidden", "..", "end ", " x", "a/../b", "a./b")),
    *((name, "it has 201 bytes, at most 200 are allowed") for name in ("x" * 201, "长" * 67)),
    *(
        ("\ud800", "(it|half of a surrogate pair, which) is not Unicode"),
        ("/".join("a" * 21), "it has more than 20 parts"),
    ),
]


async def test_an_id_is_a_file_name(bench: Bench) -> None:
    before = sorted(bench.host.project.root.rglob("*"))
    for identifier, reason in REFUSED:
        with pytest.raises(
            InvalidInput, match=f"(cannot be the id of a workflow: |no wire value: the text holds ){reason}"
        ):
            await bench.manager.save(identifier, Workflow())
    assert sorted(bench.host.project.root.rglob("*")) == before
    for identifier in ("a", "长" * 66, "with space", "dots.in.it", "a/b/c", "x" * 200):
        await bench.manager.save(identifier, Workflow(name="kept"))
        assert (await bench.manager.get(identifier)).workflow.name == "kept"
        assert (bench.folder / f"{identifier}.json").is_file()
