"""The kernel's own costs: a call through a view, a hook call, and starting up."""

from __future__ import annotations

import asyncio
import time
import types
from collections.abc import Callable
from typing import Any

import pluggy

import tavern_host
from benchmarks.harness import Result, compare, compare_awaited, compare_to_sync
from benchmarks.startup import ready, version
from tavern_host import hookspecs
from tavern_host.context import PluginContext
from tavern_host.contracts.errors import PermissionDenied
from tavern_host.contracts.plugins import HookImplInfo
from tavern_host.contracts.services import ServiceInterface, reads
from tavern_host.hooks.catalogue import Catalogue, Published
from tavern_host.hooks.dispatch import Dispatcher, Implementation
from tavern_host.runtime.boundary import Boundary
from tavern_host.runtime.in_flight import InFlight
from tavern_host.services.calls import Provider
from tavern_host.services.registry import ServiceRegistry

HOOK = "tavern_before_execute"


class _Echo(ServiceInterface, name="benchmarkEcho"):
    @reads
    async def echo(self, text: str) -> str:
        """Return the text."""
        raise NotImplementedError


class _Provider(_Echo):
    async def echo(self, text: str) -> str:
        return text


def view() -> list[Result]:
    """Measure a service method that a plugin calls through its view, and return its cost."""
    return asyncio.run(_view())


async def _view() -> list[Result]:
    catalogue, instance = Catalogue(), _Provider()
    catalogue.publish("benchmark", Published(interfaces={"benchmarkEcho": _Echo}))
    registry = ServiceRegistry(catalogue, Boundary(), lambda plugin, permission: True, order={})
    registry.add(Provider("benchmark", "benchmark:Provider", "benchmarkEcho", version=1, instance=instance))
    views = registry.views(InFlight("caller"), lambda permission: True, first_party=False)
    through_view, direct = views.get("benchmarkEcho").echo, instance.echo
    result = await compare_awaited(
        "a method through a view, awaited",
        lambda: through_view("x"),
        lambda: direct("x"),
        floor_name="the direct call",
        limit=1.6,
    )
    views.revoke()
    try:
        await through_view("x")
    except PermissionDenied:
        return [result]
    raise AssertionError("a view that is not revoked at once is not what is to be measured")


def dispatch() -> list[Result]:
    """Measure a hook call with implementations and without, and return its costs."""
    return asyncio.run(_dispatch())


async def _dispatch() -> list[Result]:
    results = []
    for count in (1, 10, 100):
        for is_async, limit in ((False, 12.0), (True, 45.0)):
            dispatcher = _dispatcher(count, is_async=is_async)
            manager = _plain_pluggy(count)
            arguments = {"request": None, "call": None}
            kind = "async" if is_async else "sync"
            results.append(
                await compare_to_sync(
                    f"dispatch to {count} {kind} implementations",
                    lambda d=dispatcher, a=arguments: d.first(HOOK, a),  # type: ignore[misc]
                    lambda m=manager: m.hook.tavern_before_execute(request=None, call=None, context=None),  # type: ignore[misc]
                    floor_name="plain pluggy, sync",
                    limit=limit,
                )
            )
    empty, none = _dispatcher(0, is_async=False), _plain_pluggy(0)

    def guarded(times: int) -> float:
        implemented = empty.implemented
        began = time.perf_counter()
        for _ in range(times):
            if implemented(HOOK):
                raise AssertionError
        return time.perf_counter() - began

    def plain(times: int) -> float:
        hook = none.hook.tavern_before_execute
        began = time.perf_counter()
        for _ in range(times):
            hook(request=None, call=None, context=None)
        return time.perf_counter() - began

    results.append(compare("no implementation", guarded, plain, floor_name="pluggy without impls", limit=0.05))
    return results


def _sync(request: Any, call: Any) -> None:
    return None


async def _async(request: Any, call: Any) -> None:
    return None


def _dispatcher(count: int, *, is_async: bool) -> Dispatcher:
    dispatcher = Dispatcher(Catalogue(), lambda plugin, where, error: None, lambda plugin, problem: None)
    context: PluginContext = None  # type: ignore[assignment]
    plugins = []
    for number in range(count):
        function: Callable[..., Any] = _copy_of(_async if is_async else _sync)
        info = HookImplInfo(
            plugin=f"p{number}", hook=HOOK, function=HOOK, arguments=["request", "call"], is_async=is_async
        )
        implementation = Implementation(info, function, context, None, InFlight(f"p{number}"))  # type: ignore[arg-type]
        plugins.append((f"p{number}", [implementation]))
    dispatcher.set_plugins(plugins)
    return dispatcher


def _plain_pluggy(count: int) -> pluggy.PluginManager:
    manager = pluggy.PluginManager("tavern")
    manager.add_hookspecs(hookspecs)
    for number in range(count):
        plugin = type(f"P{number}", (), {HOOK: staticmethod(_copy_of(_sync))})
        manager.register(plugin, f"p{number}")
    return manager


def _copy_of(function: Callable[..., Any]) -> Callable[..., Any]:
    copy = types.FunctionType(function.__code__, function.__globals__, HOOK)
    return tavern_host.hookimpl(copy)


FIGURES: dict[str, Callable[[], list[Result]]] = {
    "view": view,
    "dispatch": dispatch,
    "version": version,
    "ready": ready,
}
