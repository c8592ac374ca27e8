"""`GET /api/audit`: the newest entries of the audit log that are asked for."""

from __future__ import annotations

from datetime import UTC, datetime
from fnmatch import fnmatchcase

from pydantic import Field

from tavern_host import HttpRequest, HttpResponse, PluginContext
from tavern_host.contracts.audit import AUDIT, AuditEntry
from tavern_host.contracts.wire import Model

PAGE = 1000
"""How many entries are read at a time."""
MOST = 100_000
"""Among how many entries those that are asked for are looked up."""


class AuditQuery(Model):
    """Which entries, and how many of the newest of them. `actor`, `action`, `subject` and `plugin` are patterns, in
    which `*` is any text; `since` and `until` are moments, and `before` is a number of an entry, for those that came
    earlier. All that is given must hold. 100,000 entries are looked through, from the newest or from `before` on."""

    limit: int = Field(default=50, ge=1, le=PAGE)
    actor: str = "*"
    action: str = "*"
    subject: str = "*"
    plugin: str = "*"
    since: datetime | None = None
    until: datetime | None = None
    before: int | None = None

    def holds(self, entry: AuditEntry) -> bool:
        """Return whether an entry is asked for."""
        patterns = ("actor", "action", "subject", "plugin")
        fits = all(fnmatchcase(getattr(entry, name) or "", getattr(self, name)) for name in patterns)
        return fits and (self.until is None or entry.time <= _aware(self.until))

    def is_over(self, page: list[AuditEntry]) -> bool:
        """Return whether nothing that is asked for can come before a page."""
        return len(page) < PAGE or (self.since is not None and page[0].time < _aware(self.since))


async def show(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with entries, oldest first."""
    asked = request.read_query(AuditQuery)
    found: list[AuditEntry] = []
    before, read = asked.before, 0
    while len(found) < asked.limit and read < MOST:
        page = await context.services.get(AUDIT).tail(PAGE, before=before, call=request.call)
        found = [entry for entry in page if asked.holds(entry)] + found
        read += len(page)
        if asked.is_over(page):
            break
        before = page[0].seq
    if asked.since is not None:
        found = [entry for entry in found if entry.time >= _aware(asked.since)]
    return HttpResponse(data=[entry.to_json() for entry in found[-asked.limit :]])


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
