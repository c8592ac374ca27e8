"""The audit log of one host: takes entries at once, and writes them in batches on a thread of its own.

What the log can prove and what not is said in `store.py`; what is kept of an entry's details in `details.py`.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import re
import threading
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from tavern_host import clock
from tavern_host.audit.details import encoded, now
from tavern_host.audit.store import SqliteAuditStore
from tavern_host.contracts.audit import Audit, AuditEntry, AuditLimits, AuditStore, UnnumberedEntry
from tavern_host.contracts.calls import CallContext, Principal, system_call
from tavern_host.contracts.errors import (
    DeadlineExceeded,
    Forbidden,
    InvalidInput,
    Misconfigured,
    ServiceUnavailable,
    describe,
)
from tavern_host.runtime.in_flight import InFlight
from tavern_host.runtime.threads import run_in_thread

HOST_ACTIONS = frozenset({"access", "audit", "host", "plugin", "plugins", "settings"})
"""The first words of what only the host itself records."""
DELAY = 0.05
"""Seconds that entries wait for others, to be written in one batch."""
RETRY = 1.0
"""Seconds after which writing is retried."""
MAX_PENDING = 16 * 2**20
"""How much memory, roughly, entries may take that are not written yet. Those of plugins may take half of it."""
MAX_READ = 1000
"""How many entries may be read at once through the service."""

_ENTRY_BYTES = 200
_CLOSE_DEADLINE = 10.0
_ACTION = re.compile(r"[\w-]+(\.[\w-]+)*")
_LOST = {"actor": "system:host", "action": "audit.lost", "subject": ""}
_log = logging.getLogger("tavern.audit")


class AuditLog:
    """Records what an operator may want to look up later. On any thread; nothing is opened before the first entry.

    The entries are in a database at `path`, which becomes a piece beside it at the `limits`. The `anchor` is a file in
    the operator's own folder that remembers the newest entry, which shows where the end of the log was cut off. `lost`
    counts the entries that were dropped, since they could not be written for too long.
    """

    def __init__(self, path: Path, *, anchor: Path | None = None, limits: AuditLimits | None = None) -> None:
        self.path = path
        self.anchor = anchor
        self.store: AuditStore = SqliteAuditStore(path, anchor, limits)
        self._writing = threading.Lock()
        # Reentrant: an object's finalizer may record while this very thread holds it.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._pending: list[UnnumberedEntry] = []
        self._pending_bytes = 0
        self._finished = 0  # how many entries were written or given up
        self._given_up = range(0)
        self._waiting: list[tuple[int, Future[str | None]]] = []  # until which entry is on disk; what prevents it
        self._is_urgent = self._is_closing = False
        self._thread: threading.Thread | None = None
        self.lost = self._lost_unreported = 0
        self.problem: str | None = None
        """Why the log cannot be written, as of the last attempt; None where it can."""
        self._anchor_problem: str | None = None

    @property
    def is_crowded(self) -> bool:
        """Whether so much waits to be written that callers that can wait had better."""
        return self._pending_bytes > MAX_PENDING // 4

    def record(
        self,
        action: str,
        *,
        actor: Principal | str,
        subject: str = "",
        details: Mapping[str, Any] | None = None,
        secrets: Collection[str] = (),
        plugin: str | None = None,
    ) -> int:
        """Record that `actor` did `action`, a dotted name in the past tense, to `subject`; return the entry's number.
        `plugin` is that through which it came, where it came through one.

        Never blocks and never raises: what is no JSON in `details` becomes a description, what stands under a
        secret's name, or under one of `secrets`, is masked, long texts are cut. All is encoded before this returns.
        It is on disk about 50 ms later, or after `flush` or `written`. Entries of plugins are dropped earlier where
        there are too many; a dropped entry has the number 0.
        """
        through = {} if plugin is None else {"plugin": plugin}
        by = actor if isinstance(actor, str) else f"{actor.kind}:{actor.id}"
        body = encoded({"actor": by, "action": action, "subject": subject, **through}, details, secrets)[1:]
        with self._lock:
            size = self._pending_bytes + len(body) + _ENTRY_BYTES
            if size > (MAX_PENDING // 2 if plugin is not None else MAX_PENDING):
                self.lost += 1
                self._lost_unreported += 1
                return 0
            self._pending.append((now(), body))
            self._pending_bytes = size
            count = len(self._pending)
            is_much = size > MAX_PENDING // 16 and not self._is_urgent
            if count == 1 or is_much:
                self._is_urgent = self._is_urgent or is_much
                self._wake()
            return self._finished + count

    @contextlib.asynccontextmanager
    async def decision(
        self,
        action: str,
        *,
        actor: Principal | str,
        subject: str = "",
        details: Mapping[str, Any] | None = None,
        plugin: str | None = None,
    ) -> AsyncIterator[None]:
        """Record a decision as `record` does, and have it on disk before the block carries it out.

        Raises `ServiceUnavailable` where it cannot be written: the block is not entered, and what is written later is
        `{action}.refused`. Where the block fails, `{action}.failed` follows.
        """
        number = self.record(action, actor=actor, subject=subject, details=details, plugin=plugin)
        try:
            if (problem := await self._problem_of(number, f"{action}.refused", str(actor), subject)) is None:
                yield
        except BaseException as error:
            failure = {"error": describe(error)}
            self.record(f"{action}.failed", actor=actor, subject=subject, details=failure, plugin=plugin)
            raise
        if problem is not None:
            raise ServiceUnavailable(f"this was not carried out, since {problem}")

    async def _problem_of(self, number: int, refused: str, actor: str, subject: str) -> str | None:
        """Wait until an entry is on disk; return what prevents it, and write `refused` in its place one day."""

        def replace() -> bool:
            with self._writing, self._lock:
                place = number - self._finished - 1
                if place >= 0:
                    self._pending_bytes += len(body) - len(self._pending[place][1])
                    self._pending[place] = (now(), body)
                return place >= 0 or number == 0 or number in self._given_up

        body = encoded({"actor": actor, "action": refused, "subject": subject}, None)[1:]
        try:
            await self.written(number)
        except ServiceUnavailable as error:
            return error.message if await run_in_thread(replace, what="refusing a decision") else None
        return None

    async def written(self, number: int | None = None) -> None:
        """Return when an entry, by the number that `record` gave it, is on disk with all that were recorded before;
        without a number, when all that was recorded until now is.

        All who wait at a time share one transaction; the event loop is not blocked. Raises `ServiceUnavailable` where
        the entry was dropped or cannot be written now; it may still be written later.
        """
        with self._changed:
            if number == 0 or number in self._given_up:
                message = f"the audit log {self.path} took no more entries: those before were not written"
                raise ServiceUnavailable(message)
            number = self._finished + len(self._pending) if number is None else number
            if number <= self._finished:
                return
            answer: Future[str | None] = Future()
            self._waiting.append((number, answer))
            self._is_urgent = True
            self._wake()
        with clock.awaits_thread():
            problem = await asyncio.wrap_future(answer)
        if problem is not None:
            raise ServiceUnavailable(f"the audit log {self.path} cannot be written: {problem}")

    async def close(self) -> None:
        """Write what was recorded, and end the thread; what cannot be written now is lost, and the log says so.

        An entry that is recorded later starts it again.
        """
        if self._thread is None and not self._pending:
            return
        try:
            await run_in_thread(self._end, what="closing the audit log", deadline=_CLOSE_DEADLINE)
        except DeadlineExceeded:
            _log.error("the audit log %s did not take its last entries within %g s", self.path, _CLOSE_DEADLINE)

    def _end(self) -> None:
        with self._changed:
            thread, self._thread, self._is_closing = self._thread, None, True
            self._changed.notify_all()
        if thread is not None:
            atexit.unregister(self._end)
            thread.join(_CLOSE_DEADLINE)
        self.flush()
        with self._changed:
            if self.problem is not None and self._pending:
                self._give_up()
            self._is_closing = False
            if self._pending:
                self._wake()
                return
        with self._writing:
            self.store.close()

    def _give_up(self) -> None:
        count = len(self._pending)
        self._given_up = range(self._finished + 1, self._finished + count + 1)
        self.lost += count
        self._lost_unreported += count
        self._finish(count, self.problem)
        _log.error("%d entries of the audit log %s are lost", count, self.path)

    # --- writing ----------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Have the thread write what is pending; called with the lock held."""
        if self._thread is None and not self._is_closing:
            thread = threading.Thread(target=self._run, name="audit log", daemon=True)
            with contextlib.suppress(RuntimeError):  # there can be no more threads; `close` or `flush` writes it
                thread.start()
                self._thread = thread
                atexit.register(self._end)
        self._changed.notify_all()

    def _run(self) -> None:
        while not self._is_closing:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._is_closing)
                if self.problem is None:
                    self._changed.wait_for(lambda: self._is_urgent or self._is_closing, DELAY)
                else:
                    self._changed.wait_for(lambda: self._is_closing, RETRY)
            self.flush()

    def flush(self) -> None:
        """Write what was recorded until now; where that fails it is kept and retried later.

        Waits for the disk, and up to 2 s for other processes that write into the log.
        """
        with self._writing:
            with self._changed:
                batch, lost = self._pending[:], self._lost_unreported
                self._is_urgent = False
            if not batch and not lost:
                return
            notes = [(now(), encoded(_LOST, {"entries": lost})[1:])] if lost else []
            problem = self.store.append([*batch, *notes])
            with self._changed:
                if problem is None:
                    self._lost_unreported -= lost
                    self._finish(len(batch), None)
                else:
                    self._answer(self._finished + len(batch), problem)
            self._report(problem)

    def _finish(self, count: int, problem: str | None) -> None:
        """Remove the oldest entries from those pending: they were written, or given up because of a problem."""
        self._pending_bytes -= sum(len(body) + _ENTRY_BYTES for _, body in self._pending[:count])
        del self._pending[:count]
        self._finished += count
        self._answer(self._finished, problem)

    def _answer(self, number: int, problem: str | None) -> None:
        """Answer those who wait for entries up to a number."""
        ready = [answer for awaited, answer in self._waiting if awaited <= number]
        self._waiting = [waiting for waiting in self._waiting if waiting[0] > number]
        for answer in ready:
            if answer.set_running_or_notify_cancel():
                answer.set_result(problem)

    def _report(self, problem: str | None) -> None:
        """Log a problem once, and when it is over."""
        if problem is not None and self.problem is None:
            _log.error("the audit log %s cannot be written: %s", self.path, problem)
        elif problem is None and self.problem is not None:
            _log.warning("the audit log %s is written again; %d entries were lost", self.path, self.lost)
        self.problem = problem
        if (anchor_problem := self.store.anchor_problem) != self._anchor_problem:
            self._anchor_problem = anchor_problem
            if anchor_problem is not None:
                _log.error("the audit log's anchor is not kept: %s", anchor_problem)


