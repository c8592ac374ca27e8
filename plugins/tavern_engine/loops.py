"""Runs a loop: its body again and again, with carried values and a value of each iteration (`contracts/loops.py`)."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from tavern_engine.plan import VALUE, Level, Loop, PlanNode
from tavern_engine.scope import Scope
from tavern_engine.wireform import json_form
from tavern_host.contracts.errors import ErrorInfo, InvalidInput, TavernError
from tavern_host.contracts.loops import (
    COUNT,
    EACH,
    HIGHEST_MAXIMUM,
    IN,
    INDEX,
    ITERATIONS,
    LIST,
    LOG,
    NEXT,
    OUT,
    STOPPED_BY,
    STREAM,
)

MAX_LOG = 10_000
"""How many iterations the log holds; of a longer loop the last ones."""


class Body(Protocol):
    """One iteration: the execution of a loop's body; see `execution.Execution`."""

    results: list[dict[str, Any] | None]
    error: ErrorInfo | None

    async def run(self) -> None:
        """Carry it out."""


class LoopFailed(TavernError):
    """A node inside a loop failed."""

    code = "loop_failed"


async def run_loop(
    node: PlanNode,
    loop: Loop,
    inputs: dict[str, Any],
    scope: Scope,
    child: Callable[[Level, list[dict[str, Any]]], Body],
    put: Callable[[str, Any], Awaitable[None]],
) -> dict[str, Any]:
    """Return the outputs of a loop; `put` is given the items of its streams. Raises `LoopFailed`, `InvalidInput`."""
    zone = loop.zone
    count = _count(inputs.get(COUNT, zone.count))
    state: dict[str, Any] = {key: inputs.get(f"{IN}{key}") for key in zone.carried}
    each: dict[str, list[Any]] = {key: [] for key in zone.per_iteration}
    log: list[dict[str, Any]] = []
    index, stopped_by = 0, COUNT
    if node.id in scope.loops:
        index, kept = scope.loops[node.id]
        state |= kept.get("state", {})
        each |= kept.get("each", {})
        for key, before in each.items():
            for value in before:
                await put(f"{STREAM}{key}", value)
    outside = {key: value for key, value in inputs.items() if key.startswith("@")}
    while count is None or index < count:
        if index >= zone.maximum:
            stopped_by = "maximum"
            break
        began = time.perf_counter()
        values = outside | {f"{IN}{key}": value for key, value in state.items()} | {INDEX: index}
        given, ended = await _iteration(loop, index, values, child)
        state |= {key: given[f"{NEXT}{key}"] for key in state if f"{NEXT}{key}" in given}
        for key, found in each.items():
            if f"{EACH}{key}" in given:
                found.append(given[f"{EACH}{key}"])
                await put(f"{STREAM}{key}", given[f"{EACH}{key}"])
        seconds = round(time.perf_counter() - began, 6)
        log.append({"index": index, "seconds": seconds, "carried": {k: json_form(v) for k, v in state.items()}})
        del log[:-MAX_LOG]
        index += 1
        scope.feed.iterated(node.number, node.id, index, count, {"state": state, "each": each})
        if ended:
            stopped_by = "condition"
            break
    for inner in loop.body.nodes:
        if inner.number >= 0:
            scope.feed.account.iterations[inner.number] = index
    outputs: dict[str, Any] = {f"{OUT}{key}": value for key, value in state.items()}
    outputs |= {f"{LIST}{key}": values for key, values in each.items()}
    return {**outputs, ITERATIONS: index, STOPPED_BY: stopped_by, LOG: log}


async def _iteration(
    loop: Loop, index: int, values: dict[str, Any], child: Callable[[Level, list[dict[str, Any]]], Body]
) -> tuple[dict[str, Any], bool]:
    """Run the body once; return what it gave at the loop's inner inputs, and whether the condition ends the loop."""
    written = [node.written for node in loop.body.nodes]
    for key, source in loop.sources.items():
        written[source] = {VALUE: values[key]} if key in values else {}
    body = child(loop.body, written)
    await body.run()
    if body.error is not None:
        raise LoopFailed(f"iteration {index}: {body.error.message}", iteration=index, cause=body.error.code)
    given = body.results[loop.end] or {}
    condition = loop.zone.condition
    return given, condition is not None and given.get(condition) is loop.zone.stop_when


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not (value is None or (isinstance(value, int) and 0 <= value <= HIGHEST_MAXIMUM)):
        raise InvalidInput(
            f"the number of iterations must be an integer from 0 to {HIGHEST_MAXIMUM:,}, not {value!r:.60}"
        )
    return value
