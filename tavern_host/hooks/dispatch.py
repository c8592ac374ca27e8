"""Calls hooks: one implementation at a time, each result and each exception attributed to its plugin.

pluggy registers, checks and orders the implementations. It does not await, so this module walks them itself in
pluggy's order (last registered first). Policies: collect, first, filter, veto.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar

import pluggy
from pydantic import BaseModel, ValidationError

from tavern_host.common.log_context import log_context
from tavern_host.context import PluginContext
from tavern_host.contracts.errors import DeadlineExceeded, NotFound, PluginFailure, Vetoed, describe, one_line
from tavern_host.contracts.hooks import HookInfo, Veto
from tavern_host.contracts.metrics import Tally
from tavern_host.contracts.plugins import HookImplInfo, Problem
from tavern_host.contracts.wire import Model
from tavern_host.hooks.catalogue import Catalogue
from tavern_host.runtime.boundary import awaited, observed
from tavern_host.runtime.copying import as_it_is, duplicate
from tavern_host.runtime.deadline import current_task, in_callers_task, uncancelled, until_given_up
from tavern_host.runtime.in_flight import CallInTask, InFlight, expire
from tavern_host.runtime.in_process import InProcessRuntime
from tavern_host.runtime.issued import handed_over
from tavern_host.runtime.threads import ended, is_being_cancelled, run_in_thread

T = TypeVar("T")

DEADLINE = 10.0
"""Seconds that an async implementation, or a declaration hook on its thread, may take."""

_ON_THREAD = frozenset({"collect"})
"""Policies whose `def` implementations run on a thread: declarations and lifecycle, never hot paths."""


@dataclass(frozen=True, eq=False, slots=True)
class Implementation:
    """One hook implementation with the load of the plugin that it belongs to."""

    info: HookImplInfo
    function: Callable[..., Any]
    context: PluginContext
    runtime: InProcessRuntime
    in_flight: InFlight

    def invoke(self, arguments: Mapping[str, Any]) -> Any:
        """Call it with copies of those arguments that it has a parameter for; the result may be a coroutine.

        What reaches a plugin of another process writes the arguments out before anything is awaited: that is the copy.
        """
        own = duplicate if self.runtime.is_here else as_it_is
        copies = {name: own(handed_over(arguments[name])) for name in self.info.arguments if name != "context"}
        return self.function(**copies, **({"context": self.context} if "context" in self.info.arguments else {}))


class _Registered:
    """The object that pluggy has for a plugin: the admitted functions as attributes, equal to nothing but itself."""

    def __init__(self, implementations: Iterable[Implementation]) -> None:
        vars(self).update({i.info.function: i.function for i in implementations})

    def __dir__(self) -> Iterable[str]:
        return vars(self)  # pluggy looks at every attribute, those of `object` included, which takes a while


class LoadedHookResult:
    """One loaded plugin's answer to a hook, and a way to reach the handlers it names; see `context.HookResult`."""

    __slots__ = ("_context", "_in_flight", "_runtime", "code", "plugin", "value")

    def __init__(self, value: Any, runtime: InProcessRuntime, context: PluginContext, in_flight: InFlight) -> None:
        self.plugin = in_flight.plugin
        self.code = in_flight.code
        self.value = value
        self._runtime = runtime
        self._context = context
        self._in_flight = in_flight

    @property
    def settings(self) -> str:
        """The digest of the plugin's settings as they are now."""
        return self._context.settings.digest

    @property
    def is_here(self) -> bool:
        """Whether the plugin's code runs in this process."""
        return self._runtime.is_here

    def open(self, handler: str | Model, *arguments: Any) -> Any:
        """Return a new object of the plugin's class `handler`, or what runs the handler of a descriptor."""
        self._in_flight.check()
        return self._runtime.open(handler, *arguments)

    async def call(self, handler: str, *arguments: Any) -> Any:
        """Call the plugin's function `handler`, with its context last. The host's own plugins get contexts as they are:
        what these may do does not hang on them."""
        sent = arguments if self._in_flight.first_party else map(handed_over, arguments)
        self._in_flight.check()
        with CallInTask(self._in_flight, handler):
            is_observed = self._in_flight.observer is not None
            call = call_of(self._runtime, self._in_flight, handler) if is_observed else self._runtime.call
            result = call(handler, *sent, self._context)
            return await result if isinstance(result, Coroutine) else result

    def in_use(self, cancel: Callable[[], object] | None = None) -> contextlib.AbstractContextManager[None]:
        """Return the context that keeps the plugin from being unloaded."""
        return self._in_flight.use_elsewhere(cancel)


