"""The audit log of one host: takes entries at once, writes them in batches from a thread of its own.

What the file can prove and what not is said in `auditfile.py`; what is kept of an entry's details in
`auditdetails.py`.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import re
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from tavern_host.audit.details import encoded
from tavern_host.audit.file import AuditFile, Entry, tail
from tavern_host.contracts.audit import Audit, AuditEntry
from tavern_host.contracts.calls import CallContext, Principal, system_call
from tavern_host.contracts.errors import DeadlineExceeded, InvalidInput, Misconfigured, ServiceUnavailable, describe
from tavern_host.runtime.threads import run_in_thread

HOST_ACTIONS = frozenset({"audit", "host", "plugin", "plugins", "settings"})
"""The first words of what only the host itself records."""
PROVIDER_ACTIONS = frozenset({"tool"})
"""The first words of what only providers of the host's services record, through their `context.audit`."""
DELAY = 0.05
"""Seconds that entries wait for others, to be written in one batch."""
RETRY = 1.0
"""Seconds after which writing is tried again where it failed."""
MAX_PENDING = 16 * 2**20
"""How much memory, roughly, the entries may take that are not written yet. Others' may take half of it."""
MAX_READ = 1000
"""How many entries may be read at once through the service."""

_ENTRY_BYTES = 200
_CLOSE_DEADLINE = 10.0
_ACTION = re.compile(r"[\w-]+(\.[\w-]+)*")
_log = logging.getLogger("tavern.audit")


