"""Runs a loop: iterates its body, with carried values and a value of each iteration (`contracts/loops.py`).

The state from which it resumes is journaled by `loop_log.py`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tavern_engine.compile.plan import VALUE, Level, Loop
from tavern_engine.run.loop_log import LoopLog, LoopState
from tavern_engine.run.preview import preview
from tavern_engine.run.scope import Scope
from tavern_engine.run.selection import Selection
from tavern_host import clock
from tavern_host.contracts.documents import json_type
from tavern_host.contracts.errors import ErrorInfo, InvalidInput, TavernError
from tavern_workflows.api.loops import (
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

MAX_LOG = 1000
"""How many iterations the log holds; of a longer loop the last ones."""

FLUSH = 0.003
"""Seconds after which the events of quick iterations are passed on."""


class Body(Protocol):
    """The scheduler of one iteration of a loop's body; see `scheduler.Scheduler`."""

    results: list[dict[str, Any] | None]
    error: ErrorInfo | None

    async def run(self) -> None:
        """Run all nodes of the body."""


class Iterate(Protocol):
    """Makes the scheduler of an iteration; see `Scheduler.child`."""

    def __call__(
        self, level: Level, written: list[dict[str, Any]], selection: Selection, scope: Scope, iteration: int
    ) -> Body: ...


class LoopFailed(TavernError):
    """A node inside a loop failed."""

    code = "loop_failed"


@dataclass
class _State:
    """The state of a loop. `stopped_by` is None while it runs."""

    index: int
    carried: dict[str, Any]
    each: dict[str, list[Any]]
    stopped_by: str | None = None


async def run_loop(
    loop: Loop,
    inputs: dict[str, Any],
    scope: Scope,
    iterate: Iterate,
    put: Callable[[str, Any], Awaitable[None]],
    *,
    log: LoopLog,
    tainted: Callable[[], None],
    before: LoopState | None = None,
) -> dict[str, Any]:
    """Return the outputs of a loop; `put` writes the items of its streams. `before` is the state to resume from;
    `tainted` is called where the outputs must not be reused.

    Raises `LoopFailed`, `InvalidInput`.
    """
    zone = loop.zone
    count = 0 if loop.is_bypassed else count_of(inputs.get(COUNT, zone.count))
    carried = {key: inputs[f"{IN}{key}"] for key in zone.carried if f"{IN}{key}" in inputs}
    state = _State(0, carried, {key: [] for key in zone.per_iteration})
    if before is not None:
        state.index = before.index
        state.carried |= before.carried
        state.each |= {key: list(values) for key, values in before.each.items() if key in state.each}
        for key, values in state.each.items():
            for value in values:
                await put(f"{STREAM}{key}", value)
    entries: deque[dict[str, Any]] = deque(maxlen=MAX_LOG)
    body = _Body(loop, inputs, scope, iterate)
    log.begin(state.index, count)
    try:
        while state.stopped_by is None:
            if count is not None and state.index >= count:
                state.stopped_by = COUNT
            elif state.index >= zone.maximum:
                state.stopped_by = "maximum"
            else:
                began = time.perf_counter()
                new, ended = await body.run(state)
                for key, value in new.items():
                    await put(f"{STREAM}{key}", value)
                shown = {key: preview(value) for key, value in state.carried.items()}
                seconds = round(time.perf_counter() - began, 6)
                entries.append({"index": state.index, "seconds": seconds, "carried": shown})
                state.index += 1
                log.iterated(state.index, state.carried, new)
                if ended:
                    state.stopped_by = "condition"
    finally:
        body.flush()
        log.close(is_complete=state.stopped_by is not None)
    if body.is_tainted:
        tainted()
    outputs: dict[str, Any] = {f"{OUT}{key}": value for key, value in state.carried.items()}
    for key, values in state.each.items():
        outputs |= {f"{LIST}{key}": values, f"{STREAM}{key}": values}
    return {**outputs, ITERATIONS: state.index, STOPPED_BY: state.stopped_by, LOG: list(entries)}


