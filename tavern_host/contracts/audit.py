"""The audit log: who decided or did what that an operator may want to look up later."""

from __future__ import annotations

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

    `line` is the number of the entry where the problem shows. Only of an older log, lines of JSON that are not
    imported yet: `line` is a line's number, `unsealed` entries stand after the last seal, `recovered` ones were left so
    by a writer that crashed and sealed by the next one, `torn` counts lines that are no entries.
    """

    entries: int
    problem: str | None = None
    line: int | None = None
    unsealed: int = 0
    recovered: int = 0
    torn: int = 0


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
    async def tail(self, limit: int = 50, *, call: CallContext | None = None) -> list[AuditEntry]:
        """Return the newest entries, oldest first."""


AUDIT = ServiceKey(Audit)
