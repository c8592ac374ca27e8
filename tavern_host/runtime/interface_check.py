"""Checks that a class satisfies the interface of the service that it provides, before anything of it is called."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from tavern_host.contracts.plugins import Problem
from tavern_host.contracts.services import MethodInfo, ServiceInterface, implements, interface_methods

Parameters = Mapping[str, inspect.Parameter]


def interface_problems(interface: type[ServiceInterface], provider: type, version: int) -> list[Problem]:
    """Return how a class fails to satisfy a service's interface: methods missing, of another shape, not async."""
    problems = []
    service = interface.service_name
    for name, info in interface_methods(interface).items():
        if info.since > version:
            continue
        declared, given = getattr(interface, name), getattr(provider, name, None)
        where = f"{provider.__qualname__}.{name}"
        if not implements(provider, name):
            problems.append(Problem(message=f"{provider.__qualname__} lacks the method {name} of {service}"))
        elif inspect.iscoroutinefunction(declared) != inspect.iscoroutinefunction(given):
            wanted = "async def" if inspect.iscoroutinefunction(declared) else "def that returns an async iterator"
            problems.append(Problem(message=f"{where} must be an {wanted}"))
        else:
            musts = _parameter_problems(_parameters(interface, name), _parameters(provider, name))
            problems += [Problem(message=f"{where} must {must}") for must in musts]
    return problems


def _parameters(owner: type, method: str) -> Parameters:
    """Return the parameters with which a method is called on an instance."""
    signature = inspect.signature(getattr(owner, method))
    is_bound = isinstance(inspect.getattr_static(owner, method), staticmethod | classmethod)
    return dict(list(signature.parameters.items())[0 if is_bound else 1 :])


def _parameter_problems(wanted: Parameters, offered: Parameters) -> list[str]:
    """Return the changes that a method needs to take every call that the interface's method takes."""
    kinds = {p.kind for p in offered.values()}
    problems = []
    missing = [name for name in wanted if name not in offered]
    if missing and inspect.Parameter.VAR_KEYWORD not in kinds:
        problems.append(f"take the parameters {', '.join(missing)}")
    optional = {name for name in offered if name not in wanted or wanted[name].default is not inspect.Parameter.empty}
    starred = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [n for n, p in offered.items() if n in optional and p.default is p.empty and p.kind not in starred]
    if needed:
        problems.append(f"do without the parameters {', '.join(needed)}, which a caller may leave out")
    in_order, offered_order = _by_position(wanted), _by_position(offered)
    if not problems and inspect.Parameter.VAR_POSITIONAL not in kinds and offered_order[: len(in_order)] != in_order:
        problems.append(f"take the parameters {', '.join(in_order)} in this order, by position and by name")
    return problems


def _by_position(parameters: Parameters) -> list[str]:
    return [name for name, p in parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]


def same_shape(interface: type[ServiceInterface], other: type[ServiceInterface]) -> bool:
    """Return whether a view of one interface can be bound to what implements the other, whichever was loaded first."""
    return interface is other or _shape(interface) == _shape(other)


def _shape(interface: type[ServiceInterface]) -> dict[str, tuple[MethodInfo, bool, str]]:
    package = ".".join(interface.__module__.split(".")[:2])  # a reloaded folder plugin has another package name
    return {
        name: (
            info,
            inspect.iscoroutinefunction(getattr(interface, name)),
            str(inspect.signature(getattr(interface, name))).replace(f"{package}.", ""),
        )
        for name, info in interface_methods(interface).items()
    }
