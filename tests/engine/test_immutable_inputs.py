"""Inputs that nobody can change: nodes that take them get them as they are, all others lists of their own."""

from __future__ import annotations

import pytest
from engine_bench import Bench, group, slot, workflow

from tavern_host.contracts.executions import Run, RunRequest
from tavern_host.contracts.workflows import Workflow
from tavern_llm.api.llm import ChatMessage, Transcript

pytestmark = pytest.mark.asyncio(loop_scope="module")
SAID = Transcript([ChatMessage(role="user", content="Hi."), ChatMessage(role="assistant", content="Yes?")])
ENDS = {"in": "core:GroupInput", "out": "core:GroupOutput"}


def document(nodes: dict[str, object], *edges: str, type: str = "ARRAY") -> Workflow:
    given, made = {"all": slot(type)}, {"kind": slot(), "count": slot()}
    return workflow({**ENDS, **nodes}, *edges, interfaceInputs=given, interfaceOutputs=made)


KIND = document({"kind": "Kind"}, "in.all > kind.all, kind.result > out.kind")


async def run(bench: Bench, document: Workflow, *, keep: bool = False) -> Run:
    found = await bench.engine.run(RunRequest.construct(workflow=document, inputs={"all": SAID}, keep=keep))
    assert found.status == "complete", found.error
    return found


async def test_a_node_that_takes_it_gets_it_through_groups_too(shared: Bench) -> None:
    assert (await run(shared, KIND)).outputs == {"kind": "Transcript"}
    await shared.workflows.save("kinds", KIND)
    outer = document({"g": group("kinds")}, "in.all > g.all, g.kind > out.kind")
    assert (await run(shared, outer)).outputs == {"kind": "Transcript"}


async def test_a_node_that_does_not_may_change_what_it_gets(shared: Bench) -> None:
    both = document(
        {"kind": "Kind", "e": "Empty"},
        "in.all > kind.all, kind.result > out.kind",
        "in.all > e.all, e.result > out.count",
    )
    for _ in range(2):
        assert (await run(shared, both)).outputs == {"kind": "list", "count": 2}
    through = document({}, "in.all > out.kind")
    assert (await run(shared, through)).outputs == {"kind": SAID.plain()}
    wild = document({"kind": "Kind"}, "in.all > kind.all, kind.result > out.kind", type="WILDCARD")
    assert (await run(shared, wild)).outputs == {"kind": "list"}


async def test_what_is_kept_is_plain(shared: Bench) -> None:
    kept = await run(shared, KIND, keep=True)
    assert (kept.outputs, kept.inputs) == ({"kind": "list"}, {"all": SAID.plain()})
