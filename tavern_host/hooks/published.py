"""The rules that every hook and service interface keeps, the host's own and those that plugins publish.

What a plugin publishes is compared with its manifest, too, before any of it is offered.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import TavernError, describe
from tavern_host.contracts.hooks import HookInfo, Veto
from tavern_host.contracts.manifest import Manifest, PublishedHook, PublishedService
from tavern_host.contracts.plugins import Problem
from tavern_host.contracts.services import ServiceInterface, interface_methods
from tavern_host.contracts.wire import wire_problem
from tavern_host.hooks.catalogue import Published

Resolve = Callable[[str], Any]
"""Returns what `module:name` inside the plugin's package names. Raises a `TavernError`."""


def read_published(manifest: Manifest, resolve: Resolve) -> tuple[Published, list[Problem]]:
    """Return the declarations that a plugin publishes, and each difference of its code from manifest or rules."""
    published = Published()
    problems: list[Problem] = []

    def sound(what: str, name: str, faults: Callable[[Any], Iterator[str]]) -> Any:
        """Return the object of a name, or None where it has faults."""
        try:
            found = resolve(name)
            messages = list(faults(found))
        except TavernError as error:
            messages = [error.message]
        problems.extend(Problem(message=f"the published {what}: {message}") for message in messages)
        return None if messages else found

    for service in manifest.publishes.services:
        interface = sound(f"service {service.name}", service.interface, partial(_service_faults, service))
        if interface is not None:
            published.interfaces[service.name] = interface
    callers = {service.name for service in manifest.publishes.services if not service.is_prefixed}
    for hook in manifest.publishes.hooks:
        function = sound(f"hook {hook.spec.partition(':')[2]}", hook.spec, partial(_spec_faults, hook, callers))
        if function is not None:
            published.hooks[function.__name__] = function
    return published, problems


def _service_faults(declared: PublishedService, interface: Any) -> Iterator[str]:
    if not (isinstance(interface, type) and issubclass(interface, ServiceInterface)):
        yield f"{declared.interface} is not a ServiceInterface"
        return
    if (name := getattr(interface, "service_name", None)) != declared.name:
        yield f"the interface is named {name!r}"
    yield from interface_faults(interface)
    methods = interface_methods(interface).values()
    in_code = {(info.permission, info.level, info.allows) for info in methods if info.permission is not None}
    in_manifest = {(p.name, p.level, p.allows) for p in declared.permissions}
    for name in sorted({name for name, _, _ in in_code ^ in_manifest}):
        yield f"the permission {name} is not the same in code and manifest (level and sentence must be)"


def _spec_faults(declared: PublishedHook, callers: set[str], function: Any) -> Iterator[str]:
    info = getattr(function, "__tavern_hook__", None)
    if not isinstance(info, HookInfo):
        yield f"{declared.spec} is not marked with @hookspec"
        return
    yield from hook_faults(function)
    if (info.permission, info.level, info.description) != (declared.permission, declared.level, declared.allows):
        yield "permission, level and sentence are not the same in code and manifest"
    if info.caller and info.caller not in callers:
        yield "a published hook is called by its own plugin; leave `caller` out"


def interface_faults(interface: type[ServiceInterface]) -> Iterator[str]:
    """Yield every way in which an interface breaks the rules of the contracts."""
    methods = interface_methods(interface)
    public = {name for base in interface.__mro__[:-1] for name in vars(base) if not name.startswith("_")}
    for name in sorted(public - set(methods) - {"service_name", "service_version", "register"}):
        yield f"{name} is not marked with @reads or @acts"
    for name, info in methods.items():
        yield from (f"{name}: {fault}" for fault in _method_faults(getattr(interface, name), info.is_acting))
        if not 1 <= info.since <= interface.service_version:
            yield f"{name}: since={info.since} is not a version of the interface ({interface.service_version})"


def _method_faults(method: Callable[..., Any], is_acting: bool) -> Iterator[str]:
    hints, fault = _hints(method)
    if fault is not None:
        yield fault
        return
    parameters = dict(list(inspect.signature(method).parameters.items())[1:])
    yield from _annotation_faults(hints, {*parameters, "return"})
    streams = typing.get_origin(hints.get("return")) is AsyncIterator
    if inspect.iscoroutinefunction(method) is streams:
        yield "it must be `async def`, or a `def` that returns an AsyncIterator"
    call = parameters.get("call")
    if not is_acting and call is not None:
        yield "a method that reads does not take `call`"
    if is_acting and (
        call is None
        or call.kind is not call.KEYWORD_ONLY
        or call.default is not None
        or hints.get("call") != CallContext | None
    ):
        yield "a method that acts takes `*, call: CallContext | None = None`"
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters.values()):
        yield "*args and **kwargs cannot cross a plugin boundary"


def hook_faults(function: Callable[..., Any]) -> Iterator[str]:
    """Yield every way in which a hookspec breaks the rules of the contracts."""
    hints, fault = _hints(function)
    if fault is not None:
        yield fault
        return
    info: HookInfo = function.__tavern_hook__  # type: ignore[attr-defined]
    if hints.pop("context", None) is not PluginContext:
        yield "it must take `context: PluginContext`"
    yield from _annotation_faults(hints, {*info.arguments, "return"})
    if info.policy in ("filter", "veto"):
        wanted = {hints.get(info.arguments[0]), Veto, type(None)} if info.arguments else set()
        if not wanted or set(typing.get_args(hints.get("return"))) != wanted:
            yield "a filter returns what its first argument is, Veto or None"


def _hints(function: Callable[..., Any]) -> tuple[dict[str, Any], str | None]:
    try:
        return typing.get_type_hints(function, include_extras=True), None
    except Exception as error:  # a name that is not there, or whatever an annotation does when it is evaluated
        return {}, f"its annotations cannot be read: {describe(error)}"


def _annotation_faults(hints: dict[str, Any], names: set[str]) -> Iterator[str]:
    for name in sorted(names):
        if name not in hints:
            yield f"{name} has no annotation"
        elif problem := wire_problem(hints[name]):
            yield f"{name}: {problem}"