class _Body:
    """What all iterations of one loop share, made once."""

    def __init__(self, loop: Loop, inputs: dict[str, Any], scope: Scope, iterate: Iterate) -> None:
        self._loop = loop
        self._iterate = iterate
        self._scope = replace(scope, events=scope.events.for_loop_body(), interface={}, is_tainted=False)
        self._written = [node.written for node in loop.body.nodes]
        self._selection = _without(loop.body, loop.sources.values())
        # A missing value from outside is on a branch that was not taken.
        outside = {source: inputs[key] for key, source in loop.sources.items() if key.startswith("@") and key in inputs}
        self._outside = {source: {VALUE: value} for source, value in outside.items()}
        self._carried = {key: loop.sources[f"{IN}{key}"] for key in loop.zone.carried}
        self._index = loop.sources[INDEX]
        self._flush_at = 0.0

    async def run(self, state: _State) -> tuple[dict[str, Any], bool]:
        """Run one iteration and advance `state`; return the values of this iteration, and whether the loop ends."""
        loop, selection = self._loop, self._selection
        known = self._outside | {self._index: {VALUE: state.index}}
        for key, source in self._carried.items():
            known[source] = {VALUE: state.carried[key]} if key in state.carried else {}
        left = Selection(selection.waiting_for.copy(), selection.ready, selection.count, known, [], [])
        body = self._iterate(loop.body, self._written, left, self._scope, state.index)
        await body.run()
        if clock.monotonic() > self._flush_at:
            self.flush()
        if body.error is not None:
            error = body.error
            said = {key: value for key, value in error.details.items() if key not in ("node", "plugin", "message")}
            about: dict[str, Any] = {**said, "iteration": state.index, "cause": error.code}
            raise LoopFailed(f"iteration {state.index}: {error.message}", plugin=error.plugin, **about)
        outputs = body.results[loop.end] or {}
        for key in self._carried:
            if f"{NEXT}{key}" in outputs:
                state.carried[key] = outputs[f"{NEXT}{key}"]
        new = {key: outputs[f"{EACH}{key}"] for key in state.each if f"{EACH}{key}" in outputs}
        for key, value in new.items():
            state.each[key].append(value)
        return new, self._is_end(outputs, state.index)

    def _is_end(self, outputs: dict[str, Any], index: int) -> bool:
        zone = self._loop.zone
        if zone.condition is None or zone.condition not in outputs:
            return False
        value = outputs[zone.condition]
        if not isinstance(value, bool):
            what = f"iteration {index}: the condition {zone.condition!r} must be true or false"
            raise InvalidInput(f"{what}, not {json_type(value)}")
        return value is zone.stop_when

    @property
    def is_tainted(self) -> bool:
        """Whether a default replaces the outputs of a node that failed."""
        return self._scope.is_tainted

    def flush(self) -> None:
        """Pass on the events of the last iterations."""
        self._scope.events.flush()
        self._flush_at = clock.monotonic() + FLUSH


def _without(level: Level, sources: Any) -> Selection:
    """Return the selection of all nodes but `sources`, which wait for none."""
    left = level.waiting_for.copy()
    known = set(sources)
    for source in known:
        for follower in level.followers[source]:
            left[follower] -= 1
    ready = [index for index, count in enumerate(left) if not count and index not in known]
    return Selection(left, ready, len(left) - len(known), {}, [], [])


def count_of(value: Any) -> int | None:
    """Return a number of iterations, or None where none is given. Raises `InvalidInput` for any other value."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= HIGHEST_MAXIMUM):
        return value
    shown = f"{value!r:.60}" if isinstance(value, str | int | float) else json_type(value)
    raise InvalidInput(f"the number of iterations must be an integer from 0 to {HIGHEST_MAXIMUM:,}, not {shown}")
