"""`tavern runs list`, `show`, `resume` and `retry`, each in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import Ran, tavern
from helpers.folder_plugins import write_plugin
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
    """Return the function that runs `tavern` in a project whose workflow `needy` fails until `tmp_path/it` exists."""
    files = {"__init__.py": "", "nodes/__init__.py": NODES}
    plugin = write_plugin(tmp_path / "acme_need", files, nodes={"entry": "nodes"})
    assert tavern("init", "--empty", tmp_path / "inn").code == 0
    nodes = {
        "c": {"type": "acme-need:Count", "inputValues": {"file": str(tmp_path / "counted")}},
        "n": {"type": "acme-need:Need", "inputValues": {"file": str(tmp_path / "it")}},
    }
    gives = {"Result": "INTEGER", "Unfed": "INTEGER"}
    needy = function("Needy", nodes, "c.times > n.value", "n.value > out.Result", takes={}, gives=gives)
    edges, text = ("in.text > up.text", "up.text > out.text"), {"text": "STRING"}
    shout = function("Shout", {"up": "core:UpperCase"}, *edges, takes=text, gives=text)
    for name, document in (("needy", needy), ("shout", shout)):
        (tmp_path / "inn" / "workflows" / f"{name}.json").write_text(json.dumps(document))
    return lambda *arguments, **how: tavern("--project", tmp_path / "inn", "--dev", plugin, *arguments, **how)


def run(inn: Tavern, *arguments: str) -> str:
    """Run a workflow and return the run's id."""
    identifier: str = inn("workflow", "run", *arguments, "--json").json()["id"]
    return identifier


def rows(ran: Ran) -> list[list[str]]:
    """Return the first three cells of each row of a table."""
    return [line.split()[:3] for line in ran.out.splitlines() if line.strip().startswith("run_")]


def test_runs_are_listed_newest_first_and_by_filters(inn: Tavern) -> None:
    assert (inn("runs", "list").out, inn("runs", "list", "--json").json()) == ("none\n", [])
    good, bad = run(inn, "shout", "--input", "text=a"), run(inn, "needy")

    assert rows(inn("runs", "list")) == [[bad[:12], "error", "Needy"], [good[:12], "complete", "Shout"]]
    assert [r["id"] for r in inn("runs", "list", "--json").json()] == [bad, good]
    assert rows(inn("runs", "list", "--status", "complete", "--since", "1h")) == [[good[:12], "complete", "Shout"]]
    assert rows(inn("runs", "list", "--workflow", "needy")) == [[bad[:12], "error", "Needy"]]
    assert len(rows(inn("runs", "list", "--status", "complete", "--status", "error"))) == 2
    assert len(rows(inn("runs", "list", "--limit", "1"))) == 1
    assert rows(inn("runs", "list", "--since", "2999-01-01")) == []
    several = inn("runs", "show", "run_")
    assert several.code == 2 and f"'run_' matches several runs: {bad}" in several.err and good in several.err


def test_what_cannot_be_is_the_users_mistake(inn: Tavern, tmp_path: Path) -> None:
    words = ["workflow", "run", "shout", "--inputs", "-"]
    wrong: Any = [
        (["runs", "list", "--status", "eror"], "", "status: there is no status 'eror' (did you mean error?)"),
        (["runs", "list", "--since", "soon"], "", "since: 'soon' is no time: write 2d"),
        (["runs", "list", "--limit", "0"], "", "limit: input should be greater than or equal to 1"),
        (["runs", "show", "run_0"], "", "there is no run 'run_0'; `tavern runs list` shows those that there are"),
        (["runs", "show", ""], "", "there is no run ''"),
        (["runs", "resume", "nope"], "", "there is no run 'nope'"),
        (["runs", "retry", "nope"], "", "there is no run 'nope'"),
        (words, "", "standard input is not JSON: line 1, column 1"),
        (words, "[1]", "standard input must hold a JSON object, not an array"),
        (words, '{"text": NaN}', "standard input: $.text: a number must be finite"),
        (words, "\udcff", "standard input is not UTF-8 text"),
        ([*words[:4], "none.json"], "", "there is no file none.json"),
        ([*words, "--priority", "1001"], "{}", "--priority: input should be less than or equal to 1000"),
        ([*words, "--target", "u"], '{"text": "a"}', "there is no node 'u' that could be a target (did you mean up?)"),
        (["workflow", "run", "needy", "--override", "n=7"], "", "--override n=7: write NODE.OUTPUT=VALUE"),
    ]
    with Failures() as failures:
        for arguments, stdin, error in wrong:
            with failures.row(arguments):
                ran = inn(*arguments, stdin=stdin)
                assert (ran.code, ran.out) == (2, "")
                assert ran.err.startswith(f"Error: {error}") and ran.err.count("\n") == 1, ran.err


