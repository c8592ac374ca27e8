"""`tavern runs list`, `show`, `resume` and `retry`, each in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import Ran, tavern
from helpers.repetition import Failures
from helpers.workflow_documents import function

NODES = '''"""A node that fails until a file is there, and one that counts how often it ran."""
from pathlib import Path
from typing import Annotated

from tavern_host import Slot, node


@node(cached=False)
def count(file: str) -> Annotated[int, Slot(key="times")]:
    path = Path(file)
    times = len(path.read_text()) + 1 if path.exists() else 1
    path.write_text("x" * times)
    return times


@node(cached=False)
def need(file: str, value: int) -> Annotated[int, Slot(key="value")]:
    if not Path(file).exists():
        raise ValueError("the file is not there")
    return value
'''

Tavern = Callable[..., Ran]


@pytest.fixture
def inn(tmp_path: Path) -> Tavern:
    """Return what runs `tavern` in a project with a workflow `needy` that fails until `tmp_path/it` is there."""
    plugin = tmp_path / "acme_need"
    (plugin / "nodes").mkdir(parents=True)
    (plugin / "nodes" / "__init__.py").write_text(NODES)
    (plugin / "__init__.py").write_text("")
    (plugin / "plugin.yaml").write_text("name: acme-need\ndisplayName: Need\nversion: 1.0.0\nnodes: {entry: nodes}\n")
    assert tavern("init", tmp_path / "inn").code == 0
    needy: dict[str, Any] = {
        "name": "Needy",
        "nodes": [
            {"id": "c", "type": "acme-need:Count", "inputValues": {"file": str(tmp_path / "counted")}},
            {"id": "n", "type": "acme-need:Need", "inputValues": {"file": str(tmp_path / "it")}},
            {"id": "out", "type": "core:GroupOutput"},
        ],
        "edges": [
            {"id": "e1", "source": "c", "sourceHandle": "times", "target": "n", "targetHandle": "value"},
            {"id": "e2", "source": "n", "sourceHandle": "value", "target": "out", "targetHandle": "result"},
        ],
        "interfaceOutputs": {"result": {"dataFlowType": "INTEGER", "displayName": "Result"}},
    }
    edges, text = ("in.text > up.text", "up.text > out.text"), {"text": "STRING"}
    shout = function("Shout", {"up": "core:UpperCase"}, *edges, takes=text, gives=text)
    for name, document in (("needy", needy), ("shout", shout)):
        (tmp_path / "inn" / "workflows" / f"{name}.json").write_text(json.dumps(document))
    return lambda *arguments: tavern("--project", tmp_path / "inn", "--dev", plugin, *arguments)


def run(inn: Tavern, *arguments: str) -> str:
    """Run a workflow and return the run's id."""
    identifier: str = inn("workflow", "run", *arguments, "--json").json()["id"]
    return identifier


def rows(ran: Ran) -> list[list[str]]:
    """Return the first three cells of each row of a table."""
    return [line.split()[:3] for line in ran.out.splitlines() if line.strip().startswith("run_")]


def test_where_nothing_has_run_the_list_says_none(inn: Tavern) -> None:
    assert (inn("runs", "list").out, inn("runs", "list", "--json").json()) == ("none\n", [])


def test_runs_are_listed_newest_first_and_by_what_is_asked_for(inn: Tavern) -> None:
    good, bad = run(inn, "shout", "--input", "text=a"), run(inn, "needy")

    assert rows(inn("runs", "list")) == [[bad[:12], "error", "Needy"], [good[:12], "complete", "Shout"]]
    assert [r["id"] for r in inn("runs", "list", "--json").json()] == [bad, good]
    assert rows(inn("runs", "list", "--status", "complete", "--since", "1h")) == [[good[:12], "complete", "Shout"]]
    assert rows(inn("runs", "list", "--workflow", "needy")) == [[bad[:12], "error", "Needy"]]
    assert len(rows(inn("runs", "list", "--status", "complete", "--status", "error"))) == 2
    assert len(rows(inn("runs", "list", "--limit", "1"))) == 1
    assert rows(inn("runs", "list", "--since", "2999-01-01")) == []


