"""The base of overrides that change some methods of a service and pass all others on."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Generic, TypeVar, get_args, get_origin

from tavern_host.contracts.services import ServiceInterface, implements, interface_methods

S = TypeVar("S", bound=ServiceInterface)


class ServiceOverride(Generic[S]):
    """Base of an override of the service with the interface `S`: `class Remembering(ServiceOverride[Llm])`.

    A method of the interface that the class does not have, now or in a later version of the host, passes its call on to
    `original`, the view of what is overridden. A class with a constructor of its own calls this one.
    """

    def __init__(self, original: S) -> None:
        self.original = original

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in vars(cls).get("__orig_bases__", ()):
            interface = get_args(base)[0] if get_origin(base) is ServiceOverride else None
            if isinstance(interface, type):
                for name in interface_methods(interface):
                    if not implements(cls, name):
                        setattr(cls, name, _passing_on(name, getattr(interface, name)))


def _passing_on(name: str, declared: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that calls the original's one of the same name, with the signature that was declared."""

    async def ask(self: ServiceOverride[Any], *args: Any, **kwargs: Any) -> Any:
        return await getattr(self.original, name)(*args, **kwargs)

    def stream(self: ServiceOverride[Any], *args: Any, **kwargs: Any) -> Any:
        return getattr(self.original, name)(*args, **kwargs)

    method: Any = ask if inspect.iscoroutinefunction(declared) else stream
    method.__name__, method.__doc__ = name, declared.__doc__
    method.__signature__ = inspect.signature(declared)
    return method  # type: ignore[no-any-return]