class AuditLog:
    """Records what an operator may want to look up later. On any thread; nothing is opened before the first entry.

    `anchor` is a file in the operator's own folder that remembers the newest seal, so that it is found out where
    the end of the log was cut off.
    """

    def __init__(self, path: Path, *, anchor: Path | None = None) -> None:
        self.path = path
        self.anchor = anchor
        self._file = AuditFile(path, anchor)
        self._lock = threading.RLock()  # an object's finalizer may record while this very thread holds it
        self._writing = threading.Lock()
        self._pending: list[Entry] = []
        self._pending_bytes = 0
        self._taken = 0
        self._sure = 0
        self._given_up = range(0)
        self._waiting: list[_Waiting] = []
        self._is_due = False
        self._due = threading.Event()
        self._hurry = threading.Event()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._lost = self._lost_untold = 0
        self._told: str | None = None
        self._anchor_told: str | None = None

    @property
    def lost(self) -> int:
        """How many entries were dropped, since they could not be written for too long."""
        return self._lost

    @property
    def is_crowded(self) -> bool:
        """Whether so much waits to be written that whoever can wait had better."""
        return self._pending_bytes > MAX_PENDING // 4

    def record(
        self,
        action: str,
        *,
        actor: Principal | str,
        subject: str = "",
        details: Mapping[str, Any] | None = None,
        foreign: bool = False,
        secrets: Collection[str] = (),
    ) -> int:
        """Record that `actor` did `action`, a dotted name in the past tense, to `subject`.

        Never blocks and never raises: what is no JSON in `details` becomes a description, what stands under a
        secret's name, or under one of `secrets`, is masked, long texts are cut. All is encoded before this returns.
        It is on disk about 50 ms later, or after `flush` or `written`, which takes the number that this returns. What
        is `foreign`, a plugin's own, is dropped earlier where there are too many; what was dropped has the number 0.
        """
        fields = {"actor": str(actor), "action": action, "subject": subject}
        return self.add(encoded(fields, details, secrets)[1:], foreign=foreign)

    def add(self, body: bytes, *, foreign: bool = False) -> int:
        """Record an entry that is encoded already, as `auditdetails.encoded` does, without its first brace."""
        moment = time.time()
        with self._lock:
            size = self._pending_bytes + len(body) + _ENTRY_BYTES
            if size > (MAX_PENDING // 2 if foreign else MAX_PENDING):
                self._lost += 1
                self._lost_untold += 1
                return 0
            self._pending.append((moment, body))
            self._pending_bytes = size
            number = self._taken + len(self._pending)
            is_due, self._is_due = self._is_due, True
        if not is_due:
            self._wake()
        if size > MAX_PENDING // 16 and not self._hurry.is_set():
            self._hurry.set()
        return number

    async def written(self, number: int | None = None) -> None:
        """Return when an entry, by the number that `record` gave it, is on disk with all that were recorded before;
        without a number, when all that was recorded until now is.

        All who wait at a time share one flush of the disk; the event loop is not blocked. Raises
        `ServiceUnavailable` where it was dropped or cannot be written now; it may still be written later.
        """
        if number == 0 or number in self._given_up:
            raise ServiceUnavailable(f"the audit log {self.path} took no more entries: those before were not written")
        number = self._newest() if number is None else number
        if number <= self._sure:
            return
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str | None] = loop.create_future()
        with self._lock:
            self._waiting.append(_Waiting(number, loop, answer))
        self._wake()
        self._hurry.set()
        if self._thread is None and not self._closing.is_set():  # there can be no more threads
            self._write()
        problem = await answer
        if problem is not None:
            raise ServiceUnavailable(f"the audit log {self.path} cannot be written: {problem}")

    def _newest(self) -> int:
        with self._lock:
            return self._taken + len(self._pending)

    def flush(self) -> None:
        """Write what was recorded until now; where that fails it is kept and tried again later.

        Waits for the disk, and up to 2 s for other processes that write into the log.
        """
        self._write()

    async def close(self) -> None:
        """Write what was recorded, and end the thread; what cannot be written now is lost, and the log says so.

        An entry that is recorded later starts anew.
        """
        if self._thread is None and not self._pending:
            return
        try:
            await run_in_thread(self._end, what="closing the audit log", deadline=_CLOSE_DEADLINE)
        except DeadlineExceeded:
            _log.error("the audit log %s did not take its last entries within %g s", self.path, _CLOSE_DEADLINE)

    def _end(self) -> None:
        with self._lock:
            thread, self._thread = self._thread, None
            self._closing.set()
        if thread is not None:
            atexit.unregister(self._end)
            self._due.set()
            self._hurry.set()
            thread.join(_CLOSE_DEADLINE)
        self._write()
        with self._lock:
            if self._told is not None and self._pending:
                self._give_up()
            self._closing.clear()
            is_used = self._is_due = bool(self._pending or self._waiting)
        if is_used:
            self._wake()
        else:
            with self._writing:
                self._file.close()

    def _give_up(self) -> None:
        given_up, self._pending = self._pending, []
        lost = len(given_up)
        self._given_up = range(self._taken + 1, self._taken + lost + 1)
        self._taken += lost
        self._pending_bytes -= _bytes(given_up)
        self._lost += lost
        self._lost_untold += lost
        _log.error("%d entries of the audit log %s are lost", lost, self.path)
        self._answer(self._sure, self._taken, self._told)

    def _wake(self) -> None:
        with self._lock:
            if self._thread is None and not self._closing.is_set():
                thread = threading.Thread(target=self._run, name="audit log", daemon=True)
                with contextlib.suppress(RuntimeError):  # there can be no more threads; `close` or `flush` writes it
                    thread.start()
                    self._thread = thread
                    atexit.register(self._end)
        self._due.set()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._due.wait()
            self._due.clear()
            if self._told is None:
                self._hurry.wait(DELAY)
            else:
                self._closing.wait(RETRY)
            self._hurry.clear()
            self._write()

    def _write(self) -> None:
        with self._writing:
            with self._lock:
                batch, self._pending = self._pending, []
                self._taken += len(batch)
                taken = self._taken
                lost, self._lost_untold = self._lost_untold, 0
                self._is_due = False
            if not batch and not lost:
                self._answer(self._sure, taken, "its last entries may not be on disk")
                return
            told = [(time.time(), encoded(_LOST, {"entries": lost})[1:])] if lost else []
            try:
                written, failure = self._file.append([*batch, *told])
            except Exception as error:  # whatever it is, the host goes on and this thread with it
                written, failure = 0, OSError(describe(error))
            rest = batch[written:]
            with self._lock:
                self._lost_untold += lost if written < len(batch) + len(told) else 0
                self._pending[:0] = rest
                self._taken -= len(rest)
                self._pending_bytes -= _bytes(batch[:written])
                self._is_due = bool(self._pending)
                if failure is None:
                    self._sure = taken
            problem = f"{failure.strerror or failure}" if failure is not None else None
            self._answer(self._sure, taken, problem)
            self._tell(problem)
        if rest:
            self._due.set()

    def _answer(self, sure: int, tried: int, problem: str | None) -> None:
        """Tell those who wait for entries up to `tried` that theirs are on disk, if up to `sure`, or why not."""
        with self._lock:
            ready = [one for one in self._waiting if one.number <= tried]
            if not ready:
                return
            self._waiting = [one for one in self._waiting if one.number > tried]
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[str | None], str | None]]] = {}
        for one in ready:
            by_loop.setdefault(one.loop, []).append((one.answer, None if one.number <= sure else problem))
        for loop, answers in by_loop.items():
            with contextlib.suppress(RuntimeError):  # the loop was closed; nobody waits any more
                loop.call_soon_threadsafe(_settle, answers)

    def _tell(self, problem: str | None) -> None:
        """Log what goes wrong once, and when it is over."""
        if problem is not None and self._told is None:
            _log.error("the audit log %s cannot be written: %s", self.path, problem)
        elif problem is None and self._told is not None:
            _log.warning("the audit log %s is written again; %d entries were lost", self.path, self._lost)
        self._told = problem
        if (anchor_problem := self._file.anchor_problem) != self._anchor_told:
            self._anchor_told = anchor_problem
            if anchor_problem is not None:
                _log.error("the audit log's anchor is not kept: %s", anchor_problem)


