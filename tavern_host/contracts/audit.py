"""The audit log: who decided or did what that an operator may want to look up later."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime

from pydantic import Field, JsonValue

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts
from tavern_host.contracts.wire import Model


class AuditEntry(Model):
    """One entry of the log. `actor` is a principal (`user:operator`, `plugin:acme`), `action` a dotted name in
    the past tense (`plugin.granted`), `subject` what it was done to. `plugin` is the plugin through which it came: the
    third-party one that passed the call on, else the one that recorded it; None where the host itself recorded it.
    `details` hold no secrets."""

    seq: int
    time: datetime
    actor: str
    action: str
    subject: str = ""
    plugin: str | None = None
    details: dict[str, JsonValue] = Field(default_factory=dict)


class AuditCheck(Model):
    """What checking the whole log found. Without `problem` nothing of it was changed or removed.

    `line` is the number of the entry where the problem shows.
    """

    entries: int = 0
    problem: str | None = None
    line: int | None = None


class AuditLimits(Model):
    """When a file of the log is closed, and another one begun with the next entry: at a size in MiB, or when its first
    entry is so many days old, by default never."""

    megabytes: int = Field(default=64, ge=1)
    days: float = Field(default=36500, gt=0, le=36500)


class Audit(ServiceInterface, name="audit"):
    """The audit log, append-only."""

    @acts("audit:record", "Write entries into the audit log, in its own name.", level="add")
    async def record(
        self,
        action: str,
        *,
        subject: str = "",
        details: dict[str, JsonValue] | None = None,
        call: CallContext | None = None,
    ) -> None:
        """Append an entry; the actor is the call's principal. Returns before it is on disk."""

    @acts("audit:read", "Read the audit log.")
    async def tail(
        self, limit: int = 50, *, before: int | None = None, call: CallContext | None = None
    ) -> list[AuditEntry]:
        """Return the newest entries, of those `before` a number where one is given, oldest first."""


AUDIT = ServiceKey(Audit)

UnnumberedEntry = tuple[str, bytes]
"""An entry before it has a number: its time in ISO 8601, and the other fields as a JSON object without the first
brace."""


class AuditStore(ABC):
    """Where the entries of one audit log are kept: append-only, and so that a change shows.

    It blocks. One thread at a time appends and closes; any may read meanwhile, and other processes may do both.
    `anchor_problem` says why the place that remembers the newest entry is out of date, None where it is not.
    """

    anchor_problem: str | None = None

    @abstractmethod
    def append(self, entries: Sequence[UnnumberedEntry]) -> str | None:
        """Number entries on and keep them in this order, all or none, so that they survive the end of the machine when
        this returns. Return the problem that prevents it, or None; never raises."""

    @abstractmethod
    def tail(self, limit: int, before: int | None = None) -> list[AuditEntry]:
        """Return the newest entries, of those `before` a number where one is given, oldest first. Raises `OSError`."""

    @abstractmethod
    def read_after(self, seq: int, limit: int = 1000) -> list[AuditEntry]:
        """Return the entries after a number, oldest first; from the beginning where a new log was begun since. Raises
        `OSError`."""

    @abstractmethod
    def verify(self) -> AuditCheck:
        """Read all entries and say whether they are as they were written, or where they are not. Raises `OSError`."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held; the next append takes it again."""
