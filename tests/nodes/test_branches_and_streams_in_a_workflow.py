"""Branches, streams, files and prompts in workflows that a whole host runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tavern_host import EXECUTION_ENGINE, Host
from tavern_host.contracts.executions import Run, RunRequest, RunStatus
from tavern_host.contracts.workflows import Workflow


class Bench:
    """A host that runs workflows, and the folder of its project's files."""

    def __init__(self, host: Host, files: Path) -> None:
        self.host = host
        self.files = files

    async def run(self, nodes: dict[str, Any], *edges: str) -> Run:
        """Run nodes by id and edges written `source.slot > target.slot`."""
        ends = [[end.split(".") for end in edge.split(" > ")] for edge in edges]
        document = {
            "name": "test",
            "nodes": [{"id": key, **node} for key, node in nodes.items()],
            "edges": [
                {"id": f"e{i}", "source": a, "sourceHandle": out, "target": b, "targetHandle": into}
                for i, ((a, out), (b, into)) in enumerate(ends)
            ],
        }
        engine = self.host.services.get(EXECUTION_ENGINE)
        return await engine.run(RunRequest(workflow=Workflow.model_validate(document)))


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with Host(project=tmp_path / "project") as host:
        yield Bench(host, tmp_path / "project" / "files")


def node(type: str, config: dict[str, Any] | None = None, /, **inputs: Any) -> dict[str, Any]:
    return {"type": f"core:{type}", "inputValues": inputs, "configValues": config or {}}


def outputs(run: Run, id: str) -> Any:
    assert run.status is RunStatus.COMPLETE, run.error
    return run.nodes[id].output


@pytest.mark.parametrize(("condition", "way", "text"), [(True, "upper", "HEY"), (False, "pad", "Hey  ")])
async def test_only_the_chosen_branch_is_run_and_merge_brings_it_back(
    bench: Bench, condition: bool, way: str, text: str
) -> None:
    run = await bench.run(
        {
            "switch": node("Switch", condition=condition, value="Hey"),
            "upper": node("UpperCase"),
            "pad": node("PadText", length=5),
            "merge": node("Merge"),
        },
        "switch.when_true > upper.text",
        "switch.when_false > pad.text",
        "upper.text > merge.values",
        "pad.text > merge.values",
    )
    assert outputs(run, "merge") == {"value": text}
    other = {"upper", "pad"} - {way}
    assert {id for id, state in run.nodes.items() if state.status == "skipped"} == other


async def test_a_case_that_is_none_goes_the_default_way(bench: Bench) -> None:
    run = await bench.run(
        {
            "case": node("SwitchCase", {"cases": ["a", 2]}, key=3),
            "first": node("ToJson"),
            "rest": node("ToJson"),
            "count": node("ToJson"),
        },
        "case.case_1 > first.value",
        "case.default > rest.value",
        "case.case > count.value",
    )
    assert outputs(run, "rest") == {"text": "3"}
    assert (run.nodes["count"].output, run.nodes["first"].status) == ({"text": "0"}, "skipped")


async def test_a_closed_gate_ends_its_branch_without_an_error(bench: Bench) -> None:
    run = await bench.run(
        {"gate": node("Gate", is_open=False, value=1), "after": node("Fail", message="never")},
        "gate.value > after.value",
    )
    assert (run.status, run.nodes["after"].status) == (RunStatus.COMPLETE, "skipped")


async def test_a_text_goes_through_a_stream_and_comes_back(bench: Bench) -> None:
    run = await bench.run(
        {
            "text": node("TextToStream", text="one two 三四"),
            "whole": node("StreamToString", separator="|"),
            "list": node("StreamToList"),
            "collected": node("UpperCase"),
        },
        "text.stream > whole.stream",
        "text.stream > list.stream",
        "text.stream > collected.text",
    )
    assert outputs(run, "whole") == {"text": "one |two |三|四"}
    assert outputs(run, "list") == {"items": ["one ", "two ", "三", "四"]}
    assert outputs(run, "collected") == {"text": "ONE TWO 三四"}


async def test_a_reader_that_has_enough_does_not_wait_for_the_rest(bench: Bench) -> None:
    run = await bench.run(
        {"many": node("ListToStream", items=list(range(5_000))), "few": node("StreamToList", limit=2)},
        "many.stream > few.stream",
    )
    assert outputs(run, "few") == {"items": [0, 1]}


async def test_a_file_that_changed_is_read_again_and_one_that_did_not_is_not(bench: Bench) -> None:
    nodes = {"read": node("ReadFile", path="a.txt"), "upper": node("UpperCase")}
    edge = "read.content > upper.text"
    found = []
    for text in ("one", None, "two"):
        if text is not None:
            (bench.files / "a.txt").write_text(text)
        run = await bench.run(nodes, edge)
        found.append((outputs(run, "upper"), run.nodes["upper"].cached))
    assert found == [({"text": "ONE"}, False), ({"text": "ONE"}, True), ({"text": "TWO"}, False)]


async def test_a_file_is_read_again_where_its_path_comes_over_an_edge(bench: Bench) -> None:
    (bench.files / "stale.txt").write_text("stale")
    nodes = {"path": node("Text", text="a.txt"), "read": node("ReadFile", path="stale.txt")}
    found = []
    for text in ("one", "two"):
        (bench.files / "a.txt").write_text(text)
        found.append(outputs(await bench.run(nodes, "path.text > read.path"), "read")["content"])
    assert found == ["one", "two"]


async def test_runs_of_one_workflow_at_the_same_time_keep_their_own_values(bench: Bench) -> None:
    for name in ("a", "b", "c"):
        (bench.files / name).write_text(name)
    await bench.run({"read": node("ReadFile", path="a"), "upper": node("UpperCase")}, "read.content > upper.text")
    runs = await asyncio.gather(
        *(
            bench.run({"read": node("ReadFile", path=name), "upper": node("UpperCase")}, "read.content > upper.text")
            for name in "abcabc"
        )
    )
    assert [outputs(run, "upper") for run in runs] == [{"text": text} for text in "ABCABC"]


async def test_each_run_writes(bench: Bench) -> None:
    for _ in range(3):
        await bench.run({"log": node("WriteFile", {"mode": "append", "new_line": True}, path="log", content="x")})
    assert (bench.files / "log").read_text() == "x\n" * 3


async def test_a_random_number_is_another_one_in_each_run(bench: Bench) -> None:
    nodes = {"mode": node("Text", text="随机"), "number": node("RandomNumber", value=1), "text": node("ToJson")}
    edges = ["mode.text > number.mode", "number.number > text.value"]
    assert len({str(outputs(await bench.run(nodes, *edges), "text")) for _ in range(5)}) > 1


async def test_a_prompt_is_filled_in_from_edges_by_name(bench: Bench) -> None:
    run = await bench.run(
        {
            "name": node("Text", text="Ann"),
            "prompt": node("FormatPrompt", template="Hello {name}, {mood}", mood="cheer up"),
        },
        "name.text > prompt.name",
    )
    assert outputs(run, "prompt") == {"text": "Hello Ann, cheer up", "missing": []}


async def test_a_bypassed_switch_lets_the_value_go_both_ways(bench: Bench) -> None:
    run = await bench.run(
        {
            "switch": {**node("Switch", condition=True, value="v"), "bypassed": True},
            "yes": node("ToJson"),
            "no": node("ToJson"),
        },
        "switch.when_true > yes.value",
        "switch.when_false > no.value",
    )
    assert (outputs(run, "yes"), outputs(run, "no")) == ({"text": '"v"'}, {"text": '"v"'})
