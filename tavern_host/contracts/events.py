"""Events: what happened, numbered, so that a reader that reconnects can ask for what it missed."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field, JsonValue

from tavern_host.contracts.wire import Model

AUDITED = frozenset(("ADVISORY", "ALARM"))
"""The events that clients get who may read the audit log; `GET /api/audit` says who does. They tell what is weak."""


class Event(Model):
    """One event. `seq` grows by one for each event of this host process; `type` is a wire message name."""

    seq: int
    type: str
    payload: dict[str, JsonValue] = Field(default_factory=dict)
    plugin: str | None = None
    time: datetime


class Gap(Model):
    """Told to a subscriber that was too slow or came too late: events `first` to `last` are lost to it."""

    first: int
    last: int
