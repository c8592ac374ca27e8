"""What a hook may answer besides a value, and how a hook is described."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from tavern_host.contracts.services import Level
from tavern_host.contracts.wire import Model

Policy = Literal["collect", "first", "filter", "veto"]
"""collect: all answers; first: the first that is not None; filter: each gets what the one before
returned; veto: a filter in which a `Veto` answer, or an error, denies."""

F = TypeVar("F", bound=Callable[..., Any])


class Veto(Model):
    """Returned by a hookimpl of a veto hook to deny what is about to happen, with the reason people see."""

    reason: str


@dataclass(frozen=True)
class HookInfo:
    """A hook: its arguments (without `context`), the permission that an implementation needs, and who calls it.

    `caller` is the service whose provider may call the hook, `host`, or `plugin:NAME` for one that a plugin
    publishes. `field` is the manifest key that
    declares the hook as well as the permission does (`nodes`, `tools` …).
    """

    name: str
    arguments: tuple[str, ...]
    permission: str
    level: Level
    policy: Policy
    caller: str
    description: str
    example: str
    field: str | None = None


def hookspec(
    *,
    permission: str,
    level: Level,
    policy: Policy,
    caller: str = "",
    description: str,
    example: str = "",
    field: str | None = None,
) -> Callable[[F], F]:
    """Mark a function as a hook; see `HookInfo` for the arguments.

    A plugin that publishes a hook gives no `caller`: it calls the hook itself.
    """

    def mark(function: F) -> F:
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        function.tavern_spec = {  # type: ignore[attr-defined]  # pluggy reads its options here
            "firstresult": False,
            "historic": False,
            "warn_on_impl": None,
            "warn_on_impl_args": None,
        }
        function.__tavern_hook__ = HookInfo(  # type: ignore[attr-defined]
            name=function.__name__,
            arguments=tuple(n for n in names if n != "context"),
            permission=permission,
            level=level,
            policy=policy,
            caller=caller,
            description=description,
            example=example,
            field=field,
        )
        return function

    return mark
