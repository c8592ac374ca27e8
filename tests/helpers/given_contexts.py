"""Contexts of calls as the host gives them to a plugin, by calls that go on until the test process ends."""

from __future__ import annotations

from typing import Any

from tavern_host import CallContext, Principal
from tavern_host.runtime.issued import hand_over

_going_on: list[CallContext] = []


def given(call: CallContext) -> CallContext:
    """Return the copy that a plugin is given."""
    _going_on.append(call)
    return hand_over(call)


def given_by(kind: Any, name: str) -> CallContext:
    """Return the context of a call of this principal, as a plugin is given it."""
    return given(CallContext(principal=Principal(kind=kind, id=name)))
