"""Views: what a plugin gets of a service. Made from the interface, checked when made, revoked at once.

A view has one function per method of the interface and nothing else; each is a closure over the target,
and revoking or replacing the provider rebinds that closure, so that a call costs no look-up and methods
that were taken out of the view stop as well (`docs/security.md` says what this does not hold).
"""

from __future__ import annotations

import copy
import inspect
import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn

from pydantic import BaseModel

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.services import MethodInfo, ServiceInterface, interface_methods
from tavern_host.contracts.wire import is_deeply_immutable

Complete = Callable[[CallContext | None], CallContext]
"""Fills in who calls where the caller did not say, and checks that the caller may."""


class View:
    """Base of all views: no attribute can be set, and nothing but the interface's methods can be read."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} cannot be changed")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} cannot be changed")

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} cannot be copied or pickled")


class ViewHandle:
    """The host's side of one view: rebinds its methods to another provider, or to refusals."""

    def __init__(self, interface: type[ServiceInterface], complete: Callable[[str, MethodInfo], Complete]) -> None:
        self._cells: dict[str, types.CellType] = {}
        methods: dict[str, Any] = {"__slots__": (), "__doc__": interface.__doc__}
        for name, info in interface_methods(interface).items():
            function = _make(interface, name, None if info.permission is None else complete(name, info))
            self._cells[name] = _target_cell(function)
            methods[name] = staticmethod(function)
        self.view: Any = type(f"{interface.__name__}View", (View,), methods)()

    def bind(self, targets: dict[str, Callable[..., Any]]) -> None:
        """Let each method call its target from now on."""
        for name, cell in self._cells.items():
            cell.cell_contents = targets[name]

    def refuse(self, error: Callable[[str], TavernError], *, only: frozenset[str] | None = None) -> None:
        """Let each method (of `only`, where given) raise `error(name)` from now on, a fresh one per call."""
        for name, cell in self._cells.items():
            if only is None or name in only:
                cell.cell_contents = _refusal(error, name)


def _make(interface: type[ServiceInterface], name: str, complete: Complete | None) -> Callable[..., Any]:
    """Return a view's function for one method, with the method's own signature written out.

    A result that cannot be changed is handed through without an `await` of the view's own; what could be
    changed is awaited and copied.
    """
    declared = getattr(interface, name)
    copied = _duplicator(interface, name) if inspect.iscoroutinefunction(declared) else None
    namespace: dict[str, Any] = {"_complete": complete, "_copied": copied}
    exec(_source(interface, name, copied is not None, complete is not None, namespace), namespace)
    function: Callable[..., Any] = namespace["_make"](_unbound)
    function.__name__ = name
    function.__qualname__ = f"{interface.__name__}View.{name}"
    function.__doc__ = declared.__doc__
    return function


def _source(
    interface: type[ServiceInterface], name: str, is_copied: bool, is_acting: bool, namespace: dict[str, Any]
) -> str:
    """Write the function; defaults go into `namespace` by name, since not every value can be written out.

    Names of our own begin with `_`, which no parameter of an interface does.
    """
    declared, passed, starred = [], [], False
    for parameter in list(inspect.signature(getattr(interface, name)).parameters.values())[1:]:
        keyword_only = parameter.kind is parameter.KEYWORD_ONLY
        if keyword_only and not starred:
            declared.append("*")
            starred = True
        default = ""
        if parameter.default is not parameter.empty:
            namespace[f"_default_{parameter.name}"] = parameter.default
            default = f"=_default_{parameter.name}"
        declared.append(f"{parameter.name}{default}")
        value = f"_complete({parameter.name})" if is_acting and parameter.name == "call" else parameter.name
        passed.append(f"{parameter.name}={value}" if keyword_only else value)
    call = f"_target({', '.join(passed)})"
    kind, result = ("async def", f"_copied(await {call})") if is_copied else ("def", call)
    signature = f"{kind} _method({', '.join(declared)}):"
    return f"def _make(_target):\n    {signature}\n        return {result}\n    return _method\n"


def _unbound(*args: Any, **kwargs: Any) -> Any:
    raise AssertionError("a view is bound before it is handed out")


def _target_cell(function: Callable[..., Any]) -> types.CellType:
    cells = function.__closure__ or ()
    return cells[function.__code__.co_freevars.index("_target")]


def _refusal(error: Callable[[str], TavernError], name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise error(name)

    return refuse


@cache
def _duplicator(interface: type[ServiceInterface], name: str) -> Callable[[Any], Any] | None:
    """Return how a result is copied before it is handed out, or None where it cannot be changed anyway."""
    result = typing.get_type_hints(getattr(interface, name)).get("return")
    if is_deeply_immutable(result):
        return None
    if typing.get_origin(result) is list and is_deeply_immutable(typing.get_args(result)[0]):
        return list
    return duplicate


def duplicate(value: Any) -> Any:
    """Return a deep copy of a wire value."""
    return value.model_copy(deep=True) if isinstance(value, BaseModel) else copy.deepcopy(value)
