"""`tavern workflow show`: a workflow's graph as text, of any workflow and of what hardly is one."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import tavern
from rich.cells import cell_len

from tavern_host.contracts.workflows import Workflow
from tavern_workflows.graphorder import ordered
from tavern_workflows.graphrails import MOST, rails
from tavern_workflows.graphtext import Drawing, graph_form


def workflow(nodes: dict[str, Any], *edges: str, **more: Any) -> Workflow:
    """Return a workflow of nodes by id (a type, or a node) and edges written `source.slot > target.slot`."""
    ends = [[end.split(".", 1) for end in edge.split(" > ")] for edge in edges]
    return Workflow.model_validate(
        {
            "nodes": [{"id": i, **({"type": n} if isinstance(n, str) else n)} for i, n in nodes.items()],
            "edges": [
                {"id": f"e{i}", "source": a, "sourceHandle": out, "target": b, "targetHandle": into}
                for i, ((a, out), (b, into)) in enumerate(ends)
            ],
            **more,
        }
    )


def drawn(document: Workflow, width: int = 60, groups: dict[str, Workflow] | None = None, **options: bool) -> str:
    """Return the page about a workflow, its lines without blanks at their ends."""
    lines = Drawing(groups or {}, **options).page("w", document, width)
    return "\n".join(line.rstrip() for line in lines)


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


def test_nodes_stand_in_layers_with_rails_between_them() -> None:
    document = workflow(
        {
            "a": "core:Text",
            "b": {"type": "core:Upper", "displayName": "Loud"},
            "c": {"type": "core:Lower", "bypassed": True},
            "d": "core:Join",
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
        "\n"
        "Inputs:\n"
        "  word  STRING    required  Any word.\n"
        "\n"
        "Outputs:\n"
        '  all  ARRAY stream  "All of it"\n'
        "\n"
        "       ── 1 ───────────────────────────────────────────────\n"
        "●      a · core:Text\n"
        "│      ── 2 ───────────────────────────────────────────────\n"
        "├─╮\n"
        '│ ●    b · "Loud" · core:Upper\n'
        "│ │      in ← a.text\n"
        "├─│─╮\n"
        "│ │ ●  c · core:Lower · bypassed\n"
        "│ │ │    in ← a.text\n"
        "│ │ │  ── 3 ───────────────────────────────────────────────\n"
        "├─┴─╯\n"
        "●      d · core:Join\n"
        "         parts__0 ← b.out\n"
        "         parts__1 ← c.out\n"
        "         separator ← a.text"
    )


def test_what_is_inside_of_a_loop_stands_behind_its_zone() -> None:
    assert drawn(LOOP).split("\n\n")[-1] == (
        "     ── 1 ─────────────────────────────────────────────────\n"
        "●    in · core:GroupInput\n"
        "│    ── 2 ─────────────────────────────────────────────────\n"
        "●    z · core:LoopZone\n"
        "│      repeats what is inside until 3 iterations or 1,000 at\n"
        "│        most; carries acc (WILDCARD)\n"
        "│      in__acc ← in.n\n"
        "│      next__acc ← add.sum ↺\n"
        "├─╮\n"
        "│ ●  ┆ add · core:Pass\n"
        "│    ┆   a ← z.in__acc\n"
        "│    ── 3 ─────────────────────────────────────────────────\n"
        "●    out · core:GroupOutput\n"
        "       total ← z.out__acc"
    )


def test_a_group_names_the_workflow_that_it_stands_for_and_is_opened_on_request() -> None:
    group = {"type": "core:NodeGroup", "configValues": {"referencedWorkflowId": "inner"}}
    document = workflow({"g": group})
    groups = {"inner": workflow({"x": "core:Text", "y": "core:Upper"}, "x.text > y.text", name="Inside")}

    closed = drawn(document, groups=groups)
    opened = drawn(document, groups=groups, expand=True)

    assert closed.endswith('●  g · core:NodeGroup · stands for inner "Inside"')
    assert opened.split("\n")[-6:] == [
        '●  g · core:NodeGroup · stands for inner "Inside"',
        "     ┊    ── 1 ────────────────────────────────────────────",
        "     ┊ ●  g/x · core:Text",
        "     ┊ │  ── 2 ────────────────────────────────────────────",
        "     ┊ ●  g/y · core:Upper",
        "     ┊      text ← x.text",
    ]


def test_groups_that_cannot_be_opened_say_why() -> None:
    def group(of: str | None) -> dict[str, Any]:
        return {"type": "core:NodeGroup", "configValues": {"referencedWorkflowId": of} if of else {}}

    document = workflow({"a": group("itself"), "b": group("gone"), "c": group(None)})
    page = drawn(document, groups={"itself": workflow({"again": group("itself")})}, expand=True)

    assert "a/again · core:NodeGroup · stands for itself\n     ┊      ┊ stands inside of itself" in page
    assert "b · core:NodeGroup · stands for gone\n     ┊ there is no workflow gone that can be read" in page
    assert "c · core:NodeGroup · stands for nothing" in page


def test_groups_that_double_at_each_depth_come_to_an_end() -> None:
    def twice(of: str) -> Workflow:
        group = {"type": "core:NodeGroup", "configValues": {"referencedWorkflowId": of}}
        return workflow({"a": group, "b": group})

    groups = {f"g{depth}": twice(f"g{depth + 1}") for depth in range(40)}
    page = drawn(groups["g0"], groups=groups, expand=True)

    assert "what is inside is not drawn: it would be too much" in page
    assert page.count("\n") < 30_000


def test_written_values_are_shown_on_request() -> None:
    node = {"type": "core:Text", "configValues": {"mode": 1}, "inputValues": {"text": "a\nb" * 1000}}

    assert "mode" not in drawn(workflow({"a": node}))
    page = drawn(workflow({"a": node}), values=True)
    assert "     mode = 1\n" in page and r'     text = "a\nba\nb' in page
    assert page.endswith(" …") and page.count("\n") < 12


def test_nodes_that_wait_for_one_another_are_drawn_with_the_edge_that_leads_back() -> None:
    page = drawn(workflow({"a": "core:P", "b": "core:P", "me": "core:P"}, "a.x > b.x", "b.x > a.x", "me.x > me.y"))

    assert "a · core:P\n│    x ← b.x ↺\n●  b · core:P\n     x ← a.x" in page
    assert "me · core:P\n     y ← me.x ↺" in page


def test_edges_that_lead_nowhere_are_shown() -> None:
    page = drawn(workflow({"a": "core:P"}, "a.x > ghost.y", "phantom.x > a.z", "phantom.x > ghost.y"))

    assert page.endswith("a · core:P\n     z ← phantom.x\n     x → ghost.y, which is not there")


def test_loops_inside_of_loops_and_of_themselves_are_drawn() -> None:
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
    assert "┆ ┆ x · core:P" in drawn(document)


def test_ten_thousand_loops_inside_of_one_another_are_drawn() -> None:
    nodes = {f"z{i}": {"type": "core:LoopZone", **({"parentNode": f"z{i - 1}"} if i else {})} for i in range(10_000)}

    assert len(ordered(workflow(nodes))) == 10_000


@pytest.mark.parametrize("seed", range(30))
def test_every_edge_of_any_graph_is_a_rail_from_its_source_to_its_target(seed: int) -> None:
    dice = random.Random(seed)
    count = dice.randint(1, 12)
    links = {(a, b) for b in range(count) for a in range(b) if dice.random() < 0.25}

    found = rails(count, links)

    assert found is not None
    for source, target in links:
        lane = found[source].node.index("●")
        between = [part for row in found[source + 1 : target] for part in (row.above, row.node)]
        assert all(part[lane] == "│" for part in between), (source, target)
        into = found[target].join or found[target].above
        assert into[lane] in "│├┤┼╰╯┴", (source, target)
    assert all(len(row.node) == len(row.below) == len(found[0].above) for row in found)


def test_a_graph_with_too_many_rails_is_drawn_without() -> None:
    nodes = {f"n{i}": "core:P" for i in range(40)}
    page = drawn(workflow({**nodes, "end": "core:Join"}, *[f"n{i}.x > end.all__{i}" for i in range(40)]))

    assert rails(41, [(i, 40) for i in range(40)]) is None
    assert rails(MOST + 1, [(i, MOST) for i in range(MOST)]) is not None
    assert "●  end · core:Join\n     all__0 ← n0.x\n" in page and "│" not in page


def test_no_line_is_wider_than_asked_whatever_is_written_there() -> None:
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


# --- the command ----------------------------------------------------------------------------------


def test_a_stored_workflow_is_shown() -> None:
    text = tavern("workflow", "show", "greeting")
    form = tavern("workflow", "show", "greeting", "--json")

    assert (text.code, text.err) == (0, "")
    assert text.out.startswith("Greeting (greeting): 4 nodes, 4 edges\n")
    assert "● " in text.out and "text_inputs__1 ← trim.text" in text.out and "problem" not in text.out
    assert (form.code, form.json()["layers"]) == (0, [["input"], ["trim"], ["merge"], ["output"]])


@pytest.mark.parametrize(
    ("document", "shown"),
    [
        ({}, ["w: 0 nodes, 0 edges"]),
        ({"nodes": 5, "edges": {"a": None}}, ["$.nodes: ", "$.edges: "]),
        (
            {"nodes": [{"id": "a", "type": "core:Nope"}, {"id": 7}, None], "edges": [[]]},
            ["a · core:Nope", "there is no node type 'core:Nope'", "$.nodes[1]"],
        ),
        (
            {"id": "x", "nodes": [{"id": "a", "type": "core:UpperCase"}, {"id": "a", "type": "core:Trim"}]},
            ["x: 2 nodes", "a · core:UpperCase", "$.nodes[1].id: "],
        ),
    ],
)
def test_what_can_be_read_of_a_broken_file_is_shown_with_its_problems(
    tmp_path: Path, document: Any, shown: list[str]
) -> None:
    (tmp_path / "w.json").write_text(json.dumps(document))

    ran = tavern("workflow", "show", "w.json", cwd=tmp_path)

    assert (ran.code, ran.err) == (0, "")
    assert [part for part in shown if part not in ran.out] == []


def test_a_broken_stored_workflow_is_shown_too(tmp_path: Path) -> None:
    assert tavern("init", tmp_path / "inn").code == 0
    broken = {"nodes": [{"id": "a", "type": "core:UpperCase"}, 5]}
    (tmp_path / "inn" / "workflows" / "bad.json").write_text(json.dumps(broken))

    ran = tavern("--project", tmp_path / "inn", "workflow", "show", "bad", cwd=tmp_path)

    assert "a · core:UpperCase" in ran.out and "$.nodes[1]" in ran.out


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["greetin"], "there is no file greetin, and there is no workflow 'greetin' (did you mean greeting?)"),
        (["greeting", "--width", "20"], "--width 20: 40 columns are needed at least"),
        (["."], "there is no file "),
    ],
)
def test_what_cannot_be_shown_is_the_users_mistake(tmp_path: Path, arguments: list[str], error: str) -> None:
    ran = tavern("workflow", "show", *arguments, cwd=tmp_path)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"Error: {error}")
