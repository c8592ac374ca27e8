"""Views: what a plugin gets of a service. Generated from the interface, and revoked at once.

A view has one function per method of the interface and nothing else; each is a closure over the target, and revoking
or replacing the provider rebinds that closure, so that a call costs no look-up, and a method object that a plugin kept
stops as well. Mutable values are copied on their way in and out (`docs/security.md` says what this does not protect).
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from functools import partial
from typing import Any, NoReturn

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import InvalidInput, PluginFailure, TavernError
from tavern_host.contracts.services import ServiceInterface, interface_methods, is_new, is_shared
from tavern_host.contracts.wire import is_deeply_immutable
from tavern_host.runtime.copying import Unfinished, as_it_is, copier

Complete = Callable[[CallContext | None], CallContext]
"""Fills in who calls where the caller did not say, and checks that the caller may."""

Copier = Callable[[Any], Any]
"""Copies an argument or a result; a view has None in its place for what need not be copied."""

Make = Callable[[Callable[..., Any], Complete], Callable[..., Any]]
"""Makes a view's function for one method, from its target and from what completes the call."""

_MAKERS = "__tavern_view__"
"""The attribute in which an interface keeps its methods' `Make`s, so that they are freed with it."""


def _refuse_change(view: Any, *change: object) -> NoReturn:
    raise AttributeError(f"{getattr(view, '__name__', type(view).__name__)} cannot be changed")


class _ViewType(type):
    """The type of all view types. Nothing can be set on those."""

    __setattr__ = __delattr__ = _refuse_change


class View(metaclass=_ViewType):
    """Base of all views: no attribute can be set, and nothing but the interface's methods can be read."""

    __slots__ = ()

    __setattr__ = __delattr__ = _refuse_change

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} cannot be copied or pickled")


class ViewHandle:
    """The host's side of one view: rebinds its methods to another provider, or to refusals.

    `complete(name, info, call)` gives the context of a call of an acting method, or raises. `is_first_party`: it is a
    view of one of the host's own plugins.
    """

    def __init__(
        self,
        interface: type[ServiceInterface],
        complete: Callable[..., CallContext],
        *,
        is_first_party: bool = False,
    ) -> None:
        self.interface = interface
        self._is_first_party = is_first_party
        self._targets: dict[str, types.CellType] = {}
        self._completes: dict[str, tuple[types.CellType, Complete]] = {}
        self._copies: dict[str, tuple[types.CellType, Copier]] = {}
        self._taken: dict[str, list[tuple[types.CellType, Copier]]] = {}
        methods: dict[str, Any] = {"__slots__": (), "__doc__": interface.__doc__}
        makers = _makers(interface)
        for name, info in interface_methods(interface).items():
            function = makers[name](_unbound, as_it_is)
            function.__name__ = name
            function.__qualname__ = f"{interface.__name__}View.{name}"
            function.__doc__ = getattr(interface, name).__doc__
            self._targets[name] = _cell(function, "_target")
            taken = [_cell(function, one) for one in function.__code__.co_freevars if one.startswith("_copy_")]
            self._taken[name] = [(cell, cell.cell_contents) for cell in taken]
            if "_copied" in function.__code__.co_freevars:
                copies = _cell(function, "_copied")
                self._copies[name] = copies, copies.cell_contents
            if info.is_acting:
                self._completes[name] = _cell(function, "_complete"), partial(complete, name, info)
            methods[name] = staticmethod(function)
        self.view: Any = _ViewType(f"{interface.__name__}View", (View,), methods)()

    def bind(self, targets: dict[str, Callable[..., Any]]) -> None:
        """Let each method call its target from now on."""
        for name, cell in self._targets.items():
            cell.cell_contents = targets[name]
        for name, (copies, copied) in self._copies.items():
            copies.cell_contents = None if is_new(targets[name]) else copied
        for name, taken in self._taken.items():
            is_passed_on = self._is_first_party and is_shared(targets[name])
            for cell, copied in taken:
                cell.cell_contents = None if is_passed_on else copied
        for completes, complete in self._completes.values():
            completes.cell_contents = complete

    def refuse(self, error: Callable[[str], TavernError], *, only: frozenset[str] | None = None) -> None:
        """Let each method (of `only`, where given) raise `error(name)` from now on, a fresh one per call."""
        for name, cell in self._targets.items():
            if only is None or name in only:
                cell.cell_contents = _refusal(error, name)
                if name in self._completes:  # the refusal comes first, whatever the call context says
                    self._completes[name][0].cell_contents = as_it_is


def _makers(interface: type[ServiceInterface]) -> dict[str, Make]:
    """Return the makers of the methods of an interface's views, by name, prepared once per interface."""
    makers: dict[str, Make] | None = vars(interface).get(_MAKERS)
    if makers is None:
        makers = {name: _maker(interface, name) for name in interface_methods(interface)}
        setattr(interface, _MAKERS, makers)
    return makers