def _check_action(action: str) -> None:
    """Raise `InvalidInput` for what is no dotted name."""
    if not isinstance(action, str) or len(action) > 200 or _ACTION.fullmatch(action) is None:
        raise InvalidInput("an action is a dotted name in the past tense, such as acme.index.rebuilt")


class HostAudit(Audit):
    """The `audit` service. What the host itself does goes into the log directly, and never through here."""

    def __init__(self, log: AuditLog, reserved: Collection[str]) -> None:
        self._log = log
        self._reserved = reserved

    async def record(
        self,
        action: str,
        *,
        subject: str = "",
        details: dict[str, JsonValue] | None = None,
        call: CallContext | None = None,
    ) -> None:
        """Append an entry in the caller's name.

        A plugin's action is put under the plugin's name, and nobody's begins as those of the host do. Raises
        `InvalidInput` for what is no dotted name.
        """
        _check_action(action)
        call = call or system_call()
        principal = call.principal
        plugin = principal.id if principal.kind == "plugin" else None
        word = action.partition(".")[0]
        is_reserved = word in HOST_ACTIONS or word in self._reserved
        if is_reserved or (plugin is not None and not action.startswith(f"{plugin}.")):
            action = f"{plugin or principal.kind}.{action}"
        self._log.record(action, actor=principal, subject=subject, details=details, plugin=call.via or plugin)

    async def tail(
        self, limit: int = 50, *, before: int | None = None, call: CallContext | None = None
    ) -> list[AuditEntry]:
        """Return the newest entries, of those `before` a number; those recorded before this call are among them.

        Raises `InvalidInput` for a limit of less than 1 or more than 1000, `Misconfigured` where the log cannot be
        read.
        """
        if not 1 <= limit <= MAX_READ:
            raise InvalidInput(f"limit {limit}: from 1 to {MAX_READ} entries can be read at once")
        try:
            await run_in_thread(self._log.flush, what="writing the audit log")
            return await run_in_thread(partial(self._log.store.tail, limit, before), what="reading the audit log")
        except OSError as error:
            raise Misconfigured(f"the audit log {self._log.path} cannot be read: {error.strerror}") from None


