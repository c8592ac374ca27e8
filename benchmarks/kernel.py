"""The kernel's own costs: a call through a view, a hook call, and starting up."""

from __future__ import annotations

import asyncio
import compileall
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pluggy

import tavern_host
from benchmarks.harness import Result, compare, compare_awaited, compare_once, compare_to_sync
from tavern_host import hookspecs
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.plugins import HookImplInfo
from tavern_host.contracts.services import ServiceInterface, reads
from tavern_host.dispatch import Dispatcher, Implementation
from tavern_host.proxies import ViewHandle

HOOK = "tavern_before_execute"


def run() -> list[Result]:
    """Return all figures."""
    return [*asyncio.run(_views()), *asyncio.run(_dispatch()), *_start_up()]


class _Echo(ServiceInterface, name="benchmarkEcho"):
    @reads
    async def echo(self, text: str) -> str:
        """Return the text."""
        raise NotImplementedError


class _Provider(_Echo):
    async def echo(self, text: str) -> str:
        return text


async def _views() -> list[Result]:
    provider = _Provider()
    handle = ViewHandle(_Echo, lambda name, info: lambda call: call or _call())
    handle.bind({"echo": provider.echo})
    view = handle.view
    return [
        await compare_awaited(
            "a method through a view, awaited",
            lambda: view.echo("x"),
            lambda: provider.echo("x"),
            floor_name="the direct call",
            limit=1.6,
        )
    ]


async def _dispatch() -> list[Result]:
    results = []
    for count in (1, 10, 100):
        for is_async, limit in ((False, 1.0), (True, 2.2)):
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
    dispatcher = Dispatcher(lambda plugin, where, error: None)
    context: PluginContext = None  # type: ignore[assignment]
    plugins = []
    for number in range(count):
        function: Callable[..., Any] = _copy_of(_async if is_async else _sync)
        info = HookImplInfo(
            plugin=f"p{number}", hook=HOOK, function=HOOK, arguments=["request", "call"], is_async=is_async
        )
        plugins.append((f"p{number}", [Implementation(info, function, context, None)]))  # type: ignore[arg-type]
    dispatcher.rebuild(plugins)
    return dispatcher


def _plain_pluggy(count: int) -> pluggy.PluginManager:
    manager = pluggy.PluginManager("tavern")
    manager.add_hookspecs(hookspecs)
    for number in range(count):
        plugin = type(f"P{number}", (), {HOOK: staticmethod(_copy_of(_sync))})
        manager.register(plugin, f"p{number}")
    return manager


def _copy_of(function: Callable[..., Any]) -> Callable[..., Any]:
    import types

    copy = types.FunctionType(function.__code__, function.__globals__, HOOK)
    return tavern_host.hookimpl(copy)


def _call() -> CallContext:
    return CallContext(principal=Principal(kind="system", id="benchmark"))


# --- whole processes --------------------------------------------------------------------------------


def _start_up() -> list[Result]:
    for folder in _package_folders():
        compileall.compile_dir(folder, quiet=2)
    return [
        compare_once(
            "tavern --version",
            _process(["-m", "tavern_host.cli", "--version"]),
            _process(["-c", "pass"]),
            floor_name="python -c pass",
            limit=4.0,
        )
    ]


def _package_folders() -> list[str]:
    root = Path(tavern_host.__file__).parent
    return [str(root)]


def _process(arguments: list[str]) -> Callable[[int], float]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}

    def timed(times: int) -> float:
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            for _ in range(times):
                subprocess.run(
                    [sys.executable, *arguments], check=True, capture_output=True, cwd=folder, env=environment
                )
            return time.perf_counter() - began

    return timed