@dataclass(frozen=True)
class _Waiting:
    """Somebody who waits until an entry is on disk."""

    number: int
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[str | None]


def _settle(answers: list[tuple[asyncio.Future[str | None], str | None]]) -> None:
    for answer, problem in answers:
        if not answer.done():  # whoever waited may have been cancelled
            answer.set_result(problem)


def _bytes(entries: list[Entry]) -> int:
    return sum([len(body) for _, body in entries]) + _ENTRY_BYTES * len(entries)


_LOST = {"actor": "system:host", "action": "audit.lost", "subject": ""}


def check_action(action: str) -> None:
    """Raise `InvalidInput` for what is no dotted name."""
    if not isinstance(action, str) or len(action) > 200 or not _ACTION.fullmatch(action):
        raise InvalidInput("an action is a dotted name in the past tense, such as acme.index.rebuilt")


class HostAudit(Audit):
    """The `audit` service. What the host itself does goes into the log directly, and never through here."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log

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
        check_action(action)
        principal = (call or system_call()).principal
        own = principal.id if principal.kind == "plugin" else principal.kind
        first = action.partition(".")[0]
        if first in HOST_ACTIONS | PROVIDER_ACTIONS or (
            principal.kind == "plugin" and not action.startswith(f"{own}.")
        ):
            action = f"{own}.{action}"
        self._log.record(action, actor=principal, subject=subject, details=details, foreign=True)

    async def tail(self, limit: int = 50, *, call: CallContext | None = None) -> list[AuditEntry]:
        """Return the newest entries; those recorded before this call are among them.

        Raises `InvalidInput` for a limit of less than 1 or more than 1000, `Misconfigured` where the log cannot be
        read.
        """
        if not 1 <= limit <= MAX_READ:
            raise InvalidInput(f"limit {limit}: from 1 to {MAX_READ} entries can be read at once")
        try:
            return await run_in_thread(lambda: self._newest(limit), what="reading the audit log")
        except OSError as error:
            raise Misconfigured(f"the audit log {self._log.path} cannot be read: {error.strerror}") from None

    def _newest(self, limit: int) -> list[AuditEntry]:
        self._log.flush()
        return tail(self._log.path, limit)
