"""The host's end of a plugin in a process of its own: reaches what the plugin registered, by name, over the link.

Descriptors are values, so that they are the host's; what stands behind them is asked for when it is used. What the host
has to know at once, without waiting, came with the descriptors (`hello.Facts`).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import json
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from functools import partial
from pathlib import Path
from socket import socket
from typing import Any, TypeVar, get_origin

from pydantic import BaseModel, JsonValue

from tavern_host.context import PluginContext
from tavern_host.contracts.contributions import ContributionKind, handler_of, kind_of
from tavern_host.contracts.errors import InvalidInput, NotFound, PluginFailure, TavernError
from tavern_host.contracts.nodes import NodeDefinition
from tavern_host.contracts.plugins import HookImplInfo, PluginProcess, Problem
from tavern_host.contracts.services import ServiceInfo
from tavern_host.contracts.wire import Model
from tavern_host.runtime.codec import encode
from tavern_host.runtime.described import schema_of
from tavern_host.runtime.in_process import InProcessRuntime
from tavern_host.runtime.installed import is_published
from tavern_host.runtime.source import PluginSource
from tavern_isolation import descriptors, status
from tavern_isolation.carriers import Carrier, carry_plainly
from tavern_isolation.child_process import ChildProcess
from tavern_isolation.described import reference_of, stand_in
from tavern_isolation.descriptors import Descriptors, Said
from tavern_isolation.edges import HostEdges
from tavern_isolation.frames import Message
from tavern_isolation.hello import Facts, HandlerFacts, Hello, Loaded
from tavern_isolation.known import Catalogue
from tavern_isolation.link import Link
from tavern_isolation.nodes import RemoteRunner
from tavern_isolation.notes import Notes
from tavern_isolation.objects import Place, StandIn
from tavern_isolation.places import raised_there
from tavern_isolation.requests import Requests
from tavern_isolation.sandboxing import Sandboxing
from tavern_isolation.supervisor import Supervisor
from tavern_isolation.typed import Lent, Typed, received, typed, typed_hook
from tavern_scripts.api.sandbox import memory_of

_ON_THREAD = "collect"

_MOST_HANDLERS = 10_000
"""Handlers of a plugin that are known of at a time."""
Found = TypeVar("Found", HookImplInfo, Problem)
_NO_KIND = ContributionKind()


class IsolatedRuntime(InProcessRuntime):
    """Loads one plugin in a process of its own; see `in_process.InProcessRuntime`."""

    is_here = False

    def __init__(
        self, source: PluginSource, context: PluginContext, catalogue: Catalogue, sandboxing: Sandboxing | None = None
    ) -> None:
        """Without `sandboxing` the child is an ordinary process, which imports what the host does."""
        self.plugin = source.name
        self._source = source
        self._context = context
        self._catalogue = catalogue
        self._loop = asyncio.get_running_loop()
        self.lent = Lent()
        self._notes = Notes(self._tell)
        self.edges = HostEdges(self.plugin, self._notes)
        self.requests = Requests(context, catalogue, self.lent)
        self._sandboxing = sandboxing
        self.child = Supervisor(context, self.requests, self._carry, self._begin, self._changed)
        self._loaded: Loaded | None = None
        self._is_started = False
        self._kept: dict[str, Said] = {}
        self._file = context.operator_dir / "registered.json"  # a project from elsewhere has no say in it
        self._items: dict[str, list[Any]] = {}
        self._handlers: dict[str, HandlerFacts] = {}
        self._schemas: dict[str, dict[str, JsonValue]] = {}
        self._described: dict[str, Any] = {}
        self._own: dict[str, Any] = {}
        self._faults: dict[str, str] = {}
        self._numbers = itertools.count(1)
        self._said: asyncio.Future[None] | None = None

    # --- loading ---------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Start the child and have it import the plugin; runs on a thread. Raises what that raises."""
        asyncio.run_coroutine_threadsafe(self._load(), self._loop).result()

    async def _load(self) -> None:
        self._context._when_unloaded("process", "child", self.child.stop)
        if self._sandboxing is not None:
            await self._sandboxing.prepare()
        key = await asyncio.to_thread(self._key, self.requests.state().published)
        kept = await asyncio.to_thread(descriptors.read, self._file, key)
        if kept is None or not self._know(kept):
            await self.child.start()
            kept = await self._registered(key)
            await asyncio.to_thread(descriptors.write, self._file, kept)
        elif self._sandboxing is not None:
            self._sandboxing.prove()
        await asyncio.to_thread(self._make_stand_ins)
        self.requests.follow_settings()

    def _key(self, published: dict[str, str]) -> str:
        environment = self._sandboxing.environment if self._sandboxing is not None else None
        also = self._context.settings.digest, environment.hash if environment is not None else ""
        return descriptors.key_of(self._source, self._catalogue.hooks, *also, json.dumps(published, sort_keys=True))

    async def _registered(self, key: str) -> Descriptors:
        """Ask the child for what its hook implementations register."""
        assert self._loaded is not None
        for info in self._loaded.hooks:
            hook = self._catalogue.hooks.get(info.hook)  # there is none that it publishes itself, yet
            if hook is not None and descriptors.is_kept(hook):
                with contextlib.suppress(Exception):  # it is said when the host calls the hook
                    await self._call_hook(info, {})
        collected = {hook: self._kept[hook] for hook in self._source.entries}
        answers = {name: said for name, said in self._kept.items() if name not in collected}
        return Descriptors(key=key, loaded=self._loaded, collected=collected, answers=answers)

    def _know(self, kept: Descriptors) -> bool:
        """Take over what was kept of an earlier process; return whether it could be read."""
        try:
            items = {hook: self._answered(hook, said) for hook, said in kept.collected.items()}
            for info in kept.loaded.hooks:
                if info.function in kept.answers:
                    self._answered(info.hook, kept.answers[info.function])
        except (PluginFailure, LookupError):
            return False
        self._loaded, self._items, self._kept = kept.loaded, items, dict(kept.answers)
        return True

    def _answered(self, hook: str, said: Said) -> Any:
        """What a child answered to a hook."""
        hints = typed(self._catalogue.spec(hook), hook, self.plugin).hints
        value = self._read(said.value, hints["return"], hook)
        self._note(value, said.facts)
        return value

    async def _carry(self, end: socket) -> Carrier:
        if self._sandboxing is not None:
            return await self._sandboxing.carry(end)
        return await carry_plainly(end, self._context.http.proxy_variables())

    async def _begin(self, process: ChildProcess) -> None:
        """Have a new child load the plugin; one that takes the place of another starts it, too."""
        loaded, items = await self._loaded_by(process)
        if self._loaded is None:
            self._loaded, self._items = loaded, items
            return
        if loaded != self._loaded:
            raise PluginFailure(f"the files of {self.plugin} have changed; reload it", plugin=self.plugin)
        for info in loaded.hooks if self._is_started else ():
            if info.hook == "tavern_startup":
                await self._call_hook(info, {}, process.link)

    async def _loaded_by(self, process: ChildProcess) -> tuple[Loaded, dict[str, list[Any]]]:
        link, hello = process.link, self.requests.hello(self._source, self._inside(), process.carrier.proxies)
        (data,) = await self._asked(link, "load", b"{}", encode(hello, Hello))
        said: Loaded = self._read(data, Loaded, "what was loaded").of(self.plugin)
        placed = {"hooks": self._placed(said.hooks), "problems": self._placed(said.problems)}
        loaded = said.model_copy(update=placed)
        found: dict[str, list[Any]] = {}
        for hook in self._source.entries:
            self._kept[hook] = Said.of(*await self._asked(link, "collect", json.dumps({"hook": hook}).encode()))
            found[hook] = self._answered(hook, self._kept[hook])
        return loaded, found

    async def _asked(self, link: Link, name: str, *parts: bytes) -> Message:
        """Return the answer of the child. Raises what the plugin raised, with its place."""
        try:
            answer = await link.call(name, *parts)
        except TavernError as error:
            found = raised_there(error, self._outside)
            raise found from found.__cause__
        if not isinstance(answer, tuple):
            raise PluginFailure("a stream came where an answer was expected")
        return answer

    def _outside(self, file: str) -> str:
        """The path of a file of the plugin, as the host sees it."""
        inside, root = self._inside(), self._source.root
        if inside is None or root is None or not Path(file).is_relative_to(inside):
            return file
        return str(root / Path(file).relative_to(inside))

    def _inside(self) -> str | None:
        """The plugin's folder as its child sees it."""
        if self._sandboxing is not None:
            return self._sandboxing.inside()
        return None if self._source.root is None else str(self._source.root)

    def _placed(self, found: list[Found]) -> list[Found]:
        """Hook implementations, or problems, with their files as the host sees them."""
        return [one.model_copy(update={"file": self._outside(one.file)}) if one.file else one for one in found]

    async def ask(self, name: str, head: dict[str, Any], *parts: bytes) -> Any:
        """Return the answer of the child to a call."""
        return await (await self.child.link()).call(name, json.dumps(head).encode(), *parts)

    def _tell(self, what: str, numbers: list[int]) -> None:
        """Say what became of numbers of the child; one whose values and texts are not done with is not idle."""
        self.child.kept += len(numbers) * {"held": 1, "dropped": -1, "released": -1}.get(what, 0)
        if not self.child.is_lost:
            self.requests.link.notify(what, json.dumps(numbers).encode())

    def _read(self, data: bytes, annotation: Any, what: str) -> Any:
        return received((data,), annotation, f"{what} of {self.plugin}", self.plugin)

    def collect(self, hook: str) -> list[Any]:
        """Return the descriptors in the module that the manifest names for a hook."""
        return list(self._items.get(hook, []))

    def hookimpls(self, hooks: Collection[str]) -> tuple[list[HookImplInfo], list[Problem]]:
        """Return the hook implementations of the package, and what can never be called."""
        assert self._loaded is not None
        return self._loaded.hooks, [*self._loaded.problems, *filter(None, map(self._code_problem, self._loaded.hooks))]

    def _code_problem(self, info: HookImplInfo) -> Problem | None:
        """Return that a hook takes code which the host calls as it is: of a kind that says nothing of its methods."""
        for item in self._catalogue.item_types(info.hook)[0] if info.hook in self._catalogue.hooks else ():
            if "handler" in getattr(item, "model_fields", ()) and item is not ServiceInfo and kind_of(item) == _NO_KIND:
                message = f"{info.function}: the host calls the code of a {item.__name__} in its own process"
                hint = f"run {self.plugin} in the host's process"
                return Problem(message=message, hint=hint, file=info.file, line=info.line)
        return None

    def published(self, name: str) -> Any:
        """Return a stand-in of what `module:name`, counted from the plugin's package, names. Raises `NotFound`,
        `InvalidInput` for what breaks the rules of what is published."""
        if name not in self._own:
            raise InvalidInput(self._faults.get(name, f"{self.plugin} has no {name}"))
        return self._own[name]

    def _make_stand_ins(self) -> None:
        """Make what stands for what the plugin publishes. Blocking."""
        assert self._loaded is not None
        self._faults = dict(self._loaded.faults)
        for name, text in self._loaded.published.items():
            try:
                found = stand_in(text)
            except InvalidInput as error:
                self._faults[name] = error.message
                continue
            if found.__name__ == name.rpartition(":")[2].rpartition(".")[2]:
                self._own[name] = self._own[getattr(found, "service_name", name)] = found
            else:
                self._faults[name] = f"{name} is called {found.__name__}"

    def function(self, handler: str) -> Callable[..., Any]:
        """Refuse: a function stays in its process. Raises `NotFound`."""
        raise NotFound(f"{handler} of {self.plugin} is in another process")

    def provider_problems(self, info: ServiceInfo, check: Callable[[type], list[Problem]]) -> list[Problem]:
        """Return the problem that the child found with the class that a descriptor of a service names."""
        return self._fact(info.handler).as_provider

    def schema(self, reference: str) -> dict[str, Any]:
        """Return the JSON Schema of a type. Raises `NotFound`."""
        if is_published(reference):
            return schema_of(reference)
        if reference not in self._schemas:
            raise NotFound(f"{self.plugin} has no type {reference}")
        return dict(self._schemas[reference])

    def handler_problems(self, descriptors: Iterable[Any]) -> dict[str, Problem]:
        """Return why handlers that these descriptors name cannot be reached, by handler."""
        handlers = {*map(handler_of, descriptors)} - {""}
        return {one: problem for one in sorted(handlers) if (problem := self._fact(one).problem) is not None}

    def _fact(self, handler: str) -> HandlerFacts:
        return self._handlers.get(handler) or HandlerFacts()

    def _note(self, items: Any, facts: bytes) -> None:
        """Remember descriptors, and what the child said of their handlers."""
        described = {handler_of(item): item for item in items} if isinstance(items, list) else {}
        if len(self._described.keys() | described) > _MOST_HANDLERS:
            raise PluginFailure(f"{self.plugin} names more than {_MOST_HANDLERS:,} handlers", plugin=self.plugin)
        said: Facts = self._read(facts, Facts, "what it says of its handlers") if described else Facts()
        types = {getattr(item, key, "") for item in described.values() for key in ("body", "query", "answer")}
        self._handlers.update({handler: one for handler, one in said.handlers.items() if handler in described})
        self._schemas.update({reference: one for reference, one in said.schemas.items() if reference in types})
        self._described.update(described)

    # --- hooks -----------------------------------------------------------------------------------------------

    def hook_function(self, info: HookImplInfo) -> Callable[..., Any]:
        """Return a function that has the child call the hook implementation."""

        async def call(**arguments: Any) -> Any:
            arguments.pop("context", None)
            if info.hook == "tavern_shutdown" and self.child.is_lost:
                return None  # there is nothing to shut down
            if self.child.is_lost and info.function in self._kept:
                return self._answered(info.hook, self._kept[info.function])
            result = await self._call_hook(info, arguments)
            if info.hook == "tavern_startup" and not self._is_started:
                self._is_started = True
                self.child.kept += 1  # what it began there
            return result

        parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in info.arguments]
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        assert self._loaded is not None
        marks = self._loaded.options.get(info.function, {})
        call.tavern_impl = {**marks, "specname": info.hook}  # type: ignore[attr-defined]
        call.__name__ = info.function
        return call

    async def _call_hook(self, info: HookImplInfo, arguments: dict[str, Any], link: Link | None = None) -> Any:
        crossing = typed_hook(self._catalogue.spec(info.hook), self.plugin)
        policy = self._catalogue.hooks[info.hook].policy
        head = {"hook": info.hook, "function": info.function, "thread": policy == _ON_THREAD}
        with self.lent.during() as lend:
            message = crossing.message(head, arguments, lend)  # at once: the arguments are the caller's own
            value, facts = await self._asked(link or await self.child.link(), "hook", *message)
        result = self._read(value, crossing.hints["return"], info.hook)
        self._note(result, facts)
        if descriptors.is_kept(self._catalogue.hooks[info.hook]):
            self._kept[info.function] = Said.of(value, facts)
        return result

    # --- objects and functions -------------------------------------------------------------------------------

    def open(self, handler: str | Model, *arguments: Any, **named: Any) -> Any:
        """Return a stand-in for a new object of the plugin's class, or for what runs a descriptor's handler."""
        if isinstance(handler, NodeDefinition):
            return RemoteRunner(self.plugin, self.child, self.lent, self.edges, self.requests.reports, handler)
        if not isinstance(handler, str):
            raise NotFound(f"nothing opens the handler of a {type(handler).__name__} in a process of its own")
        descriptor, number = self._described.get(handler), next(self._numbers)
        service = descriptor.service if isinstance(descriptor, ServiceInfo) else ""
        interface = self._own.get(service) or self._catalogue.interfaces.get(service)
        protocol = interface if service else kind_of(type(descriptor)).protocol
        if protocol is None:
            raise NotFound(f"{handler} of {self.plugin} is of no kind that can be in another process")
        if "original" in named:
            self.requests.originals[number] = service, named["original"]
        types, parts = self._packed(arguments)
        head = {"object": number, "handler": handler, "service": service, "types": types}
        head |= {"original": "original" in named}
        place = Place(self.plugin, self.child, self.lent, self._notes, self._loop)
        opened = StandIn(place, protocol, head, parts, self._fact(handler).methods)
        is_on_thread = asyncio._get_running_loop() is not self._loop  # of a provider, which waits for it
        if is_on_thread and not self.child.is_lost:
            asyncio.run_coroutine_threadsafe(opened.open(), self._loop).result()
        return opened

    def call(self, handler: str, *arguments: Any) -> Any:
        """Have the child call a function; return a coroutine, or an iterator where its kind gives a stream."""
        types, parts = self._packed(arguments)
        descriptor = self._described.get(handler)
        answer = kind_of(type(descriptor)).answer
        head = {
            "handler": handler,
            "types": types,
            "answer": reference_of(type(descriptor)) if answer is not None else "",
        }
        hints = {"return": JsonValue if answer is None else answer}
        crossing = Typed(f"{handler} of {self.plugin}", hints, plugin=self.plugin)
        asked = partial(self.ask, "call", head, *parts)
        return crossing.stream_of(asked) if get_origin(answer) is AsyncIterator else crossing.result_of(asked)

    def _packed(self, arguments: Iterable[Any]) -> tuple[list[str], list[bytes]]:
        """Return the types of a handler's arguments by name, and those that are sent."""
        types: list[str] = []
        parts: list[bytes] = []
        for value in arguments:
            if isinstance(value, PluginContext):
                types.append("context")
            elif isinstance(value, BaseModel):
                types.append(reference_of(type(value)))
                parts.append(encode(value, type(value)))
            else:
                types.append("")
                parts.append(encode(value, JsonValue))
        return types, parts

    def _changed(self) -> None:
        """Say elsewhere that the process is another one, or has ended."""
        self._said = asyncio.ensure_future(self._say(self._said))

    async def _say(self, before: asyncio.Future[None] | None) -> None:
        if before is not None:
            await before  # in order
        with contextlib.suppress(OSError):  # the project is gone
            await asyncio.to_thread(lambda: status.write(self._context.project, self.plugin, self.process()))

    def process(self) -> PluginProcess:
        """The process that the plugin runs in, or ran in. Blocking."""
        carrier, environment = self.child.carrier, self._sandboxing.environment if self._sandboxing else None
        return PluginProcess(
            pid=carrier.pid if carrier is not None else None,
            starts=self.child.generation,
            sandbox=carrier.sandbox if carrier is not None else "",
            memory=memory_of(carrier.pid) if carrier is not None else None,
            python=environment.python if environment is not None else "",
            environment=environment.hash if environment is not None else "",
            last_error=self.child.last_error,
        )

    # --- the end ---------------------------------------------------------------------------------------------

    def forget_modules(self) -> Callable[[], None]:
        """Do nothing: each child imports the plugin for itself."""
        return lambda: None

    def unload(self) -> None:
        """End the child, if it still runs."""
        self.child.kill()
