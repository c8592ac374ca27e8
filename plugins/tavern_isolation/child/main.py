"""Carries one plugin and answers its host: `python -m tavern_isolation.child` with one end of a socket pair."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import inspect
import json
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from socket import socket
from typing import Any

from pydantic import JsonValue
from pydantic_core import from_json

from tavern_host.context import PluginContext
from tavern_host.contracts.contributions import handler_of, kind_of
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.http import RouteInfo
from tavern_host.contracts.services import ServiceInfo, implements
from tavern_host.runtime.codec import decode, encode
from tavern_host.runtime.deadline import contained
from tavern_host.runtime.in_process import InProcessRuntime
from tavern_host.runtime.installed import is_published, take_first_party
from tavern_host.runtime.interface_check import interface_problems
from tavern_host.runtime.source import Entry, PluginSource
from tavern_host.runtime.threads import run_in_thread
from tavern_isolation.child.context import Seen, make_context
from tavern_isolation.child.nodes import Nodes
from tavern_isolation.child.outside import LogToHost
from tavern_isolation.child.way import Way
from tavern_isolation.described import description_of
from tavern_isolation.frames import Message
from tavern_isolation.hello import Facts, HandlerFacts, Hello, HostState, Loaded, SettingsState
from tavern_isolation.known import Known
from tavern_isolation.link import GRACE, Link
from tavern_isolation.places import with_place
from tavern_isolation.typed import READ, Head, Lent, Typed, is_stream, typed, typed_hook

_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)
_PLACED = ("load", "collect", "hook")
"""The calls whose errors say where in the plugin's code they were raised."""
_FOREVER = 10 * 365 * 86_400.0


