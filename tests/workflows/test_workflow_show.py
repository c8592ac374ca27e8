"""`tavern workflow show`: a workflow's graph as a tree or as Mermaid, of any workflow and of what hardly is one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import tavern
from helpers.workflow_documents import workflow_document
from rich.cells import cell_len

from tavern_host.contracts.workflows import Workflow
from tavern_workflows.graph import graph_form, ordered
from tavern_workflows.mermaid import mermaid
from tavern_workflows.show import page


def workflow(nodes: dict[str, Any], *edges: str, **more: Any) -> Workflow:
    """Return a workflow of nodes by id (a type, or a node) and edges written `source.slot > target.slot`."""
    return Workflow.model_validate(workflow_document(nodes, *edges, **more))


def drawn(document: Workflow, width: int = 60, groups: dict[str, Workflow] | None = None, **options: bool) -> str:
    """Return the page about a workflow."""
    return page("w", document, groups or {}, width, **options)


def inside(zone: str) -> dict[str, str]:
    return {"type": "core:Pass", "parentNode": zone}


LOOP = workflow(
    {
        "in": "core:GroupInput",
        "z": {"type": "core:LoopZone", "configValues": {"count": 3, "carried": [{"key": "acc"}]}},
        "add": inside("z"),
        "out": "core:GroupOutput",
    },
    "in.n > z.in__acc",
    "z.in__acc > add.a",
    "add.sum > z.next__acc",
    "z.out__acc > out.total",
)


def test_nodes_are_listed_in_topological_order() -> None:
    document = workflow(
        {
            "d": "core:Join",
            "a": "core:Text",
            "b": {"type": "core:Upper", "displayName": "Loud"},
            "c": {"type": "core:Lower", "bypassed": True},
        },
        "a.text > b.in",
        "a.text > c.in",
        "b.out > d.parts__0",
        "c.out > d.parts__1",
        "a.text > d.separator",
        name="Split",
        description="Splits\nand joins.",
        interfaceInputs={"word": {"dataFlowType": "STRING", "required": True, "description": "Any word."}},
        interfaceOutputs={"all": {"dataFlowType": "ARRAY", "isStream": True, "displayName": "All of it"}},
    )

    assert drawn(document) == (
        "Split (w): 4 nodes, 5 edges\n"
        "Splits and joins.\n"
        "├── Inputs\n"
        "│   └── word  STRING    required  Any word.\n"
        "├── Outputs\n"
        '│   └── all  ARRAY stream  "All of it"\n'
        "├── a · core:Text\n"
        '├── b · "Loud" · core:Upper\n'
        "│   └── in ← a.text\n"
        "├── c · core:Lower · bypassed\n"
        "│   └── in ← a.text\n"
        "└── d · core:Join\n"
        "    ├── parts__0 ← b.out\n"
        "    ├── parts__1 ← c.out\n"
        "    └── separator ← a.text"
    )


def test_the_body_of_a_loop_is_its_branch() -> None:
    assert drawn(LOOP, 80).split("\n")[1:] == [
        "├── in · core:GroupInput",
        "├── z · core:LoopZone",
        "│   ├── repeats its body until 3 iterations or 1,000 at most; carries acc",
        "│   │   (WILDCARD)",
        "│   ├── in__acc ← in.n",
        "│   ├── next__acc ← add.sum ↺",
        "│   └── add · core:Pass",
        "│       └── a ← z.in__acc",
        "└── out · core:GroupOutput",
        "    └── total ← z.out__acc",
    ]


def group(of: str | None) -> dict[str, Any]:
    return {"type": "core:NodeGroup", "configValues": {"referencedWorkflowId": of} if of else {}}


def test_a_group_is_expanded_on_request_once() -> None:
    document = workflow({"g": group("inner"), "h": group("inner")})
    groups = {"inner": workflow({"x": "core:Text", "y": "core:Upper"}, "x.text > y.text", name="Inside")}

    assert drawn(document, groups=groups).split("\n")[1] == '├── g · core:NodeGroup · refers to inner "Inside"'
    assert drawn(document, groups=groups, expand=True).split("\n")[1:] == [
        '├── g · core:NodeGroup · refers to inner "Inside"',
        "│   ├── g/x · core:Text",
        "│   └── g/y · core:Upper",
        "│       └── text ← x.text",
        '└── h · core:NodeGroup · refers to inner "Inside"',
        "    └── shown at g",
    ]


def test_groups_that_cannot_be_expanded_say_why() -> None:
    document = workflow({"a": group("itself"), "b": group("gone"), "c": group(None)})
    lines = drawn(document, groups={"itself": workflow({"again": group("itself")})}, expand=True).split("\n")

    assert lines[1:] == [
        "├── a · core:NodeGroup · refers to itself",
        "│   └── a/again · core:NodeGroup · refers to itself",
        "│       └── shown at a",
        "├── b · core:NodeGroup · refers to gone",
        "│   └── there is no workflow gone that can be read",
        "└── c · core:NodeGroup · refers to nothing",
    ]


def test_groups_that_double_are_shown_once() -> None:
    groups = {f"g{depth}": workflow({"a": group(f"g{depth + 1}"), "b": group(f"g{depth + 1}")}) for depth in range(40)}

    assert drawn(groups["g0"], width=400, groups=groups, expand=True).count("\n") < 200


def test_written_values_are_shown_on_request() -> None:
    node = {"type": "core:Text", "configValues": {"mode": 1}, "inputValues": {"text": "a\nb" * 1000}}

    assert "mode" not in drawn(workflow({"a": node}))
    shown = drawn(workflow({"a": node}), values=True)
    assert "    ├── mode = 1\n" in shown and r'"a\nba\nba\nb' in shown
    assert shown.endswith(" …") and shown.count("\n") < 12


def test_cycles_and_loose_edges_are_shown() -> None:
    edges = "a.x > b.x", "b.x > a.x", "me.x > me.y", "me.x > ghost.y"
    shown = drawn(workflow({"a": "core:P", "b": "core:P", "me": "core:P"}, *edges))

    assert shown.split("\n")[1:] == [
        "├── a · core:P",
        "│   └── x ← b.x ↺",
        "├── b · core:P",
        "│   └── x ← a.x",
        "└── me · core:P",
        "    ├── y ← me.x ↺",
        "    └── x → ghost.y, which is not there",
    ]


def test_nested_and_circular_loops_are_drawn() -> None:
    zone = {"type": "core:LoopZone"}
    document = workflow(
        {
            "x": {"type": "core:P", "parentNode": "inner"},
            "inner": {**zone, "parentNode": "outer"},
            "outer": zone,
            "round": {**zone, "parentNode": "and round"},
            "and round": {**zone, "parentNode": "round"},
            "lost": {"type": "core:P", "parentNode": "nowhere"},
            "on a note": {"type": "core:P", "parentNode": "lost"},
        }
    )

    placed = {item.node.id: item.depth for item in ordered(document)}

    assert placed == {"outer": 0, "inner": 1, "x": 2, "round": 0, "and round": 0, "lost": 0, "on a note": 0}
    assert "│       └── x · core:P" in drawn(document)


def test_deeply_nested_loops_are_drawn() -> None:
    nodes = {f"z{i}": {"type": "core:LoopZone", **({"parentNode": f"z{i - 1}"} if i else {})} for i in range(1_500)}

    assert len(ordered(workflow(nodes))) == 1_500
    some = dict(list(nodes.items())[:30])
    assert [name for name in some if f"── {name} · core:LoopZone" not in drawn(workflow(some))] == []


def test_no_line_is_wider_than_asked() -> None:
    long = "中" * 200 + " " + "x" * 500 + "\n\t" + "e\u0301" * 100
    document = workflow(
        {"a": {"type": "core:P", "displayName": long}, long: long},
        f"a.x > {long.replace('.', '')}.{long}",
        name=long,
        description=long,
        interfaceInputs={long: {"dataFlowType": "STRING", "description": long, "config": {"default": long}}},
    )

    assert max(cell_len(line) for line in drawn(document, 80, values=True).split("\n")) <= 80


def test_the_graph_has_a_form_for_programs() -> None:
    form = graph_form(LOOP, {"g": workflow({"a": "core:P"})})

    assert form["layers"] == [["in"], ["z"], ["out"]]
    assert form["nodes"] == [
        {"id": "in", "type": "core:GroupInput", "layer": 1},
        {"id": "z", "type": "core:LoopZone", "layer": 2},
        {"id": "add", "type": "core:Pass", "layer": 1, "zone": "z"},
        {"id": "out", "type": "core:GroupOutput", "layer": 3},
    ]
    assert form["groups"]["g"]["layers"] == [["a"]]  # type: ignore[call-overload, index]


def test_a_graph_is_a_mermaid_flowchart() -> None:
    odd = workflow({"a": {"type": "core:P", "displayName": 'say "#1"', "bypassed": True}}, "a.x > ghost.y")

    assert list(mermaid(LOOP)) == [
        "flowchart LR",
        '  n0["in: core:GroupInput"]',
        '  subgraph n1 ["z: core:LoopZone"]',
        '    n2["add: core:Pass"]',
        "  end",
        '  n3["out: core:GroupOutput"]',
        '  n0 -->|"n → in__acc"| n1',
        '  n1 -->|"in__acc → a"| n2',
        '  n2 -->|"sum → next__acc"| n1',
        '  n1 -->|"out__acc → total"| n3',
    ]
    assert list(mermaid(odd)) == [
        "flowchart LR",
        '  n0["say #quot;#35;1#quot; (a): core:P"]',
        '  n1("ghost is missing")',
        '  n0 -->|"x → y"| n1',
        "  style n0 stroke-dasharray: 4",
    ]


# --- the command ----------------------------------------------------------------------------------


def test_a_stored_workflow_is_shown() -> None:
    text = tavern("workflow", "show", "greeting")
    form = tavern("workflow", "show", "greeting", "--json")

    assert (text.code, text.err) == (0, "")
    assert text.out.startswith("Greeting (greeting): 4 nodes, 4 edges\n")
    assert "├── " in text.out and "text_inputs__1 ← trim.text" in text.out and "problem" not in text.out
    assert tavern("workflow", "show", "greeting", "--mermaid").out.startswith("flowchart LR\n  n0[")
    assert (form.code, form.json()["layers"]) == (0, [["input"], ["trim"], ["merge"], ["output"]])


@pytest.mark.parametrize(
    ("document", "shown"),
    [
        ({}, ["w: 0 nodes, 0 edges"]),
        ({"nodes": 5, "edges": {"a": None}}, ["$.nodes: ", "$.edges: "]),
        (
            {"id": "x", "nodes": [*({"id": "a", "type": f"core:{t}"} for t in ("Nope", "Trim")), {"id": 7}, None]},
            ["x: 2 nodes", "a · core:Nope", "there is no node type 'core:Nope'", "$.nodes[1].id: ", "$.nodes[2]"],
        ),
    ],
)
def test_a_broken_workflow_is_shown_with_its_problems(tmp_path: Path, document: Any, shown: list[str]) -> None:
    (tmp_path / "tavern.yaml").write_text("name: inn\n")
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "w.json").write_text(json.dumps(document))

    for name in ("workflows/w.json", "w"):
        ran = tavern("--project", tmp_path, "workflow", "show", name, cwd=tmp_path)
        assert (ran.code, ran.err) == (0, "")
        assert [part for part in shown if part not in ran.out] == []


def test_what_cannot_be_shown_is_the_users_mistake(tmp_path: Path) -> None:
    for arguments, error in (
        (["greetin"], "there is no file greetin, and there is no workflow 'greetin' (did you mean greeting?)"),
        (["greeting", "--width", "20"], "--width 20: 40 columns are needed at least"),
        (["."], "there is no file "),
    ):
        ran = tavern("workflow", "show", *arguments, cwd=tmp_path)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"Error: {error}")
