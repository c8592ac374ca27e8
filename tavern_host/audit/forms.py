"""What the providers of the host's services record: entries in the name of whoever calls them, at little cost.

An entry whose details are few, short and flat is made of pieces that were prepared; any other goes the way that
`auditdetails.py` describes. What comes out is the same, but for a number that is not finite.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from pydantic import JsonValue
from pydantic_core import PydanticSerializationError, to_json

from tavern_host.audit.details import MAX_TEXT, encoded, encoded_details, is_harmless
from tavern_host.audit.log import HOST_ACTIONS, AuditLog, check_action
from tavern_host.contracts.calls import CallContext, Principal, system_call
from tavern_host.contracts.errors import Forbidden
from tavern_host.runtime.in_flight import InFlight

_ACTORS = 256
"""Of how many principals a form remembers what an entry begins with."""


class PluginAudit:
    """The audit log for one plugin; see `context.Audit`. `is_provider` says whether it may record now."""

    def __init__(self, log: AuditLog, in_flight: InFlight, is_provider: Callable[[], bool]) -> None:
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
        """Record what the call's principal did."""
        self._check(action)
        actor = (call or system_call()).principal
        return self._log.record(
            action, actor=actor, subject=subject, details=details, secrets=frozenset(secrets), foreign=True
        )

    def form(
        self, action: str, *, subject: str = "", names: Collection[str] = (), secrets: Collection[str] = ()
    ) -> AuditForm:
        """Prepare entries of one action."""
        self._check(action)
        return AuditForm(self._log, action, subject, names, secrets)

    @property
    def is_crowded(self) -> bool:
        """Whether much waits to be written."""
        return self._log.is_crowded

    async def written(self, number: int | None = None) -> None:
        """Wait until an entry is on disk, or all that were recorded until now."""
        await self._log.written(number)

    def _check(self, action: str) -> None:
        self._in_flight.check(while_closing=True)
        check_action(action)
        first = action.partition(".")[0]
        if first in HOST_ACTIONS:
            raise Forbidden(f"{self._in_flight.plugin} may not record {action}: only the host itself does")
        if not self._is_provider():
            raise Forbidden(
                f"{self._in_flight.plugin} provides none of the host's services: it records through the service audit"
            )


class AuditForm:
    """Entries of one action about one subject; see `context.AuditForm`."""

    def __init__(
        self, log: AuditLog, action: str, subject: str, names: Collection[str], secrets: Collection[str]
    ) -> None:
        self._log = log
        self._action = action
        self._subject = subject
        self._secrets = frozenset(secrets)
        self._plain = frozenset(name for name in names if name not in self._secrets and is_harmless(name))
        self._heads: dict[tuple[str, str], bytes] = {}
        self._principal: Principal | None = None
        self._head = b""

    def record(self, principal: Principal, arguments: Mapping[str, JsonValue], /, **facts: JsonValue) -> int:
        """Record an entry."""
        facts["arguments"] = arguments  # type: ignore[assignment]  # of any kind, so that nothing keeps a call from the log
        head = self._head if principal is self._principal else self._head_of(principal)
        if type(arguments) is dict and self._plain.issuperset(arguments):
            try:
                details = to_json(facts, inf_nan_mode="strings")
            except PydanticSerializationError:  # half a surrogate pair, or no JSON
                pass
            else:
                if len(details) <= MAX_TEXT and details.count(b"{") == 2:
                    return self._log.add(b"%b%b}" % (head, details), foreign=True)
        return self._log.add(head + encoded_details(facts, self._secrets) + b"}", foreign=True)

    def _head_of(self, principal: Principal) -> bytes:
        """Return what the entries of a principal begin with, up to the details; remembered."""
        head = self._heads.get((principal.kind, principal.id))
        if head is None:
            fields = {"actor": str(principal), "action": self._action, "subject": self._subject}
            head = encoded(fields, None)[1:].removesuffix(b"{}}")
            if len(self._heads) >= _ACTORS:
                self._heads.clear()
            self._heads[principal.kind, principal.id] = head
        if type(principal) is Principal:  # whose fields stay what they are
            self._principal, self._head = principal, head
        return head
