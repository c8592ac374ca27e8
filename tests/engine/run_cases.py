"""Tables of workflows that one host runs one after the other, with what each of them gives."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from engine_bench import Bench, workflow
from helpers.repetition import Failures

from tavern_engine.run.finished_runs import decoded, encoded
from tavern_host.contracts.executions import Run
from tavern_host.contracts.workflows import Workflow


@dataclass(frozen=True)
class Case:
    """A workflow, and what its run comes to; see `case`."""

    name: str
    document: Workflow
    inputs: dict[str, Any]
    expected: dict[str, Any]

    def found(self, run: Run) -> dict[str, Any]:
        """Return of a run what is expected of this one, in the same form."""
        found: dict[str, Any] = {}
        for place in self.expected:
            node, _, key = place.partition(".")
            if place == "the run":
                found[place] = run.status.value
            elif place == "the error":
                found[place] = run.error and run.error.message
            elif place == "the outputs":
                found[place] = dict(sorted(run.outputs.items()))
            elif node.endswith(" is"):
                found[place] = run.nodes[node.removesuffix(" is")].status.value
            else:
                shown = run.nodes[node]
                found[place] = (shown.output or {}).get(key or "value", f"none: {shown.status} {shown.error}")
        return found


def case(
    name: str,
    nodes: dict[str, Any],
    *edges: str,
    gives: dict[str, Any] | None = None,
    outputs: dict[str, Any] | None = None,
    error: str | None = None,
    skipped: str = "",
    failed: str = "",
    inputs: dict[str, Any] | None = None,
    **more: Any,
) -> Case:
    """Return a row of a table: nodes, edges and `more` as `workflow` takes them, and what comes of its run.

    `gives` is by `node` (its output `value`) or `node.output`, `outputs` what the interface gives, `error` the message
    of the run, which fails with it and completes without one; `skipped` and `failed` name nodes.
    """
    expected: dict[str, Any] = {"the run": "complete" if error is None else "error", **(gives or {})}
    expected |= {f"{node} is": "skipped" for node in skipped.split()} | {
        f"{node} is": "error" for node in failed.split()
    }
    expected |= {} if error is None else {"the error": error}
    expected |= {} if outputs is None else {"the outputs": dict(sorted(outputs.items()))}
    return Case(name, workflow(nodes, *edges, **more), inputs or {}, expected)


async def check(bench: Bench, cases: Iterable[Case]) -> None:
    """Run each workflow with an empty cache, and again with a full one, which makes no difference; and what is
    kept of a run is the run."""
    with Failures() as failures:
        for each in cases:
            bench.forget()
            for attempt in ("first", "again"):
                with failures.row(f"{each.name}, {attempt}"):
                    async with asyncio.timeout(60):
                        run = await bench.run(each.document, **each.inputs)
                        found, kept = each.found(run), encoded(run)
                    if repr(found) != repr(each.expected):  # by which 1, 1.0 and True differ
                        raise AssertionError(f"\n  it gives {found}\n  expected {each.expected}")
                    if kept.content is None or repr(again := await decoded(kept)) != repr(run):
                        raise AssertionError(f"\n  it gave {run!r}\n  kept is {again!r}")
