"""`GET /api/audit`: the newest entries of the audit log."""

from __future__ import annotations

from fnmatch import fnmatchcase

from pydantic import Field

from tavern_host import HttpRequest, HttpResponse, PluginContext
from tavern_host.contracts.audit import AUDIT
from tavern_host.contracts.wire import Model

MOST = 1000
"""Among how many of the newest entries those that are asked for are looked up."""


class AuditQuery(Model):
    """Which of the newest 1,000 entries, and how many of those. `actor`, `action`, `subject` and `plugin` are patterns,
    in which `*` is any text; all that is given must hold."""

    limit: int = Field(default=50, ge=1, le=MOST)
    actor: str = "*"
    action: str = "*"
    subject: str = "*"
    plugin: str = "*"


async def show(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with entries, oldest first."""
    asked = request.read_query(AuditQuery)
    wanted = asked.model_dump(exclude={"limit"})
    entries = await context.services.get(AUDIT).tail(MOST, call=request.call)
    found = [
        entry.to_json()
        for entry in entries
        if all(fnmatchcase(getattr(entry, name) or "", pattern) for name, pattern in wanted.items())
    ]
    return HttpResponse(data=found[-asked.limit :])