def test_a_run_is_shown_with_what_its_nodes_did(inn: Tavern) -> None:
    identifier = run(inn, "shout", "--input", "text=" + "hello\nyou " * 200)

    shown = inn("runs", "show", identifier[:12])
    node = inn("runs", "show", identifier, "--node", "up")
    unknown = inn("runs", "show", identifier, "--node", "u")

    assert (shown.code, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert lines[0] == f"{identifier}: complete"
    assert "  workflow:     Shout (shout)" in lines
    assert any(line.startswith("  asked for:") and line.endswith("by user:operator") for line in lines)
    assert {"  text: hello", "  text: HELLO"} <= {*lines} and lines[-1].endswith("… (2,000 letters; --json has all)")
    assert any(line.split()[:2] == ["up", "done"] for line in lines)
    whole = "HELLO\nYOU " * 200
    assert inn("runs", "show", identifier, "--json").json()["outputs"] == {"text": whole}
    assert node.out.startswith("up: done, began ") and node.out.endswith(f"text:\n{whole}\n")
    assert inn("runs", "show", identifier, "--node", "up", "--json").json()["id"] == "up"
    assert (unknown.code, unknown.out) == (2, "")
    assert f"the run {identifier} has no node 'u' (did you mean up" in unknown.err


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
    assert "No value came to the outputs: Unfed\n" in resumed.err and "No value" not in failed.err
    assert (tmp_path / "counted").read_text() == "x"
    assert rows(inn("runs", "list")) == [[identifier[:12], "complete", "(attempt"]]
    assert (again.code, again.out) == (2, "")
    assert again.error.endswith(f"is complete; run it again with `tavern runs retry {identifier}`")
    assert late.code == 2 and f"the run {identifier} has finished already" in late.err


def test_a_failed_run_resumes_with_another_document(inn: Tavern, tmp_path: Path) -> None:
    identifier = run(inn, "needy")
    repaired = json.loads((tmp_path / "inn" / "workflows" / "needy.json").read_text())
    next(node for node in repaired["nodes"] if node["id"] == "n")["inputValues"]["file"] = str(tmp_path)
    (tmp_path / "repaired.json").write_text(json.dumps(repaired))

    resumed = inn("runs", "resume", identifier, "--workflow", str(tmp_path / "repaired.json"))
    newest = inn("runs", "list", "--json").json()[0]["id"]
    again = inn("runs", "resume", identifier)

    assert (resumed.code, resumed.out) == (0, "Result: 1\n")
    assert (tmp_path / "counted").read_text() == "x", "what had finished is not run again"
    assert f"  continues:    {identifier}" in inn("runs", "show", newest).out.splitlines()
    assert again.code == 2 and f"it was continued by the run {newest}" in again.error


def test_a_run_is_run_once_more_with_its_inputs(inn: Tavern, tmp_path: Path) -> None:
    (tmp_path / "values.json").write_text('{"text": "hello"}')
    first = run(inn, "shout", "--inputs", str(tmp_path / "values.json"))

    again = inn("runs", "retry", first)
    as_json = inn("runs", "retry", first, "--json")

    assert (again.code, again.out) == (0, "text: HELLO\n")
    assert "up (core:UpperCase) " in again.err
    assert as_json.json()["id"] != first and as_json.json()["inputs"] == {"text": "hello"}
    assert len(inn("runs", "list", "--json").json()) == 3
    above = inn("workflow", "run", "shout", "--inputs", str(tmp_path / "values.json"), "--input", "text=bo")
    from_stdin = inn("workflow", "run", "shout", "--inputs", "-", stdin='{"text": "ädä"}')
    assert (above.out, from_stdin.out) == ("text: BO\n", "text: ÄDÄ\n")


def test_only_what_a_target_needs_is_run(inn: Tavern) -> None:
    ran = inn("workflow", "run", "shout", "--input", "text=a", "--target", "up", "--json").json()
    assert ran["targets"] == ["up"]
    assert ran["nodes"]["up"]["status"] == "complete"
    assert ran["nodes"]["out"]["status"] != "complete"


def test_a_run_takes_outputs_of_nodes(inn: Tavern, tmp_path: Path) -> None:
    (tmp_path / "given.json").write_text('{"c": {"times": 5}, "n": {"value": 6}}')

    ran = inn("workflow", "run", "needy", "--overrides", tmp_path / "given.json", "--override", "n.value=7")
    (run,) = inn("runs", "list", "--json").json()
    shown = inn("runs", "show", run["id"], "--json").json()

    assert (ran.code, "Result: 7" in ran.out, (tmp_path / "counted").exists()) == (0, True, False), ran.out + ran.err
    assert [shown["nodes"][node]["given"] for node in "cn"] == [True, True]
    assert shown["nodes"]["n"]["output"] == {"value": 7}
