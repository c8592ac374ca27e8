"""Takes down what happens in a run and passes it on in batches: to the account, the cache, the journal, and as the
platform's messages to clients.

What happens to a node is one tuple here; everything that takes longer is done for a whole batch, when the nodes pause.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from math import isfinite
from typing import Any, Protocol

from pydantic import JsonValue

from tavern_engine.account import Account, State
from tavern_engine.cache import OutputCache
from tavern_engine.plan import Plan
from tavern_engine.wireform import json_form
from tavern_engine.yields import Message, Yields, brief
from tavern_host.contracts.dataflow import collected
from tavern_host.contracts.errors import ErrorInfo
from tavern_host.contracts.executions import RunStatus

Publish = Callable[[list[Message]], None]

STATUS_NAMES = {
    "complete": RunStatus.COMPLETE,
    "partial": RunStatus.COMPLETE,
    "bypassed": RunStatus.COMPLETE,
    "error": RunStatus.ERROR,
}
"""What the journal calls what became of a node, and which status that is. Rows of loops have others."""

_NAMES = {State.DONE.value: "complete", State.BYPASSED.value: "bypassed", State.FAILED.value: "error"}
_DONE = State.DONE.value
_UNTIMED = frozenset((State.SKIPPED.value, State.CACHED.value))
PARTIAL = b""
"""Stands for the signature of outputs that are shown and never used again: a stream of which a part is missing."""


class NodeJournal(Protocol):
    """Keeps what nodes gave, so that the run can go on after the end of the process; see `journal.RunJournal`."""

    def add(
        self,
        node_id: str,
        signature: bytes | None,
        status: str,
        started: float,
        finished: float,
        outputs: dict[str, Any] | None,
        error: ErrorInfo | None,
        attempts: int,
        iteration: int | None,
    ) -> None:
        """Take down what became of a node."""

    @property
    def is_full(self) -> bool:
        """Whether it is too far behind."""

    async def room(self) -> None:
        """Return when it has caught up."""


class Feed:
    """What happens in one run. Times are those of `time.perf_counter`.

    Clients are told that a node executes when it is in the middle of something while others get their turn; of one
    that begins and ends between two such moments they are told that it is complete.
    """

    def __init__(
        self,
        run_id: str,
        plan: Plan,
        account: Account,
        publish: Publish,
        *,
        cache: OutputCache | None = None,
        journal: NodeJournal | None = None,
    ) -> None:
        self.records: list[Any] = []
        """What became of nodes since the last flush, flat, since the garbage collector would look at a tuple for each:
        number, when it began and ended, state, outputs (of a stream the list of its items), signature, error."""
        self.yields = Yields(run_id, plan.ids, publish)
        self.account = account
        self.journal = journal
        self.cache = cache
        self._run_id = run_id
        self._plan = plan
        self._publish = publish
        self._base = time.perf_counter()
        self._is_inner = False

    def begin(self) -> None:
        """Count times from here."""
        self._base = self.account.base = time.perf_counter()

    def inside(self) -> Feed:
        """Return what takes down what happens inside of a loop: clients are told, nothing is kept."""
        feed = Feed(self._run_id, self._plan, self.account, self._publish)
        feed.yields = self.yields
        feed._base = self._base
        feed._is_inner = True
        return feed

    def now(self) -> float:
        """Return the seconds since the run began."""
        return time.perf_counter() - self._base

    def executing(self, numbers: list[int]) -> None:
        """Nodes are in the middle of what they do while others get their turn."""
        account, shown, run_id, now = self.account, self._plan.ids, self._run_id, time.perf_counter()
        messages: list[Message] = []
        for number in numbers:
            account.states[number] = State.RUNNING
            account.started[number] = now
            account.finished[number] = 0.0
            messages.append(("NODE_EXECUTING", {"promptId": run_id, "nodeId": shown[number]}))
        self._publish(messages)

    def progress(self, number: int, value: float, maximum: float | None) -> None:
        """A node says how far it is."""
        payload: dict[str, Any] = {"promptId": self._run_id, "nodeId": self._plan.ids[number], "value": value}
        if maximum is not None:
            payload["max"] = maximum
        self._publish([("NODE_PROGRESS", payload)])

    def keep_iteration(
        self, number: int, signature: bytes | None, index: int, state: dict[str, Any], numbers: list[int], since: float
    ) -> None:
        """Keep what a loop needs to go on after `index` iterations, and, to be shown, how the nodes inside of it stand:
        those of `numbers` that ended after `since`."""
        if self.journal is None:
            return
        now = self.now()
        known = signature or self._plan.lineages.get(number)
        self.journal.add(self._plan.ids[number], known, "iteration", now, now, state, None, 1, index)
        self.keep_inner(numbers, since)

    def keep_inner(self, numbers: list[int], since: float) -> None:
        """Keep, to be shown, what the nodes of a loop did last that ended after `since`."""
        if self.journal is None:
            return
        account = self.account
        for number in numbers:
            name = _NAMES.get(account.states[number])
            if name is not None and account.finished[number] >= since:
                self.journal.add(
                    self._plan.ids[number],
                    None,
                    name,
                    account.started[number] - self._base,
                    account.finished[number] - self._base,
                    account.outputs[number],
                    account.errors.get(number),
                    account.attempts.get(number, 1),
                    None,
                )

    def cached(self, numbers: list[int]) -> None:
        """Nodes whose outputs of an earlier run hold, without anybody needing to look at them."""
        states, shown, run_id = self.account.states, self._plan.ids, self._run_id
        cached = State.CACHED.value
        for number in numbers:
            states[number] = cached
        if numbers:
            self._publish([("NODE_CACHED", {"promptId": run_id, "nodeIds": list(map(shown.__getitem__, numbers))})])

    def flush(self) -> None:
        """Pass on what was taken down since the last time."""
        if not self.records:
            return
        messages: list[Message] = []
        self._settle(messages)
        if messages:
            self._publish(messages)

    def _settle(self, messages: list[Message]) -> None:
        records = self.records.copy()
        self.records.clear()  # and not a new list: workers hold on to this one
        account, base, run_id = self.account, self._base, self._run_id
        states, started, finished, outputs_of = account.states, account.started, account.finished, account.outputs
        nodes, streaming, journal = self._plan.ids, self._plan.streaming, self.journal
        lineages = self._plan.lineages
        is_inner, tell = self._is_inner, messages.append
        signatures: list[bytes] = []
        kept: list[dict[str, Any]] = []
        size = 0
        fields = iter(records)
        for number, began, ended, state, outputs, signature, error in zip(*[fields] * 7, strict=True):
            identifier = nodes[number]
            states[number] = state
            if is_inner:  # what the iteration before has left
                outputs_of[number] = None
                account.errors.pop(number, None)
            if state == _DONE or state not in _UNTIMED:
                if is_inner and number not in self._plan.loops:  # a loop counts by itself
                    account.iterations[number] = account.iterations.get(number, 0) + 1
                started[number] = began
                finished[number] = ended
                if journal is not None:
                    attempts = account.attempts.get(number, 1) if account.attempts else 1
                    times = (began - base, ended - base)
                    name, given = _NAMES[state], outputs
                    if signature == PARTIAL and outputs is not None:
                        name, given = "partial", shown(outputs, streaming.get(number, ()))
                    known = signature or lineages.get(number)
                    journal.add(identifier, known, name, *times, given, error, attempts, None)
            if outputs is None:
                self._tell(messages, number, state, None, error)
                continue
            display = outputs
            is_plain = True
            if streaming and number in streaming:
                display, is_plain = shown(outputs, streaming[number]), False
            else:
                for value in outputs.values():
                    kind = value.__class__
                    if kind is int or kind is bool or value is None:
                        continue
                    if kind is str and value.isascii():
                        size += len(value)
                    elif kind is not float or not isfinite(value):
                        display, is_plain = shown(outputs), False
                        break
            outputs_of[number] = display
            if state != _DONE:
                self._tell(messages, number, state, display, error)
                continue
            if signature:
                if is_plain:
                    signatures.append(signature)
                    kept.append(outputs)
                elif self.cache is not None:
                    self.cache.put(signature, outputs, is_owned=True)
            if streaming and number in streaming:
                display = brief(display, streaming[number])
            tell(("NODE_COMPLETE", {"promptId": run_id, "nodeId": identifier, "output": display}))
        if self.cache is not None and kept:
            self.cache.put_plain(signatures, kept, size)

    def _tell(
        self,
        messages: list[Message],
        number: int,
        state: int,
        display: dict[str, JsonValue] | None,
        error: ErrorInfo | None,
    ) -> None:
        """Tell of a node that did not simply do what it does."""
        about: dict[str, Any] = {"promptId": self._run_id, "nodeId": self._plan.ids[number]}
        if state == State.FAILED and error is not None:
            self.account.errors[number] = error
            messages.append(("NODE_ERROR", {**about, "errorDetails": error.to_json()}))
        elif state == State.BYPASSED:
            messages.append(("NODE_BYPASSED", {**about, "pseudoOutputs": display or {}}))
        elif state == State.CACHED:
            messages.append(("NODE_COMPLETE", {**about, "output": display or {}, "cached": True}))

    async def keep_up(self) -> None:
        """Wait where the journal is too far behind."""
        if self.journal is not None and self.journal.is_full:
            await self.journal.room()


def shown(outputs: dict[str, Any], streams: Collection[str] = ()) -> dict[str, JsonValue]:
    """Return outputs as a run shows them; `streams` are those that are lists of a stream's items."""
    return {str(key): json_form(collected(v) if key in streams else v) for key, v in outputs.items()}
