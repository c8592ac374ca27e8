"""The states of the nodes of one run, by number: status, times, outputs, errors. Decides and publishes nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from enum import IntEnum

from pydantic import JsonValue

from tavern_host.contracts.errors import ErrorInfo
from tavern_host.contracts.executions import NodeState, RemoteWork, RunStatus


class State(IntEnum):
    """The state of a node."""

    WAITING = 0
    RUNNING = 1
    DONE = 2
    CACHED = 3
    BYPASSED = 4
    FAILED = 5
    SKIPPED = 6
    INTERRUPTED = 7
    GIVEN = 8


_STATUSES = {
    State.WAITING: RunStatus.QUEUED,
    State.RUNNING: RunStatus.RUNNING,
    State.DONE: RunStatus.COMPLETE,
    State.CACHED: RunStatus.COMPLETE,
    State.BYPASSED: RunStatus.COMPLETE,
    State.GIVEN: RunStatus.COMPLETE,
    State.FAILED: RunStatus.ERROR,
    State.SKIPPED: RunStatus.SKIPPED,
    State.INTERRUPTED: RunStatus.INTERRUPTED,
}


_DONE = State.DONE.value
_WAITING, _SKIPPED = bytes((State.WAITING,)), bytes((State.SKIPPED,))
_AT_ONCE = 1000
"""How many nodes are looked at before others get their turn."""


class NodeTable:
    """The nodes of a run. Times are those of a clock that showed `base` when the run began, 0 where there is none."""

    def __init__(self, ids: Sequence[str], *, shows_outputs: bool = True) -> None:
        count = len(ids)
        self._ids = ids
        self.shows_outputs = shows_outputs
        self.base = 0.0
        self.states = bytearray(count)
        self.started = [0.0] * count
        self.finished = [0.0] * count
        self.outputs: list[dict[str, JsonValue] | None] = [None] * count
        self.errors: dict[int, ErrorInfo] = {}
        self.attempts: dict[int, int] = {}
        self.iterations: dict[int, int] = {}
        self.remote: dict[int, RemoteWork] = {}
        self.load_output: Callable[[int], dict[str, JsonValue] | None] = lambda number: None
        """Returns the outputs of a reused node that was not read in this run."""

    def complete(
        self,
        numbers: Sequence[int],
        began: Sequence[float],
        ended: Sequence[float],
        outputs: Sequence[dict[str, JsonValue]],
    ) -> None:
        """Set nodes that completed, in columns."""
        states, started, finished, kept, done = self.states, self.started, self.finished, self.outputs, _DONE
        if _is_range(numbers):
            place = slice(numbers[0], numbers[-1] + 1)
            states[place] = bytes((done,)) * len(numbers)
            started[place], finished[place], kept[place] = began, ended, outputs
        else:
            for number, start, end, output in zip(numbers, began, ended, outputs, strict=True):
                states[number] = done
                started[number] = start
                finished[number] = end
                kept[number] = output
        if self.errors:
            for number in numbers:
                self.errors.pop(number, None)

    def put(
        self,
        number: int,
        state: int,
        output: dict[str, JsonValue] | None,
        error: ErrorInfo | None,
        times: tuple[float, float] | None,
    ) -> None:
        """Set one node; `times` are when it began and ended, where it did."""
        self.states[number] = state
        self.outputs[number] = output
        if times is not None:
            self.started[number], self.finished[number] = times
        if error is not None:
            self.errors[number] = error
        else:
            self.errors.pop(number, None)

    def start(self, numbers: Sequence[int], now: float) -> None:
        """Set nodes that run at this moment."""
        for number in numbers:
            self.states[number] = State.RUNNING
            self.started[number] = now
            self.finished[number] = 0.0

    def mark(self, numbers: Sequence[int], state: State) -> None:
        """Set the state of nodes and nothing else."""
        value = state.value
        for number in numbers:
            self.states[number] = value

    def set_attempts(self, number: int, attempts: int) -> None:
        """Set how often a node has been tried."""
        if attempts > 1:
            self.attempts[number] = attempts
        else:
            self.attempts.pop(number, None)

    def count_iteration(self, numbers: Sequence[int]) -> None:
        """Count one more iteration for these nodes."""
        for number in numbers:
            self.iterations[number] = self.iterations.get(number, 0) + 1

    def set_iterations(self, number: int, count: int) -> None:
        """Set how many iterations a loop has had."""
        self.iterations[number] = count

    def close(self) -> list[int]:
        """End the run: nodes that still run are interrupted, and returned, those that wait are skipped."""
        is_running = State.RUNNING in self.states
        running = [n for n, state in enumerate(self.states) if state == State.RUNNING] if is_running else []
        for number in running:
            self.states[number] = State.INTERRUPTED
            self.finished[number] = time.perf_counter()
        self.states[:] = self.states.replace(_WAITING, _SKIPPED)
        return running

    def skipped(self) -> list[str]:
        """Return the ids of the nodes that did not run."""
        skipped = State.SKIPPED.value
        if skipped not in self.states:
            return []
        return [node_id for node_id, state in zip(self._ids, self.states, strict=True) if state == skipped]

    async def all_states(self) -> dict[str, NodeState]:
        """Return the nodes as a `Run` has them; of very many, others get their turn meanwhile."""
        found = self.node_states(0, _AT_ONCE)
        for first in range(_AT_ONCE, len(self._ids), _AT_ONCE):
            await asyncio.sleep(0)
            found |= self.node_states(first, first + _AT_ONCE)
        return found

    def node_states(self, first: int = 0, end: int | None = None) -> dict[str, NodeState]:
        """Return the nodes as a `Run` has them; those from the number `first` to before `end`."""
        found: dict[str, NodeState] = {}
        for number, node_id in enumerate(self._ids[first:end], first):
            state = State(self.states[number])
            started, finished = self.started[number], self.finished[number]
            output = self.outputs[number]
            if output is None and state is State.CACHED:
                output = self.outputs[number] = self.load_output(number)
            found[node_id] = NodeState.construct(
                status=_STATUSES[state],
                output=output if self.shows_outputs else None,
                error=self.errors.get(number),
                started=round(started - self.base, 6) if started else None,
                finished=round(finished - self.base, 6) if finished else None,
                cached=state is State.CACHED,
                given=state is State.GIVEN,
                bypassed=state is State.BYPASSED,
                attempts=self.attempts.get(number, 1),
                iterations=self.iterations.get(number),
                remote=self.remote.get(number),
            )
        return found


def _is_range(numbers: Sequence[int]) -> bool:
    """Return whether numbers are consecutive, as those of siblings or of a chain are."""
    if not numbers or numbers[-1] - numbers[0] != len(numbers) - 1:
        return False
    return numbers == list(range(numbers[0], numbers[-1] + 1))
