"""Contexts of calls as the host issues them to a plugin, by calls that last until the test process ends."""

from __future__ import annotations

from typing import Any

from tavern_host import CallContext, Principal
from tavern_host.runtime.issued import hand_over

_in_flight: list[CallContext] = []


def issued(call: CallContext) -> CallContext:
    """Return the copy that the host issues to a plugin."""
    _in_flight.append(call)
    return hand_over(call)


def issued_by(kind: Any, name: str) -> CallContext:
    """Return the context of a call of this principal, as the host issues it to a plugin."""
    return issued(CallContext(principal=Principal(kind=kind, id=name)))