@dataclass(eq=False)
class Dispatcher:
    """All active hook implementations, in the order in which they are called.

    `report` is called with each failure: plugin, hook, exception, and returns what people see of it; `tell` with a
    problem of an answer. `revision` grows whenever the plugins change.
    """

    catalogue: Catalogue
    report: Callable[[str, str, BaseException], Problem | None]
    tell: Callable[[str, Problem], None]
    revision: int = 0
    tally: Tally = field(default_factory=lambda: Tally("hooks", "Calls of hook implementations.", "plugin", "hook"))
    places: dict[str, int] = field(default_factory=dict)
    """The place of each active plugin in the order in which they were loaded."""
    _ordered: dict[str, tuple[Implementation, ...]] = field(default_factory=dict)

    def set_plugins(self, plugins: Iterable[tuple[str, list[Implementation]]]) -> None:
        """Register the implementations of these plugins and no others, in this order.

        An implementation that no longer fits its hook, since the plugin that publishes the hook was reloaded first, is
        left out until its own plugin is reloaded.
        """
        manager = pluggy.PluginManager("tavern")  # a new one: pluggy has no method that removes a specification
        specs = {hook: staticmethod(self.catalogue.spec(hook)) for hook in self.catalogue.hooks}
        manager.add_hookspecs(type("specs", (), specs))
        known: dict[tuple[str, int], Implementation] = {}
        self.places = {}
        for plugin, implementations in plugins:
            self.places[plugin] = len(self.places)
            fitting = [implementation for implementation in implementations if self._fits(implementation.info)]
            manager.register(_Registered(fitting), plugin)
            known |= {(plugin, id(i.function)): i for i in fitting}
        manager.check_pending()
        self._ordered.clear()
        for hook in self.catalogue.hooks:
            if hookimpls := getattr(manager.hook, hook).get_hookimpls():
                self._ordered[hook] = tuple(known[i.plugin_name, id(i.function)] for i in reversed(hookimpls))
        self.revision += 1

    def _fits(self, info: HookImplInfo) -> bool:
        spec = self.catalogue.hooks.get(info.hook)
        return spec is not None and {*info.arguments} <= {*spec.arguments, "context"}

    def implemented(self, hook: str) -> bool:
        """Return whether any active plugin implements the hook."""
        return hook in self._ordered

    def implementations(self, hook: str) -> tuple[Implementation, ...]:
        """Return the implementations of a hook in the order in which they are called."""
        return self._ordered.get(hook, ())

    def _in_turn(self, hook: str) -> Iterator[Implementation]:
        """Yield the implementations of a hook, each as it is when its turn comes.

        While others are awaited, a plugin may be unloaded or reloaded.
        """
        revision, waiting = self.revision, list(self.implementations(hook))
        called: set[tuple[str, str]] = set()
        while waiting:
            implementation = waiting.pop(0)
            called.add((implementation.info.plugin, implementation.info.function))
            yield implementation
            if self.revision != revision:
                revision, plugins = self.revision, {i.info.plugin for i in waiting}
                current = [i for i in self.implementations(hook) if i.info.plugin in plugins]
                waiting = [i for i in current if (i.info.plugin, i.info.function) not in called]

    async def collect(self, hook: str, arguments: Mapping[str, Any]) -> list[LoadedHookResult]:
        """Return all answers other than None; a failure is reported and the others are asked all the same."""
        answers = []
        for implementation in self._in_turn(hook):
            value = await self._ask(implementation, arguments)
            if value is not None and (items := self._items(implementation.info, value)):
                answers.append(_answer(implementation, items))
        return answers

    async def first(self, hook: str, arguments: Mapping[str, Any]) -> LoadedHookResult | None:
        """Return the first answer other than None; a failure is reported and the next one is asked."""
        for implementation in self._in_turn(hook):
            value = await self._ask(implementation, arguments)
            if value is not None:
                return _answer(implementation, value)
        return None

    async def _ask(self, implementation: Implementation, arguments: Mapping[str, Any]) -> Any:
        """Return a copy of an implementation's answer; a failure is reported, and its answer is None."""
        try:
            return duplicate(await self.call_one(implementation, arguments))
        except Exception as error:
            self.report(implementation.info.plugin, implementation.info.hook, error)
            return None

    def _items(self, info: HookImplInfo, value: Any) -> list[Any]:
        """Return the items of an answer that are what the hook collects; say with the plugin what the others are."""
        types, expected = self.catalogue.item_types(info.hook)
        if not types:
            return value if isinstance(value, list) else [value]
        if not isinstance(value, list | tuple):
            self._say_wrong(info, f"returned {type(value).__name__}, expected {expected}")
            return []
        items = []
        for item in value:
            if not isinstance(item, types):
                self._say_wrong(info, f"returned a list with {type(item).__name__}, expected {expected}")
                continue
            try:
                items.append(_checked(item, type(item), "it"))
            except PluginFailure as failure:
                self._say_wrong(info, failure.message)
        return items

    def _say_wrong(self, info: HookImplInfo, message: str) -> None:
        message = one_line(f"{info.hook}: {message}")
        problem = Problem(message=message, hint="what is right is used", file=info.file, line=info.line)
        self.tell(info.plugin, problem)

    async def filter(self, hook: str, value: T, arguments: Mapping[str, Any]) -> T:
        """Return `value` after every implementation was asked; see `context.Hooks.filter`.

        With the policy `veto` a failure denies: fail closed. Each plugin gets a copy of its own.
        """
        spec = self._spec(hook)
        for implementation in self._in_turn(hook):
            plugin = implementation.info.plugin
            try:
                answer = await self.call_one(implementation, {spec.arguments[0]: value, **arguments})
                if answer is not None and not isinstance(answer, Veto):
                    answer = _checked(answer, type(value), f"{hook} of {plugin}")
            except Exception as error:
                error.__dict__.setdefault("at", (implementation.info.file, implementation.info.line))
                problem = self.report(plugin, hook, error)
                if spec.policy == "veto":
                    message = f"{plugin} failed in {hook}, so this is refused: {describe(error)}{_place(problem)}"
                    raise Vetoed(message, plugin=plugin) from error
                continue
            if isinstance(answer, Veto):
                raise Vetoed(f"{plugin} refused: {answer.reason}", plugin=plugin, reason=answer.reason)
            if answer is not None:
                value = answer
        return value

    def call_one(
        self, implementation: Implementation, arguments: Mapping[str, Any], *, deadline: float = DEADLINE
    ) -> Coroutine[Any, Any, Any]:
        """Return the result of one implementation, called with copies of the arguments that it takes.

        Async ones, and declarations on their thread, have `deadline` seconds. Raises `DeadlineExceeded`,
        `PluginFailure` where it tried to end the program, and what it raises itself.
        """
        call, observer = self._call_one(implementation, arguments, deadline), implementation.in_flight.observer
        if observer is None:
            return call
        info = implementation.info
        given = {name: arguments[name] for name in info.arguments if name != "context"}
        return awaited(call, observer.called("hook", info.plugin, info.hook, self._spec(info.hook).caller, given))

    async def _call_one(self, implementation: Implementation, arguments: Mapping[str, Any], deadline: float) -> Any:
        info = implementation.info
        what = f"{info.hook} of {info.plugin}"
        began = time.perf_counter()
        try:
            if not info.is_async and self._spec(info.hook).policy in _ON_THREAD:
                with implementation.in_flight.use():
                    value = await run_in_thread(lambda: implementation.invoke(arguments), deadline=deadline, what=what)
            else:
                task = current_task()
                before = task.cancelling()
                value = implementation.invoke(arguments)
                if task.cancelling() > before:
                    await uncancelled(before, what)
            is_awaited = isinstance(value, Coroutine)
            return await _within(deadline, value, implementation.in_flight, what) if is_awaited else value
        except (SystemExit, KeyboardInterrupt) as error:
            raise ended(what, error) from error
        except asyncio.CancelledError as error:
            if is_being_cancelled():
                raise
            raise PluginFailure(f"{what} waited for something that was cancelled") from error
        except Exception as error:  # where it is, for one that no code of the plugin raised
            error.__dict__.setdefault("at", (info.file, info.line))
            raise
        finally:
            self.tally.add(info.plugin, info.hook, seconds=time.perf_counter() - began)

    def _spec(self, hook: str) -> HookInfo:
        if (info := self.catalogue.hooks.get(hook)) is None:
            raise NotFound(f"there is no hook {hook!r}")
        return info