class Child:
    """The plugin of this process, and what the host asks of it."""

    def __init__(self) -> None:
        self._lent = Lent()
        self._objects: dict[int, Any] = {}
        self._undo: list[Callable[[], Any]] = []
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._link: Link
        self._way: Way
        self._hello: Hello
        self._known: Known
        self._seen: Seen
        self._runtime: InProcessRuntime
        self._context: PluginContext
        self._nodes: Nodes
        self._functions: dict[str, Callable[..., Any]] = {}
        self._takes_context: set[str] = set()
        self._asked: Mapping[str, Callable[[Head, Message], Any]] = {
            "load": self._load,
            "collect": self._collect,
            "hook": self._hook,
            "open": self._open,
            "method": self._method,
            "call": self._call,
            "close": self._close,
            "task": self._task,
            "stop": self._stop,
            "ping": self._ping,
            READ: self._read,
        }

    async def run(self, end: socket) -> None:
        """Answer until the host is gone."""
        self._link = await Link.open(end, "the host", self._serve, self._notice, self._end)
        await self._ended

    def _end(self, reason: str) -> None:
        if not self._ended.done():
            self._ended.set_result(reason)
            asyncio.get_running_loop().call_later(GRACE, os._exit, 1)  # whatever the plugin still does

    async def _serve(self, name: str, parts: Message) -> Any:
        head: Head = from_json(parts[0])
        try:
            if name.startswith("node."):
                return await self._nodes.serve(name, head, parts[1:])
            return await self._asked[name](head, parts[1:])
        except Exception as error:
            if not isinstance(error, TavernError):  # whose place in the code the host cannot see
                self._context.log.exception("%s failed", head.get("handler", name))
            if name not in _PLACED:
                raise
            raise with_place(error, self._hello.plugin, self._hello.root) from error

    def _notice(self, name: str, parts: Message) -> None:
        if name == "settings":
            head = json.loads(parts[0])
            self._context.settings.update(decode(parts[1], SettingsState), head["keys"])  # type: ignore[attr-defined]
        elif name == "state":
            self._seen.update(decode(parts[0], HostState))
        elif name == "forgotten":
            for number in json.loads(parts[0]):
                self._objects.pop(number, None)
        elif name in ("held", "dropped"):
            self._nodes.edges.take(name, json.loads(parts[0]))
        elif name == "end task":
            self._context.tasks.cancel(json.loads(parts[0])["task"])  # type: ignore[attr-defined]

    # --- loading ---------------------------------------------------------------------------------------------

    async def _load(self, head: Head, parts: Message) -> Message:
        hello = self._hello = decode(parts[0], Hello)
        take_first_party(hello.first_party)
        for name in [name for name in os.environ if name.upper().endswith("_PROXY")]:
            del os.environ[name]
        os.environ.update(hello.proxies)
        self._way = Way(self._link, self._lent, hello.plugin)
        self._known = Known(hello.known_services, hello.known_hooks, hello.state.published)
        self._seen = Seen(hello.state, self._known)
        self._context = make_context(hello, self._way, self._known, self._seen, self._when_unloaded)
        log = logging.getLogger()
        log.handlers = [LogToHost(self._link)]
        log.setLevel(logging.INFO)
        source = PluginSource(
            hello.plugin,
            hello.module,
            Path(hello.root) if hello.root is not None else None,
            None if hello.reviewed is None else {path: bytes.fromhex(each) for path, each in hello.reviewed.items()},
            False,
            {hook: Entry(each.module, each.collector, each.options) for hook, each in hello.entries.items()},
        )
        self._runtime = InProcessRuntime(source, self._context)
        self._nodes = Nodes(self._runtime, self._link, hello.plugin)
        await run_in_thread(self._runtime.load, deadline=_FOREVER, what=f"importing {hello.plugin}")
        published, faults = self._publish(hello.publishes)
        hooks, problems = self._runtime.hookimpls([*hello.known_hooks, *hello.state.published, *self._known.own])
        self._functions = {one.function: self._runtime.hook_function(one) for one in hooks}
        self._takes_context = {one.function for one in hooks if "context" in one.arguments}
        options = {name: function.tavern_impl for name, function in self._functions.items()}  # type: ignore[attr-defined]
        gc.freeze()
        gc.enable()
        loaded = Loaded(hooks=hooks, options=options, problems=problems, published=published, faults=faults)
        return (encode(loaded, Loaded),)

    def _publish(self, names: list[str]) -> tuple[dict[str, str], dict[str, str]]:
        """Return the descriptions of what the plugin publishes, and why what it should publish cannot be."""
        published: dict[str, str] = {}
        faults: dict[str, str] = {}
        for name in names:
            try:
                found = self._runtime.published(name)
                published[name] = description_of(found)
            except TavernError as error:
                faults[name] = error.message
            else:
                self._known.own[getattr(found, "service_name", found.__name__)] = found
        return published, faults

    def _when_unloaded(self, kind: str, name: str, undo: Callable[[], Any]) -> None:
        self._undo.append(undo)

    async def _ping(self, head: Head, parts: Message) -> Message:
        return ()

    async def _stop(self, head: Head, parts: Message) -> Message:
        """Close what the plugin holds, newest first."""
        while self._undo:
            result = self._undo.pop()()
            if inspect.isawaitable(result):
                await result
        return ()

    # --- what the plugin contributes -------------------------------------------------------------------------

    async def _collect(self, head: Head, parts: Message) -> Message:
        items = self._runtime.collect(head["hook"])
        hints = typed(self._known.spec(head["hook"]), head["hook"], self._hello.plugin).hints
        return (encode(items, hints["return"]), self._facts(items))

    async def _hook(self, head: Head, parts: Message) -> Any:
        hook = head["hook"]
        function = self._functions[head["function"]]
        crossing = typed_hook(self._known.spec(hook), self._hello.plugin)
        arguments = crossing.arguments(head, parts, self._link)
        if head["function"] in self._takes_context:
            arguments["context"] = self._context
        if head["thread"] and not inspect.iscoroutinefunction(function):
            value = await run_in_thread(lambda: function(**arguments), deadline=_FOREVER, what=hook)
        else:
            value = function(**arguments)
            value = await contained(value, hook) if isinstance(value, Coroutine) else value
        answer = crossing.answer(value)
        return (*answer, self._facts(value)) if isinstance(answer, tuple) else answer

    def _facts(self, items: Any) -> bytes:
        """Return the facts that the host needs at once about the objects that these descriptors name; see
        `hello.Facts`."""
        handlers, schemas = {}, {}
        items = items if isinstance(items, list | tuple) else ()
        problems = self._runtime.handler_problems(items)
        for item in items:
            handler = handler_of(item)
            if handler in problems:
                handlers[handler] = HandlerFacts(problem=problems[handler])
            elif isinstance(item, ServiceInfo) or kind_of(type(item)).protocol is not None:
                handlers[handler] = self._class_facts(item, handler)
            for reference in (getattr(item, key, "") for key in ("body", "query", "answer")):
                if reference and isinstance(item, RouteInfo) and not is_published(reference):
                    schemas[reference] = self._runtime.schema(reference)
        return encode(Facts(handlers=handlers, schemas=schemas), Facts)

    def _class_facts(self, item: Any, handler: str) -> HandlerFacts:
        problems = []
        if isinstance(item, ServiceInfo):
            check = partial(interface_problems, self._known.interface(item.service), version=item.version)
            problems = self._runtime.provider_problems(item, check)
        made = None if problems else self._runtime.function(handler)
        methods = [name for name in dir(made) if not name.startswith("_") and implements(made, name)]
        return HandlerFacts(methods=methods, as_provider=problems)

    # --- calls -----------------------------------------------------------------------------------------------

    async def _open(self, head: Head, parts: Message) -> Message:
        arguments = self._arguments(head, parts)
        named = {}
        if head["original"]:
            interface = self._known.interface(head["service"])
            named = {"original": self._way.view(interface, head["object"])}
        opened = self._runtime.open(head["handler"], *arguments, **named)
        self._objects[head["object"]] = opened
        return ()

    async def _method(self, head: Head, parts: Message) -> Any:
        function, name = getattr(self._objects[head["object"]], head["name"]), head["name"]
        protocol = head["protocol"]
        declared = getattr(resolve_name(protocol) if ":" in protocol else self._known.interface(protocol), name)
        crossing = typed(declared, f"{head['what']}.{name}", self._hello.plugin)
        arguments = crossing.arguments(head, parts, self._link)
        if inspect.iscoroutinefunction(declared) or is_stream(crossing.hints["return"]):
            value = function(**arguments)
            value = await contained(value, name) if isinstance(value, Coroutine) else value
        else:
            value = await run_in_thread(lambda: function(**arguments), deadline=_FOREVER, what=name)
        return crossing.answer(value)

    async def _call(self, head: Head, parts: Message) -> Any:
        handler = head["handler"]
        value = self._runtime.call(handler, *self._arguments(head, parts))
        if isinstance(value, Coroutine):
            value = await value
        hint = kind_of(resolve_name(head["answer"])).answer if head["answer"] else JsonValue
        return Typed(f"{handler} of {self._hello.plugin}", {"return": hint}, plugin=self._hello.plugin).answer(value)

    async def _close(self, head: Head, parts: Message) -> Message:
        await self._objects.pop(head["object"]).close()
        return ()

    def _arguments(self, head: Head, parts: Message) -> list[Any]:
        """Return the arguments of a handler: models of the types that the host names, JSON, and the context."""
        found, rest = [], list(parts)
        for kind in head["types"]:
            if kind == "context":
                found.append(self._context)
            else:
                found.append(decode(rest.pop(0), resolve_name(kind) if kind else JsonValue))
        return found

    async def _task(self, head: Head, parts: Message) -> Message:
        await self._context.tasks.end_of(head["task"])  # type: ignore[attr-defined]
        return ()

    async def _read(self, head: Head, parts: Message) -> AsyncIterator[Message]:
        return self._lent.read(head["stream"])


async def main(end: socket) -> None:
    """Carry the plugin that the host names, until the host is gone."""
    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)  # also while its loop spins
    await Child().run(end)
