"""Refusals in the audit log: who was kept from which route or message, counted for each principal and minute."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field

from aiohttp import web

from tavern_host.host import Host

REFUSED = frozenset({"unauthorized", "forbidden", "permission_denied"})
"""Codes of errors that are refusals."""
ACTION = "access.refused"
MINUTE = 60.0
MOST = 500
"""How many principals and addresses are counted apart in a minute; all others are counted as one."""
_MOST_ROUTES, _MOST_TEXT = 20, 200


@dataclass
class _Counted:
    host: Host
    actor: str
    client: str
    code: str
    total: int = 0
    routes: Counter[str] = field(default_factory=Counter)

    def write(self) -> None:
        routes, self.routes = self.routes, Counter()
        most = dict(routes.most_common(_MOST_ROUTES))
        details = {"code": self.code, "count": routes.total(), "client": self.client, "routes": most}
        self.host.audit.record(ACTION, actor=self.actor, subject=next(iter(most)), details=details)


class Refusals:
    """Counts refusals. An entry is written for the first of a minute, for the second, the fourth, the eighth and so on,
    and for those that are left when it is over: few enough for the log, and soon enough for an alarm."""

    def __init__(self) -> None:
        self._counted: dict[Hashable, _Counted] = {}
        self._end: asyncio.TimerHandle | None = None

    def count(self, host: Host, user: str, client: str, where: str, code: str) -> None:
        """Count that a user, or `nobody` from an address, was kept from `where`: a method and a path, or a message."""
        key: Hashable = (host.project.id, user, client if user == "nobody" else "")
        if key not in self._counted and len(self._counted) >= MOST:
            key, user, client = host.project.id, "others", ""
        counted = self._counted.setdefault(key, _Counted(host, f"user:{user}", client, code))
        counted.total, counted.code = counted.total + 1, code
        counted.routes[where[:_MOST_TEXT] if len(counted.routes) < _MOST_TEXT else "others"] += 1
        if counted.total & (counted.total - 1) == 0:
            counted.write()
        if self._end is None:
            self._end = asyncio.get_running_loop().call_later(MINUTE, self.flush)

    def flush(self) -> None:
        """Write what is counted and in no entry yet, and begin another minute."""
        counted, self._counted = self._counted, {}
        if self._end is not None:
            self._end.cancel()
            self._end = None
        for one in counted.values():
            if one.routes:
                one.write()


REFUSALS: web.AppKey[Refusals] = web.AppKey("refusals")
"""Where an application counts its refusals."""