Allowed = Callable[[CallContext | None, str], CallContext]


class PluginAudit:
    """The audit log for one plugin; see `context.Audit`. `is_provider` says whether it may record now; `allowed`
    returns the context in which it records, or raises `Forbidden`."""

    def __init__(self, log: AuditLog, in_flight: InFlight, is_provider: Callable[[], bool], allowed: Allowed) -> None:
        self._allowed = allowed
        self._log = log
        self._in_flight = in_flight
        self._is_provider = is_provider

    def record(
        self,
        action: str,
        *,
        subject: str = "",
        details: Mapping[str, JsonValue] | None = None,
        secrets: Collection[str] = (),
        call: CallContext | None = None,
    ) -> int:
        """Record what the call's principal did. Raises `Forbidden`, `InvalidInput`."""
        _check_action(action)
        if self._in_flight.is_closed:
            raise self._in_flight.refusal()
        plugin = self._in_flight.plugin
        if action.partition(".")[0] in HOST_ACTIONS:
            raise Forbidden(f"{plugin} may not record {action}: only the host itself does")
        if not self._is_provider():
            raise Forbidden(f"{plugin} provides none of the host's services: it records through the service audit")
        call = self._allowed(call, "the audit log")
        actor, plugin, secrets = call.principal, call.via or plugin, frozenset(secrets)
        return self._log.record(action, actor=actor, subject=subject, details=details, secrets=secrets, plugin=plugin)

    @property
    def is_crowded(self) -> bool:
        """Whether much waits to be written."""
        return self._log.is_crowded

    @property
    def problem(self) -> str | None:
        """Why the log cannot be written."""
        return self._log.problem

    async def written(self, number: int | None = None) -> None:
        """Wait until an entry is on disk, or all that were recorded until now."""
        await self._log.written(number)