def test_what_cannot_be_is_the_users_mistake(inn: Tavern) -> None:
    rows: Any = [
        (["list", "--status", "eror"], "status: there is no status 'eror' (did you mean error?)"),
        (["list", "--since", "soon"], "since: 'soon' is no time: write 2d"),
        (["list", "--limit", "0"], "limit: input should be greater than or equal to 1"),
        (["show", "run_0"], "there is no run 'run_0'; `tavern runs list` shows those that there are"),
        (["show", ""], "there is no run ''"),
        (["resume", "nope"], "there is no run 'nope'"),
        (["retry", "nope"], "there is no run 'nope'"),
    ]
    with Failures() as failures:
        for arguments, error in rows:
            with failures.row(arguments):
                ran = inn("runs", *arguments)

                assert (ran.code, ran.out) == (2, "")
                assert ran.err.startswith(f"Error: {error}") and ran.err.count("\n") == 1


def test_a_run_is_shown_with_what_its_nodes_did(inn: Tavern) -> None:
    identifier = run(inn, "shout", "--input", "text=hello")

    shown = inn("runs", "show", identifier[:12])

    assert (shown.code, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert lines[0] == f"{identifier}: complete"
    assert "  workflow:     Shout (shout)" in lines
    assert any(line.startswith("  asked for:") and line.endswith("by user:operator") for line in lines)
    assert "  text: hello" in lines and lines[-1] == "  text: HELLO"
    assert any(line.split()[:2] == ["up", "done"] for line in lines)
    assert inn("runs", "show", identifier, "--json").json()["outputs"] == {"text": "HELLO"}


def test_a_node_of_a_run_is_shown_with_its_whole_output(inn: Tavern) -> None:
    identifier = run(inn, "shout", "--input", "text=" + "hello\nyou " * 200)

    node = inn("runs", "show", identifier, "--node", "up")
    unknown = inn("runs", "show", identifier, "--node", "u")

    assert node.out.startswith("up: done, began ")
    assert node.out.endswith("text:\n" + "HELLO\nYOU " * 200 + "\n")
    assert inn("runs", "show", identifier, "--node", "up", "--json").json()["id"] == "up"
    assert (unknown.code, unknown.out) == (2, "")
    assert f"the run {identifier} has no node 'u' (did you mean up" in unknown.err


def test_the_beginning_of_several_ids_is_not_enough(inn: Tavern) -> None:
    first, second = run(inn, "shout", "--input", "text=a"), run(inn, "shout", "--input", "text=b")

    ran = inn("runs", "show", "run_")

    assert ran.code == 2
    assert "'run_' matches several runs: " in ran.err and first in ran.err and second in ran.err


def test_a_failed_run_goes_on_from_where_it_failed(inn: Tavern, tmp_path: Path) -> None:
    failed = inn("workflow", "run", "needy")
    identifier = inn("runs", "list", "--json").json()[0]["id"]
    (tmp_path / "it").touch()

    resumed = inn("runs", "resume", identifier.removeprefix("run_")[:10])
    again = inn("runs", "resume", identifier)
    late = inn("runs", "interrupt", identifier)

    assert failed.code == 1
    assert f"`tavern runs resume {identifier}` resumes it from here.\n" in failed.err
    assert (resumed.code, resumed.out) == (0, "Result: 1\n")
    assert "n (acme-need:Need) done\n" in resumed.err and "c (acme-need:Count) …" not in resumed.err
    assert (tmp_path / "counted").read_text() == "x"
    assert rows(inn("runs", "list")) == [[identifier[:12], "complete", "(attempt"]]
    assert (again.code, again.out) == (2, "")
    assert identifier in again.err
    assert late.code == 2 and f"the run {identifier} has finished already" in late.err


def test_a_run_is_run_once_more_with_the_same_inputs(inn: Tavern) -> None:
    first = run(inn, "shout", "--input", "text=hello")

    again = inn("runs", "retry", first)
    as_json = inn("runs", "retry", first, "--json")

    assert (again.code, again.out) == (0, "text: HELLO\n")
    assert "up (core:UpperCase) " in again.err
    assert as_json.json()["id"] != first and as_json.json()["inputs"] == {"text": "hello"}
    assert len(inn("runs", "list", "--json").json()) == 3


def test_inputs_come_from_a_file_or_from_standard_input(tmp_path: Path) -> None:
    (tmp_path / "values.json").write_text('{"name": "Ada", "greeting": "Hi"}')

    from_file = tavern("workflow", "run", "greeting", "--inputs", "values.json", cwd=tmp_path)
    above = tavern("workflow", "run", "greeting", "--inputs", tmp_path / "values.json", "--input", "name=Bo")
    from_stdin = tavern("workflow", "run", "greeting", "--inputs", "-", stdin='{"name": "Ädä"}')

    assert [ran.out for ran in (from_file, above, from_stdin)] == [
        "Text: Hi, Ada\n",
        "Text: Hi, Bo\n",
        "Text: Hello, Ädä\n",
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "standard input is not JSON: line 1, column 1"),
        ("[1]", "standard input must hold a JSON object, not an array"),
        ('{"name": NaN}', "standard input: $.name: a number must be finite"),
        ("\udcff", "standard input is not UTF-8 text"),
    ],
)
def test_inputs_that_are_no_object_are_the_users_mistake(text: str, error: str) -> None:
    ran = tavern("workflow", "run", "greeting", "--inputs", "-", stdin=text)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"Error: {error}")


