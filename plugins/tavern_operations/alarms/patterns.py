"""Which entries of an audit log are unusual. Pure: it takes entries, and returns alarms."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from pydantic import JsonValue

from tavern_host.contracts.audit import AuditEntry
from tavern_host.contracts.wire import Model

MINUTE = timedelta(minutes=1)
MOST_HOSTS = 10_000
"""How many hosts are remembered, those that were reached last."""
_MOST_COUNTED = 1000
"""How many callers and tools are counted at a time, the latest."""
_DENIED = frozenset({"access.refused", "tool.denied", "script.kept-out", "account.login_refused"})
NOBODY = "user:nobody"
"""The actor of what somebody does without a token."""
_ENDED = frozenset({"tool.ended", "tool.called"})
_WELL = frozenset({"done", "accepted", "cached", "not made", "interrupted"})


class Alarm(Model):
    """Something unusual: `subject` did, or was, it `count` times since a moment."""

    kind: Literal["denials", "failures", "new-host", "trigger"]
    subject: str
    count: int
    since: datetime
    message: str


@dataclass
class Limits:
    """From how many in a minute on there is an alarm; 0 is never."""

    denials: int
    failures: int
    new_hosts: bool


@dataclass
class Patterns:
    """Counts what happened in the last minute, by caller and by tool. There is one alarm for each until a minute passed
    in which there were fewer. `hosts` are those that scripts have reached before."""

    hosts: OrderedDict[str, None] = field(default_factory=OrderedDict)
    _moments: OrderedDict[tuple[str, str], deque[datetime]] = field(default_factory=OrderedDict)
    _sounding: set[tuple[str, str]] = field(default_factory=set)

    def see(self, entries: Iterable[AuditEntry], limits: Limits) -> list[Alarm]:
        """Take in entries in their order; return the alarms that they are worth."""
        return [alarm for entry in entries if (alarm := self._see(entry, limits)) is not None]

    def _see(self, entry: AuditEntry, limits: Limits) -> Alarm | None:
        if entry.action in _DENIED:
            by, times = _by(entry), _count(entry)
            return self._counted("denials", by, entry.time, limits.denials, f"{by} was refused", times)
        if entry.action in _ENDED and entry.details.get("outcome", "done") not in _WELL:
            tool = entry.subject
            return self._counted("failures", tool, entry.time, limits.failures, f"calls of {tool} failed")
        if entry.action == "script.connected":
            return self._new_host(entry, limits)
        if entry.action == "trigger.stopped":  # the host's own decision, which nobody sees otherwise
            message = f"the trigger {entry.subject}: {entry.details.get('reason', '')}"
            return Alarm(kind="trigger", subject=entry.subject, count=1, since=entry.time, message=message)
        return None

    def _new_host(self, entry: AuditEntry, limits: Limits) -> Alarm | None:
        host = str(entry.details.get("host", ""))
        is_new = host not in self.hosts
        self.hosts[host] = None
        self.hosts.move_to_end(host)
        if len(self.hosts) > MOST_HOSTS:
            self.hosts.popitem(last=False)
        if not (is_new and limits.new_hosts):
            return None
        message = f"{entry.subject} reached {host} for the first time"
        return Alarm(kind="new-host", subject=host, count=1, since=entry.time, message=message)

    def _counted(
        self,
        kind: Literal["denials", "failures"],
        subject: str,
        moment: datetime,
        limit: int,
        what: str,
        times: int = 1,
    ) -> Alarm | None:
        if not limit:
            return None
        key = kind, subject
        moments = self._moments.setdefault(key, deque(maxlen=limit))
        self._moments.move_to_end(key)
        if len(self._moments) > _MOST_COUNTED:
            gone, _ = self._moments.popitem(last=False)
            self._sounding.discard(gone)
        if moments.maxlen != limit:  # the setting has changed
            moments = self._moments[key] = deque(moments, maxlen=limit)
        moments.extend([moment] * min(times, limit))
        if len(moments) < limit or moment - moments[0] > MINUTE:
            self._sounding.discard(key)
            return None
        if key in self._sounding:
            return None
        self._sounding.add(key)
        message = f"{what} {limit} times within a minute"
        return Alarm(kind=kind, subject=subject, count=limit, since=moments[0], message=message)


def _by(entry: AuditEntry) -> str:
    """Return who was refused: a login has no user yet, and somebody without a token none at all."""
    client: JsonValue = entry.details.get("client")
    if entry.action == "account.login_refused":
        return f"a login from {client}" if client else f"the login {entry.subject}"
    return f"somebody without a token from {client}" if entry.actor == NOBODY and client else entry.actor


def _count(entry: AuditEntry) -> int:
    """Return how many refusals an entry stands for."""
    count = entry.details.get("count")
    return count if entry.action == "access.refused" and isinstance(count, int) else 1
