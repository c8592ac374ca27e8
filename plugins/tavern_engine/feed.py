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
from tavern_engine.wireform import clean, json_form
from tavern_host.contracts.dataflow import collected
from tavern_host.contracts.errors import ErrorInfo
from tavern_host.contracts.executions import RunStatus

Message = tuple[str, dict[str, Any]]
"""A message's type and payload."""

Publish = Callable[[list[Message]], None]

STATUS_NAMES = {
    "complete": RunStatus.COMPLETE,
    "bypassed": RunStatus.COMPLETE,
    "error": RunStatus.ERROR,
}
"""What the journal calls what became of a node, and which status that is. Rows of loops have others."""

_NAMES = {State.DONE.value: "complete", State.BYPASSED.value: "bypassed", State.FAILED.value: "error"}
_DONE = State.DONE.value
_UNTIMED = frozenset((State.SKIPPED.value, State.CACHED.value))
_CHUNKS = frozenset(("text_chunk", "tool_call_chunk", "finish_reason_chunk", "usage_chunk", "error_chunk", "custom"))


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
        self.yields: list[tuple[int, str, Any]] = []
        """Items of streams since the last flush: the node's number, or -1 and an interface output, and the item."""
        self.account = account
        self.journal = journal
        self.cache = cache
        self._run_id = run_id
        self._plan = plan
        self._publish = publish
        self._base = time.perf_counter()

    def begin(self) -> None:
        """Count times from here."""
        self._base = self.account.base = time.perf_counter()

    def now(self) -> float:
        """Return the seconds since the run began."""
        return time.perf_counter() - self._base

    def executing(self, numbers: list[int]) -> None:
        """Nodes are in the middle of what they do while others get their turn."""
        account, shown, run_id, now = self.account, self._plan.shown, self._run_id, time.perf_counter()
        messages: list[Message] = []
        for number in numbers:
            account.states[number] = State.RUNNING
            account.started[number] = now
            account.finished[number] = 0.0
            messages.append(("NODE_EXECUTING", {"promptId": run_id, "nodeId": shown[number].id}))
        self._publish(messages)

    def progress(self, number: int, value: float, maximum: float | None) -> None:
        """A node says how far it is."""
        payload: dict[str, Any] = {"promptId": self._run_id, "nodeId": self._plan.shown[number].id, "value": value}
        if maximum is not None:
            payload["max"] = maximum
        self._publish([("NODE_PROGRESS", payload)])

    def iterated(self, number: int, node_id: str, count: int, of: int | None, state: dict[str, Any]) -> None:
        """A loop has finished an iteration; `state` is what it needs to go on from here."""
        self.account.iterations[number] = count
        if self.journal is not None:
            now = self.now()
            self.journal.add(node_id, None, "iteration", now, now, state, None, 1, count)
        self.progress(number, count, of)

    def cached(self, numbers: list[int]) -> None:
        """Nodes whose outputs of an earlier run hold, without anybody needing to look at them."""
        states, shown, run_id = self.account.states, self._plan.shown, self._run_id
        for number in numbers:
            states[number] = State.CACHED
        if numbers:
            self._publish([("NODE_CACHED", {"promptId": run_id, "nodeIds": [shown[number].id for number in numbers]})])

    def flush(self) -> None:
        """Pass on what was taken down since the last time."""
        if not self.records and not self.yields:
            return
        messages: list[Message] = []
        if self.yields:
            self._tell_yields(messages)
        if self.records:
            self._settle(messages)
        if messages:
            self._publish(messages)

    def _settle(self, messages: list[Message]) -> None:
        records, self.records = self.records, []
        account, base, run_id = self.account, self._base, self._run_id
        states, started, finished, outputs_of = account.states, account.started, account.finished, account.outputs
        nodes, streaming, journal = self._plan.shown, self._plan.streaming, self.journal
        tell = messages.append
        signatures: list[bytes] = []
        kept: list[dict[str, Any]] = []
        size = 0
        fields = iter(records)
        for number, began, ended, state, outputs, signature, error in zip(*[fields] * 7, strict=True):
            identifier = nodes[number].id
            states[number] = state
            if state not in _UNTIMED:
                started[number] = began
                finished[number] = ended
                if journal is not None:
                    attempts = account.attempts.get(number, 1) if account.attempts else 1
                    times = (began - base, ended - base)
                    journal.add(identifier, signature, _NAMES[state], *times, outputs, error, attempts, None)
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
            if signature is not None:
                if is_plain:
                    signatures.append(signature)
                    kept.append(outputs)
                elif self.cache is not None:
                    self.cache.put(signature, outputs)
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
        about: dict[str, Any] = {"promptId": self._run_id, "nodeId": self._plan.shown[number].id}
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

    # --- streams ----------------------------------------------------------------------------------

    def ended(self, number: int, key: str) -> None:
        """A stream has ended; `number` is its node's, or -1 for the interface output `key`."""
        self.flush()
        self._publish([self._yielded(number, key, {"type": "text_chunk", "content": ""}, is_last=True)])

    def _tell_yields(self, messages: list[Message]) -> None:
        """Tell of the items of streams; texts that follow one another go as one."""
        yields, self.yields = self.yields, []
        texts: dict[tuple[int, str], list[str]] = {}
        for number, key, item in yields:
            if type(item) is str:
                texts.setdefault((number, key), []).append(item)
                continue
            if (number, key) in texts:
                messages.append(self._text(number, key, texts.pop((number, key))))
            messages.append(self._yielded(number, key, _chunk(item)))
        messages.extend(self._text(number, key, pieces) for (number, key), pieces in texts.items())

    def _text(self, number: int, key: str, pieces: list[str]) -> Message:
        return self._yielded(number, key, {"type": "text_chunk", "content": clean("".join(pieces))})

    def _yielded(self, number: int, key: str, content: Any, *, is_last: bool = False) -> Message:
        if number < 0:
            about = {"promptId": self._run_id, "interfaceOutputKey": key}
            return "WORKFLOW_INTERFACE_YIELD", {**about, "yieldedContent": content, "isLastChunk": is_last}
        about = {"promptId": self._run_id, "sourceNodeId": self._plan.shown[number].id, "outputKey": key}
        return "NODE_YIELD", {**about, "yieldedContent": content, "isLastChunk": is_last}


def shown(outputs: dict[str, Any], streams: Collection[str] = ()) -> dict[str, JsonValue]:
    """Return outputs as a run shows them; `streams` are those that are lists of a stream's items."""
    return {str(key): json_form(collected(v) if key in streams else v) for key, v in outputs.items()}


def _chunk(item: Any) -> JsonValue:
    """Return an item as clients know pieces of streams; what has the shape of one already is one."""
    form = json_form(item)
    if isinstance(form, dict) and form.get("type") in _CHUNKS and "content" in form:
        return form
    return {"type": "custom", "content": form}
