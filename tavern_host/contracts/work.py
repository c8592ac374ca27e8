"""Work that was begun and has not ended: whose it is, and how it is settled when its person is gone."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.wire import Model

Kind = Literal["user", "agent", "tool", "plugin"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class WorkFilter(Model):
    """Which work is chosen: what a user began, what an agent does, the calls of a tool, or what needs a plugin. Without
    a `name` everybody's; with `unless_admitted` only what its user may not do any more."""

    kind: Kind
    name: str = ""
    unless_admitted: bool = False

    def covers(self, call: CallContext, *, tool: str = "", plugin: str | None = None) -> bool:
        """Return whether work is chosen that was begun with `call`, calls this `tool`, or is of this `plugin`."""
        who = call.principal
        if self.kind == "user":
            users = {call.admission.user if call.admission is not None else None, who.id if who.kind == "user" else ""}
            return not self.name or self.name in users
        if self.kind == "tool":
            return self.name == tool
        return (who.kind == self.kind and who.id == self.name) or (
            self.kind == "plugin" and self.name in (plugin, call.via)
        )


class SettledWork(Model):
    """How much work of one kind was settled: `cancelled` before it began, `stopped` in the middle of it."""

    kind: str
    cancelled: int = 0
    stopped: int = 0


class Settled(Model):
    """What else a decision about somebody ended."""

    settled: list[SettledWork] = Field(default_factory=list)


def settled_text(settled: list[SettledWork]) -> str:
    """Return a sentence about what was settled; none where nothing was."""
    cancelled = [f"{one.cancelled} {one.kind} cancelled" for one in settled if one.cancelled]
    stopped = [f"{one.stopped} {one.kind} stopped" for one in settled if one.stopped]
    said = ", ".join([*cancelled, *stopped])
    return f"Work that was settled: {said}." if said else ""
