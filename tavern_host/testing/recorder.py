"""Remembers the calls and events that a host reported, so that a test can look at them afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from tavern_host.contracts.errors import ErrorInfo
    from tavern_host.contracts.events import Event
    from tavern_host.runtime.boundary import Called

Kind = Literal["hook", "service", "handler", "event"]


@dataclass
class RecordedCall:
    """One call or event.

    `plugin` is whose hook implementation, service or handler (of a route, a command) it is, or who published the
    event. `name` is the hook's name, `service.method`, `module:function`, or the event's type. `arguments` are copies
    (an event's are its payload). `result` and `error` are what came of it; while `is_over` is False nothing did yet.
    """

    kind: Kind
    plugin: str | None
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    result: Any = None
    error: ErrorInfo | None = None
    is_over: bool = False

    def __str__(self) -> str:
        outcome = f"-> {type(self.result).__name__}" if self.error is None else f"raised {self.error.code}"
        return f"{self.kind} {self.name} of {self.plugin} {outcome if self.is_over else '…'}"


class CallRecorder:
    """All calls of hooks, services and handlers, and all events, of the hosts that it observes, in the order in which
    they began.

    A hook call is one implementation's: a hook that two plugins implement gives two.
    """

    items: int | None = None
    """How many items of a stream are remembered: all."""

    def __init__(self) -> None:
        self._calls: list[RecordedCall] = []

    def calls(
        self, name: str | None = None, *, plugin: str | None = None, kind: Kind | None = None
    ) -> list[RecordedCall]:
        """Return the calls with this name, of this plugin, of this kind; all, where nothing is asked for."""
        return [
            call
            for call in self._calls
            if name in (None, call.name) and plugin in (None, call.plugin) and kind in (None, call.kind)
        ]

    def getcall(self, name: str, *, plugin: str | None = None) -> RecordedCall:
        """Return the only call with this name. Raises `AssertionError` where there is none or there are several."""
        found = self.calls(name, plugin=plugin)
        if len(found) != 1:
            raise AssertionError(f"there are {len(found)} calls of {name!r}, not one, in:\n{self._listed()}")
        return found[0]

    def popcall(self, name: str, *, plugin: str | None = None) -> RecordedCall:
        """Return the first call with this name and forget it. Raises `AssertionError` where there is none."""
        found = self.calls(name, plugin=plugin)
        if not found:
            raise AssertionError(f"there is no call of {name!r} in:\n{self._listed()}")
        self._calls = [call for call in self._calls if call is not found[0]]
        return found[0]

    def clear(self) -> None:
        """Forget everything so far; in-flight calls are forgotten too."""
        self._calls = []

    def _listed(self) -> str:
        return "\n".join(f"  {call}" for call in self._calls) or "  (nothing was called)"

    # --- what the host tells (`boundary.Observer`) ------------------------------------------------------

    def called(self, kind: Called, plugin: str, name: str, caller: str, arguments: dict[str, Any]) -> Any:
        """Remember a call that begins; return the callback for how it ended."""
        call = RecordedCall(kind, plugin, name, _copied(arguments))
        self._calls.append(call)

        def done(result: Any, error: BaseException | None) -> None:
            call.result = _copied(result)
            call.error = None if error is None else _as_info(error, plugin)
            call.is_over = True

        return done

    def published(self, event: Event) -> None:
        """Remember an event."""
        self._calls.append(RecordedCall("event", event.plugin, event.type, _copied(event.payload), is_over=True))


def _copied(value: Any) -> Any:
    """Return a copy that shows the value as it was, however it is changed later; what cannot be copied, itself."""
    from tavern_host.runtime.copying import duplicate

    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    try:
        return duplicate(value)
    except Exception:  # an object of a plugin's own may do anything while it is copied
        return value


def _as_info(error: BaseException, plugin: str) -> ErrorInfo:
    from tavern_host.contracts.errors import error_info

    return error_info(error, plugin=plugin)