async def _within(deadline: float, coroutine: Coroutine[Any, Any, T], in_flight: InFlight, what: str) -> T:
    """Await what an implementation returned. Raises `DeadlineExceeded`."""
    timer = asyncio.timeout(None)
    try:
        async with timer:
            with in_flight.use(lambda: expire(timer)):
                return await until_given_up(in_callers_task(coroutine, what), timer, deadline)
    except TimeoutError:
        if timer.expired():
            raise DeadlineExceeded(f"{what} did not end within {deadline:g} s") from None
        raise


def call_of(runtime: InProcessRuntime, in_flight: InFlight, handler: str) -> Callable[..., Any]:
    """Return how a load's handler is called: by its runtime, before the eyes of who observes the load."""
    if in_flight.observer is None:
        return runtime.call
    who = log_context().get("principal", "")
    return observed(
        runtime.call, signature(runtime.call), in_flight.observer, "handler", in_flight.plugin, handler, who
    )


def _place(problem: Problem | None) -> str:
    """Return the file and line of a problem, without where the plugin lies on this machine."""
    return f" ({'/'.join(Path(problem.file).parts[-2:])}:{problem.line})" if problem and problem.file else ""


def _answer(implementation: Implementation, value: Any) -> LoadedHookResult:
    return LoadedHookResult(value, implementation.runtime, implementation.context, implementation.in_flight)


def _checked(answer: Any, wanted: type[T], what: str) -> T:
    """Return a copy of an answer that the plugin cannot change any more.

    Raises `PluginFailure` for one of another type, or one that `model_copy(update=…)`, which checks nothing,
    made into something that the type does not allow.
    """
    if not isinstance(answer, wanted):
        expected = f"{wanted.__name__}, Veto or None"
        raise PluginFailure(f"{what} returned {type(answer).__name__}, expected {expected}")
    if isinstance(answer, BaseModel):
        try:
            type(answer).model_validate({**vars(answer), **(answer.model_extra or {})})
        except ValidationError as error:
            wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            raise PluginFailure(f"{what} returned a {wanted.__name__} that is none: {wrong}") from None
    copied: T = duplicate(answer)
    return copied
