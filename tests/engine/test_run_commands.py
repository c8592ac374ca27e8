"""`tavern workflow run` and `tavern nodes list`, as a person types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tavern_host.cli.terminal import run as tavern

GREET = {
    "name": "Greet",
    "nodes": [
        {"id": "in", "type": "core:GroupInput"},
        {"id": "merge", "type": "core:TextMerge", "inputValues": {"separator": ", "}},
        {"id": "out", "type": "core:GroupOutput"},
    ],
    "edges": [
        {"id": "e1", "source": "in", "sourceHandle": "word", "target": "merge", "targetHandle": "text_inputs__0"},
        {"id": "e2", "source": "in", "sourceHandle": "count", "target": "merge", "targetHandle": "text_inputs__1"},
        {"id": "e3", "source": "merge", "sourceHandle": "merged_text", "target": "out", "targetHandle": "text"},
    ],
    "interfaceInputs": {
        "word": {"dataFlowType": "STRING", "required": True},
        "count": {"dataFlowType": "INTEGER", "config": {"default": 1}},
    },
    "interfaceOutputs": {"text": {"dataFlowType": "STRING", "displayName": "Greeting"}},
}
FAILS = {"nodes": [{"id": "f", "type": "core:Fail", "inputValues": {"message": "no luck"}}], "edges": []}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with a stored workflow, in which the user stands."""
    root = tmp_path / "project"
    (root / "workflows").mkdir(parents=True)
    (root / "tavern.yaml").write_text("name: test\n")
    (root / "workflows" / "greet.json").write_text(json.dumps(GREET))
    monkeypatch.chdir(root)
    return root


@pytest.mark.parametrize("name", ["greet", "workflows/greet.json"])
def test_a_workflow_is_run_by_its_id_or_its_file(project: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    code = tavern(["workflow", "run", name, "--input", "word=3", "--input", "count=2"])

    shown = capsys.readouterr()
    assert code == 0
    assert shown.out == "Greeting: 3, 2\n"
    assert "merge (core:TextMerge) done\n" in shown.err


def test_with_json_only_the_run_is_printed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = tavern(["workflow", "run", "greet", "--input", "word=hello", "--json"])

    shown = capsys.readouterr()
    run: dict[str, Any] = json.loads(shown.out)
    assert (code, run["status"], run["outputs"], shown.err) == (0, "complete", {"text": "hello, 1"}, "")


def test_a_run_that_fails_says_why_and_ends_with_1(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "fails.json").write_text(json.dumps(FAILS))

    code = tavern(["workflow", "run", "fails.json"])

    assert code == 1
    assert "Error: node f (Fail): no luck" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["greet"], "$.inputs.word: the input 'word' is required"),
        (["greet", "--input", "word"], "--input word: write KEY=VALUE"),
        (["greet", "--input", "word=x", "--input", "count=many"], "expected an integer, got text"),
        (["greet", "--input", "word=x", "--input", "wort=x"], "no input 'wort' (did you mean word?)"),
        (["gret"], "there is no file gret, and there is no workflow 'gret' (did you mean greet?)"),
    ],
)
def test_what_the_user_did_wrong_ends_with_2(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert tavern(["workflow", "run", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_node_types_are_listed_with_their_slots(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tavern(["nodes", "list", "--json"]) == 0
    types = {f"{node['namespace']}:{node['type']}" for node in json.loads(capsys.readouterr().out)}
    assert "core:TextMerge" in types

    assert tavern(["nodes", "list"]) == 0
    assert "core:TextMerge" in capsys.readouterr().out
