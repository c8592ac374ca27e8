"""Calls of hooks by a plugin in a process of its own: of those that it publishes, and of a service that it provides.

The host calls the implementations, and refuses what the plugin may not call.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from tavern_host.context import HookResult
from tavern_host.contracts.errors import Forbidden
from tavern_isolation.child.way import Way
from tavern_isolation.frames import Message
from tavern_isolation.hello import ANSWER, HostState
from tavern_isolation.known import Known
from tavern_isolation.typed import Typed, answer_type, received, typed

T = TypeVar("T")


class ChildAnswer:
    """One plugin's answer to a hook; see `context.HookResult`. `settings` is the digest as it was then."""

    is_here = False

    def __init__(self, way: Way, plugin: str, code: str, settings: str, value: Any) -> None:
        self.plugin = plugin
        self.code = code
        self.settings = settings
        self.value = value
        self._way = way

    async def call(self, handler: str, *arguments: Any) -> Any:
        """Call a function that the plugin's last answer names, with JSON; its result is JSON."""
        crossing = Typed(f"{handler} of {self.plugin}", ANSWER, plugin=self.plugin)
        head = {"plugin": self.plugin, "code": self.code, "handler": handler}
        return await crossing.call(self._way.link, self._way.lent, "answer", head, {"arguments": list(arguments)})

    def open(self, handler: Any, *arguments: Any) -> Any:
        """Refuse: the object would be in another process, and nobody says how it is called."""
        raise Forbidden(f"an object of {self.plugin} cannot be opened from a process of its own; use `call`")

    def in_use(self, cancel: Callable[[], object] | None = None) -> AbstractContextManager[None]:
        """Refuse: a process that may end at any time keeps no other plugin."""
        raise Forbidden(f"{self.plugin} cannot be kept from being unloaded by a process of its own")


class ChildHooks:
    """Calls of hooks; see `context.Hooks`."""

    def __init__(self, way: Way, known: Known, state: Callable[[], HostState]) -> None:
        self._way = way
        self._known = known
        self._state = state

    @property
    def revision(self) -> int:
        """Grows whenever the set of active plugins changes."""
        return self._state().revision

    async def collect(self, hook: str, **arguments: Any) -> list[HookResult[Any]]:
        """Return all answers."""
        return self._answers(hook, "collect", await self._ask(hook, "collect", arguments))

    async def first(self, hook: str, **arguments: Any) -> HookResult[Any] | None:
        """Return the first answer that is not None."""
        found = self._answers(hook, "first", await self._ask(hook, "first", arguments))
        return found[0] if found else None

    async def filter(self, hook: str, value: T, **arguments: Any) -> T:
        """Pass a value through every implementation."""
        first, *_ = self._known.spec(hook).__tavern_hook__.arguments  # type: ignore[attr-defined]
        (data,) = await self._ask(hook, "filter", {first: value, **arguments})
        answer: T = received((data,), answer_type(self._crossing(hook).hints, "filter", first), hook, self._way.plugin)
        return answer

    async def _ask(self, hook: str, how: str, arguments: dict[str, Any]) -> Message:
        with self._way.lent.during() as lend:
            message = self._crossing(hook).message({"hook": hook, "how": how}, arguments, lend)
            answer = await self._way.link.call("call hook", *message)
        assert isinstance(answer, tuple)
        return answer

    def _answers(self, hook: str, how: str, answer: Message) -> list[HookResult[Any]]:
        kind = answer_type(self._crossing(hook).hints, how)
        return [
            ChildAnswer(self._way, plugin, code, settings, received((data,), kind, hook, plugin))
            for (plugin, code, settings), data in zip(json.loads(answer[0]), answer[1:], strict=True)
        ]

    def _crossing(self, hook: str) -> Typed:
        return typed(self._known.spec(hook), hook, self._way.plugin)

    def claim(self, owners: dict[str, str], kind: str, name: str, plugin: str) -> bool:
        """Note the owner of a name, and have the host report a plugin that comes later."""
        is_taken = name in owners
        if is_taken:
            said = {"kind": kind, "name": name, "plugin": plugin, "owner": owners[name]}
            self._way.link.notify("claim", json.dumps(said).encode())
        owners.setdefault(name, plugin)
        return not is_taken

    def implemented(self, hook: str) -> bool:
        """Return whether the hook has an implementation."""
        return hook in self._state().implemented

    def report(self, plugin: str, message: str, **details: Any) -> None:
        """Report against a plugin."""
        self._way.link.notify("report", json.dumps({"plugin": plugin, "message": message, "details": details}).encode())