def test_a_file_of_inputs_that_is_not_there_is_the_users_mistake(tmp_path: Path) -> None:
    ran = tavern("workflow", "run", "greeting", "--inputs", "none.json", cwd=tmp_path)

    assert (ran.code, ran.err) == (2, "Error: there is no file none.json\n")


def test_only_what_a_target_needs_is_run() -> None:
    ran = tavern("workflow", "run", "greeting", "--input", "name=Ada", "--target", "trim", "--json")

    assert ran.json()["targets"] == ["trim"]
    states = {node: state["status"] for node, state in ran.json()["nodes"].items()}
    assert states["trim"] == "complete" and states["merge"] != "complete"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--priority", "1001"], "--priority: input should be less than or equal to 1000"),
        (["--target", "trimm"], "trimm"),
    ],
)
def test_a_target_or_priority_that_cannot_be_is_the_users_mistake(arguments: list[str], error: str) -> None:
    ran = tavern("workflow", "run", "greeting", "--input", "name=Ada", *arguments)

    assert (ran.code, ran.out) == (2, "")
    assert error in ran.err


def test_a_run_takes_outputs_of_nodes(inn: Tavern, tmp_path: Path) -> None:
    (tmp_path / "given.json").write_text('{"c": {"times": 5}, "n": {"value": 6}}')

    ran = inn("workflow", "run", "needy", "--overrides", tmp_path / "given.json", "--override", "n.value=7")
    (run,) = inn("runs", "list", "--json").json()
    shown = inn("runs", "show", run["id"], "--json").json()
    wrong = inn("workflow", "run", "needy", "--override", "n=7")

    assert (ran.code, "Result: 7" in ran.out, (tmp_path / "counted").exists()) == (0, True, False), ran.out + ran.err
    assert [shown["nodes"][node]["given"] for node in "cn"] == [True, True]
    assert shown["nodes"]["n"]["output"] == {"value": 7}
    assert (wrong.code, wrong.error) == (2, "Error: --override n=7: write NODE.OUTPUT=VALUE")
