"""Takes down what happens in a run and passes it on in batches: to the account, the cache, the journal, and as the
platform's messages to clients.

What happens to a node is one row here; everything that takes longer is done for a whole batch, when the nodes pause.
Nodes that simply did what they do are most of them: their rows are columns, which are passed on as a whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import repeat
from math import isfinite
from typing import Any, NamedTuple, Protocol

from pydantic import JsonValue

from tavern_engine.cache.cache import OutputCache
from tavern_engine.compile.plan import Plan
from tavern_engine.run.account import Account, State
from tavern_engine.run.wireform import json_form
from tavern_engine.run.yields import Message, Yields, brief
from tavern_host.contracts.dataflow import collected
from tavern_host.contracts.errors import ErrorInfo
from tavern_host.contracts.executions import RunStatus

Publish = Callable[[Iterable[Message]], None]

STATUS_NAMES = {
    "complete": RunStatus.COMPLETE,
    "partial": RunStatus.COMPLETE,
    "bypassed": RunStatus.COMPLETE,
    "error": RunStatus.ERROR,
}
"""What the journal calls what became of a node, and which status that is. Rows of loops have others."""

_NAMES = {State.DONE.value: "complete", State.BYPASSED.value: "bypassed", State.FAILED.value: "error"}
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

    def add_complete(
        self,
        node_ids: Sequence[str],
        signatures: Sequence[bytes | None],
        started: Sequence[float],
        finished: Sequence[float],
        outputs: Sequence[dict[str, Any] | None],
    ) -> None:
        """Take down what several nodes gave that were run once, by column."""

    @property
    def is_full(self) -> bool:
        """Whether it is too far behind."""

    async def room(self) -> None:
        """Return when it has caught up."""


class Done:
    """Nodes that simply did what they do, in columns; the garbage collector would look at a tuple for each.

    `closer` are the rows whose outputs hold more than numbers: they have to be looked at before anybody sees them.
    """

    __slots__ = ("began", "closer", "ended", "numbers", "outputs", "signatures")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.began: list[float] = []
        self.ended: list[float] = []
        self.outputs: list[dict[str, Any]] = []
        self.signatures: list[bytes | None] = []
        self.closer: list[int] = []

    def taken(self) -> Done:
        """Return what there is, and have nothing any more."""
        taken = Done()
        for name in self.__slots__:
            column = getattr(self, name)
            setattr(taken, name, column.copy())
            column.clear()  # and not a new list: workers hold on to this one
        return taken


class Row(NamedTuple):
    """What became of one node where that is not simply `Done`; `place` is how many of those were there before."""

    place: int
    number: int
    state: int
    began: float
    ended: float
    outputs: dict[str, Any] | None
    signature: bytes | None
    error: ErrorInfo | None


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
        self.done = Done()
        """The nodes that simply did what they do since the last flush; the others are told of with `take`."""
        self._rows: list[Row] = []
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

    def take(
        self,
        number: int,
        state: int,
        outputs: dict[str, Any] | None = None,
        *,
        began: float = 0.0,
        ended: float = 0.0,
        signature: bytes | None = None,
        error: ErrorInfo | None = None,
    ) -> None:
        """Take down what became of a node; of a stream its outputs have the list of its items."""
        place = len(self.done.numbers)
        self._rows.append(Row(place, number, state, began, ended, outputs, signature, error))

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

    def known(self, found: Iterable[tuple[int, dict[str, Any]]]) -> None:
        """Nodes whose outputs of an earlier run hold, and are used."""
        streaming, ids, run_id, put = self._plan.streaming, self._plan.ids, self._run_id, self.account.put
        messages: list[Message] = []
        for number, given in found:
            streams = streaming.get(number, ())
            display = given if not streams and _characters(given) is not None else shown(given, streams)
            put(number, State.CACHED, display, None, None)
            about = {"promptId": run_id, "nodeId": ids[number], "output": display, "cached": True}
            messages.append(("NODE_COMPLETE", about))
        if messages:
            self._publish(messages)

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
        if not self.done.numbers and not self._rows:
            return
        done, rows, self._rows = self.done.taken(), self._rows, []
        payloads = self._pass_on(done)
        if not rows:
            self._publish(zip(repeat("NODE_COMPLETE"), payloads))
        elif messages := self._with_rows(payloads, rows, done.numbers):
            self._publish(messages)

    def _pass_on(self, done: Done) -> list[dict[str, Any]]:
        """Pass on the nodes that simply did what they do; return for each what its message says."""
        numbers, outputs, account = done.numbers, done.outputs, self.account
        ids = list(map(self._plan.ids.__getitem__, numbers))
        if self._is_inner:
            account.count(numbers)
        if self.journal is not None:
            self._keep_done(self.journal, done, ids)
        kept = dict(zip(done.signatures, outputs, strict=True))
        lengths: dict[bytes | None, int] = {}
        if done.closer:
            outputs = outputs.copy()
        for place in done.closer:
            given, signature = outputs[place], done.signatures[place]
            characters = _characters(given)
            if characters is not None:
                lengths[signature] = characters
                continue
            outputs[place] = shown(given)
            kept.pop(signature, None)
            if signature and self.cache is not None:
                self.cache.put(signature, given, is_owned=True)
        for unused in (None, PARTIAL):
            kept.pop(unused, None)
            lengths.pop(unused, None)
        if kept and self.cache is not None:
            self.cache.put_plain(kept, sum(lengths.values()))  # type: ignore[arg-type]  # None is no longer in it
        account.complete(numbers, done.began, done.ended, outputs)
        run_id = self._run_id
        return [
            {"promptId": run_id, "nodeId": node_id, "output": given}
            for node_id, given in zip(ids, outputs, strict=True)
        ]

    def _keep_done(self, journal: NodeJournal, done: Done, ids: list[str]) -> None:
        """Let the journal have the nodes that simply did what they do."""
        signatures, lineages, base = done.signatures, self._plan.lineages, self._base
        if PARTIAL in signatures:
            columns = (done.numbers, done.began, done.ended, done.outputs, signatures)
            for number, began, ended, given, signature in zip(*columns, strict=True):
                self._keep(journal, Row(0, number, State.DONE, began, ended, given, signature, None))
            return
        if None in signatures:
            signatures = [s or lineages.get(number) for s, number in zip(signatures, done.numbers, strict=True)]
        times = [t - base for t in done.began], [t - base for t in done.ended]
        journal.add_complete(ids, signatures, *times, done.outputs)

    def _with_rows(self, payloads: list[dict[str, Any]], rows: list[Row], numbers: list[int]) -> list[Message]:
        """Pass on what became of the other nodes; return all messages, those that tell of them in their places."""
        messages = [("NODE_COMPLETE", payload) for payload in payloads]
        latest = {number: place for place, number in enumerate(numbers)} if self._is_inner else {}
        found: list[Message] = []
        start = 0
        for row in rows:
            found += messages[start : row.place]
            start = row.place
            message = self._pass_row(row, is_over=latest.get(row.number, -1) >= start)
            if message is not None:
                found.append(message)
        return found + messages[start:]

    def _pass_row(self, row: Row, *, is_over: bool) -> Message | None:
        """Pass on what became of one node; return what tells of it. `is_over`: in the next iteration of the loop that
        it is in something else became of it since."""
        _, number, state, began, ended, given, signature, error = row
        streams = self._plan.streaming.get(number, ())
        characters = _characters(given) if given is not None and not streams else None
        display = given if given is None or characters is not None else shown(given, streams)
        is_timed = state != State.SKIPPED
        if is_timed and self._is_inner and number not in self._plan.loops:  # a loop counts by itself
            self.account.count((number,))
        if is_timed and self.journal is not None:
            self._keep(self.journal, row)
        if not is_over:
            self.account.put(number, state, display, error, (began, ended) if is_timed else None)
        about: dict[str, Any] = {"promptId": self._run_id, "nodeId": self._plan.ids[number]}
        if state == State.FAILED and error is not None:
            return "NODE_ERROR", {**about, "errorDetails": error.to_json()}
        if state == State.BYPASSED:
            return "NODE_BYPASSED", {**about, "pseudoOutputs": display or {}}
        if state != State.DONE or given is None or display is None:
            return None
        if signature and self.cache is not None:
            if characters is not None:
                self.cache.put_plain({signature: given}, characters)
            else:
                self.cache.put(signature, given, is_owned=True)
        return "NODE_COMPLETE", {**about, "output": brief(display, streams)}

    def _keep(self, journal: NodeJournal, row: Row) -> None:
        """Let the journal have what became of one node."""
        _, number, state, began, ended, given, signature, error = row
        name = _NAMES[state]
        if signature == PARTIAL and given is not None:
            name, given = "partial", shown(given, self._plan.streaming.get(number, ()))
        known, tries = signature or self._plan.lineages.get(number), self.account.attempts.get(number, 1)
        times = (began - self._base, ended - self._base)
        journal.add(self._plan.ids[number], known, name, *times, given, error, tries, None)

    async def keep_up(self) -> None:
        """Wait where the journal is too far behind."""
        if self.journal is not None and self.journal.is_full:
            await self.journal.room()


def shown(outputs: dict[str, Any], streams: Collection[str] = ()) -> dict[str, JsonValue]:
    """Return outputs as a run shows them; `streams` are those that are lists of a stream's items."""
    return {str(key): json_form(collected(v) if key in streams else v) for key, v in outputs.items()}


def _characters(outputs: dict[str, Any]) -> int | None:
    """Return how many characters are in outputs that hold nothing but numbers and plain texts, None for others: those
    cannot be shown and kept as they are."""
    count = 0
    for value in outputs.values():
        kind = value.__class__
        if kind is str and value.isascii():
            count += len(value)
        elif kind is not int and kind is not bool and value is not None and (kind is not float or not isfinite(value)):
            return None
    return count
