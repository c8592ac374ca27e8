"""How a service is named and described: keys, interfaces, and which methods read or act.

A service is an interface class whose methods are all `async def` (or return an `AsyncIterator`) and each
marked `@reads` or `@acts(permission)`. A plugin reaches a service only through a view made from this
description.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, TypeVar, overload

from tavern_host.contracts.contributions import Handler
from tavern_host.contracts.wire import Model

Level = Literal["add", "intercept", "override"]
"""How far a permission reaches: add something, intercept what exists, or replace it."""

ALL_SERVICES = "services.use:*"
"""The permission to call every acting method of every service."""

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound="ServiceInterface")


@dataclass(frozen=True)
class MethodInfo:
    """What marks a method of an interface: the permission it needs (None where every plugin may read), what that lets a
    plugin do, the interface version that introduced the method, and whether it acts."""

    permission: str | None
    level: Level = "add"
    since: int = 1
    allows: str = ""
    is_acting: bool = False


@overload
def reads(method: F) -> F: ...


@overload
def reads(*, since: int) -> Callable[[F], F]: ...


def reads(method: F | None = None, *, since: int = 1) -> F | Callable[[F], F]:
    """Mark an interface method that only reads; every plugin that sees the service may call it.

    Bare, or as `@reads(since=2)` with the interface version that introduced the method; see `acts`.
    """
    info = MethodInfo(permission=None, since=since)
    return (lambda function: _mark(function, info)) if method is None else _mark(method, info)


def reads_content(permission: str, allows: str, *, since: int = 1) -> Callable[[F], F]:
    """Mark an interface method that reads content of people: what they said, did or are. It needs a `services.use`
    permission of the level *intercept*, with one plain sentence of what that lets a plugin read; see `acts`."""
    return lambda method: _mark(method, MethodInfo(permission, "intercept", since, allows))


def acts(permission: str, allows: str, *, level: Level = "intercept", since: int = 1) -> Callable[[F], F]:
    """Mark an interface method that acts, with the `services.use` permission that it needs and one plain
    sentence of what that permission lets a plugin do.

    An acting method takes `call: CallContext | None = None` by keyword: who acts, and until when.
    `since` is the interface version that introduced it: an override of an older version lets it fall
    through to the next provider in the stack.
    """
    return lambda method: _mark(method, MethodInfo(permission, level, since, allows, is_acting=True))


def gives_new(method: F) -> F:
    """Mark a provider's own method whose result is new: nobody keeps it, or anything in it that can be changed.

    Then a view hands it on without copying it. What a third party's plugin says of its methods is not believed.
    """
    method.__tavern_new__ = True  # type: ignore[attr-defined]
    return method


def is_new(method: Callable[..., Any]) -> bool:
    """Return whether a method is marked with `gives_new`."""
    return getattr(method, "__tavern_new__", False) is True


def takes_shared(method: F) -> F:
    """Mark a provider's own method that changes nothing in its arguments, and copies what others' code sees of them.

    Then a view of one of the host's own plugins, which do not change what they have handed over either, passes them on
    without copying them. What a third party's plugin says of its methods is not believed.
    """
    method.__tavern_shared__ = True  # type: ignore[attr-defined]
    return method


def is_shared(method: Callable[..., Any]) -> bool:
    """Return whether a method is marked with `takes_shared`."""
    return getattr(method, "__tavern_shared__", False) is True


def marked_like(method: Callable[..., Any], other: F) -> F:
    """Return a function that calls a method, with the method's marks."""
    other.__tavern_new__, other.__tavern_shared__ = is_new(method), is_shared(method)  # type: ignore[attr-defined]
    return other


def _mark(method: F, info: MethodInfo) -> F:
    method.__tavern_method__ = info  # type: ignore[attr-defined]
    return abstractmethod(method) if info.since == 1 else method  # a class that was written before can be made


class ServiceInterface(ABC):
    """Base of every service interface. Class arguments: `name` (as plugins use it), and `version`."""

    service_name: ClassVar[str]
    service_version: ClassVar[int]

    def __init_subclass__(cls, *, name: str | None = None, version: int = 1, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if name is not None:
            cls.service_name = name
            cls.service_version = version


@dataclass(frozen=True)
class ServiceKey(Generic[S]):
    """Names a service and its interface; `context.services.get(KEY)` is typed by it."""

    interface: type[S]

    @cached_property
    def name(self) -> str:
        """The service's name, as in `services.override` of a manifest."""
        return self.interface.service_name

    @property
    def version(self) -> int:
        """The version of the interface."""
        return self.interface.service_version


class ServiceInfo(Model):
    """A provider that a plugin offers: which service, and the class in the plugin that implements it.

    `handler` is `module:Class` inside the plugin. The host makes one instance: `Class(context=…)`, for an
    override `Class(context=…, original=…)` where `original` is a view of the next provider; a constructor
    takes those of the two that it names. An `async def close(self)` is called when the plugin is unloaded.
    """

    service: str
    handler: Handler
    version: int = 1


def service_info(key: ServiceKey[Any], provider: type | str) -> ServiceInfo:
    """Return the descriptor of `provider` as a provider of `key`'s service.

    Its version is the highest one of the interface all of whose methods the class has: one that was written for an
    older host stays of the version that it was written for. A class that is only named (`module:Class`) is of the
    interface's version, and need not be imported to be offered.
    """
    if isinstance(provider, str):
        return ServiceInfo(service=key.name, handler=provider, version=key.version)
    methods = interface_methods(key.interface).items()
    first_missing = min((info.since for name, info in methods if not implements(provider, name)), default=None)
    return ServiceInfo(
        service=key.name,
        handler=provider,
        version=key.version if first_missing is None else max(1, first_missing - 1),
    )


def implements(provider: Any, method: str) -> bool:
    """Return whether a class, or an instance of one, has a method that is more than an interface's own mark of it."""
    found = getattr(provider, method, None)
    return callable(found) and not hasattr(found, "__tavern_method__")


def interface_methods(interface: type[ServiceInterface]) -> dict[str, MethodInfo]:
    """Return the public methods of an interface with their marks, in order of definition."""
    methods: dict[str, MethodInfo] = {}
    for base in reversed(interface.__mro__):
        for name, value in vars(base).items():
            info = getattr(value, "__tavern_method__", None)
            if info is not None:
                methods[name] = info
    return methods