def _maker(interface: type[ServiceInterface], name: str) -> Make:
    """Write a view's function for one method, with the method's own signature.

    A reading method with an immutable result is called without an `await` of the view's own; any other looks up its
    target when it is awaited, so that a coroutine which was made before its plugin lost the permission is refused.
    Names of our own begin with `_`, which no parameter of an interface does. All that the function uses is in its
    closure: its globals are empty.
    """
    declared, where = getattr(interface, name), f"{interface.service_name}.{name}"
    is_acting = interface_methods(interface)[name].permission is not None
    hints = typing.get_type_hints(declared)
    result = hints.get("return")
    is_stream = typing.get_origin(result) is AsyncIterator
    copied = None if is_stream else _result_copier(where, result)
    is_awaited = not is_stream and (is_acting or copied is not None)
    taken, passed, held = _parameters(declared, hints, where, is_acting=is_acting, is_awaited=is_awaited)
    held["_Unfinished"] = Unfinished
    call = f"_target({passed})"
    kind, answer = "def", call
    if is_stream:
        held["_stream"] = _stream_of(_result_copier(where, typing.get_args(result)[0], whole=True))
        answer = f"_stream(lambda: {call})"
    elif copied is not None:
        held["_copied"] = copied
        kind, answer = "async def", f"await {call} if _copied is None else {_awaited(f'_copied(await {call})')}"
    elif is_acting:
        kind, answer = "async def", f"await {call}"
    namespace: dict[str, Any] = {}
    exec(
        f"def _make(_target, _complete, {', '.join(held)}):\n"
        f"    {kind} _method({taken}):\n"
        f"        return {answer}\n"
        f"    return _method\n",
        namespace,
    )
    make = namespace.pop("_make")
    return lambda target, complete: make(target, complete, **held)


def _parameters(
    declared: Callable[..., Any], hints: dict[str, Any], where: str, *, is_acting: bool, is_awaited: bool
) -> tuple[str, str, dict[str, Any]]:
    """Return a method's parameters as its view's function takes them, as it passes them on, and what both need.

    Defaults are named, since not every value can be written out.
    """
    taken, passed, starred = [], [], False
    held: dict[str, Any] = {}
    for name, parameter in list(inspect.signature(declared).parameters.items())[1:]:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            taken.append("*")
            starred = True
        default = ""
        if parameter.default is not parameter.empty:
            held[f"_default_{name}"] = parameter.default
            default = f"=_default_{name}"
        taken.append(f"{name}{default}")
        value = name
        if is_acting and name == "call":
            value = "_complete(call)"
        elif not is_deeply_immutable(hint := hints.get(name, Any)):
            is_stream = typing.get_origin(hint) is AsyncIterator
            is_whole = is_stream or not is_awaited
            copied = copier(InvalidInput, f"{where}: the argument {name}", whole=is_whole)
            held[f"_copy_{name}"] = _stream_taker(where, name, copied) if is_stream else copied
            value = f"_copy_{name}({name})" if is_whole else _awaited(f"_copy_{name}({name})")
            is_kept = f"_copy_{name} is None" + (f" or {name} is None" if parameter.default is None else "")
            value = f"{name} if {is_kept} else {value}"
        passed.append(f"{name}={value}" if starred else value)
    return ", ".join(taken), ", ".join(passed), held


def _unbound(*args: Any, **kwargs: Any) -> Any:
    raise AssertionError("a view is bound before a plugin gets it")


def _cell(function: Callable[..., Any], name: str) -> types.CellType:
    cells = function.__closure__ or ()
    return cells[function.__code__.co_freevars.index(name)]


def _refusal(error: Callable[[str], TavernError], name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise error(name)

    return refuse


# --- copies -------------------------------------------------------------------------------------------


def _awaited(copy: str) -> str:
    """Return the expression of a copy that may be `Unfinished`."""
    return f"(_c if type(_c := {copy}) is not _Unfinished else await _c.whole())"


def _stream_taker(where: str, name: str, copied: Copier) -> Copier:
    """Return the function that makes a stream of copies of a caller's stream; an item is copied when it is read."""
    copies = _stream_of(copied)

    def taken(value: Any) -> AsyncIterator[Any]:
        if not isinstance(value, AsyncIterator):
            raise InvalidInput(f"{where}: the argument {name} must be an async iterator, found {type(value).__name__}")
        return copies(lambda: value)

    return taken


def _result_copier(where: str, annotation: Any, *, whole: bool = False) -> Copier | None:
    """Return the function that copies a result, or each item of a stream; None for immutable ones."""
    return None if is_deeply_immutable(annotation) else copier(PluginFailure, f"{where} returned what", whole=whole)


def _stream_of(copied: Copier | None) -> Callable[[Callable[[], AsyncIterator[Any]]], AsyncIterator[Any]]:
    """Return the function that starts a stream when its first item is requested, and yields its items."""

    async def stream(begin: Callable[[], AsyncIterator[Any]]) -> AsyncIterator[Any]:
        items = begin()
        try:
            async for item in items:
                yield item if copied is None else copied(item)
        finally:
            if isinstance(items, AsyncGenerator):  # the reader may leave before the end
                await items.aclose()

    return stream
