"""Calls hooks: one implementation at a time, each result and each exception attributed to its plugin.

pluggy registers, checks and orders the implementations; it does not await, so this module walks them
itself in pluggy's order (last registered first). Policies: collect, first, filter, veto.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import types
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import pluggy
from pydantic import BaseModel, ValidationError

from tavern_host import hookspecs
from tavern_host.context import PluginContext
from tavern_host.contracts.errors import DeadlineExceeded, NotFound, PluginFailure, Vetoed, describe
from tavern_host.contracts.hooks import HookInfo, Veto
from tavern_host.contracts.plugins import HookImplInfo, Problem
from tavern_host.hooks.catalogue import Catalogue
from tavern_host.plugins.failures import one_line
from tavern_host.runtime.copying import SHARED, duplicate
from tavern_host.runtime.in_flight import InFlight, expire
from tavern_host.runtime.in_process import PluginRuntime
from tavern_host.runtime.threads import ended, is_being_cancelled, run_in_thread
from tavern_host.runtime.timing import resumed

T = TypeVar("T")

DEADLINE = 10.0
"""Seconds that an async implementation, or a declaration hook on its thread, may take."""

_ON_THREAD = frozenset({"collect"})
"""Policies whose `def` implementations run on a thread: declarations and lifecycle, never hot paths."""


class Implementation:
    """One hook implementation, ready to be called: which arguments it takes is settled once.

    `invoke(arguments)` calls it with those of the arguments that it has a parameter for; the result may
    be a coroutine.
    """

    __slots__ = ("context", "function", "in_flight", "info", "invoke", "runtime")

    def __init__(
        self,
        info: HookImplInfo,
        function: Callable[..., Any],
        context: PluginContext,
        runtime: PluginRuntime,
        in_flight: InFlight,
    ) -> None:
        self.info = info
        self.function = function
        self.context = context
        self.runtime = runtime
        self.in_flight = in_flight
        self.invoke = _invoker(function, info.arguments, context)


Invoke = Callable[[Mapping[str, Any]], Any]


def _invoker(function: Callable[..., Any], names: list[str], context: PluginContext) -> Invoke:
    """Return a call of `function` with named arguments; the usual small numbers of them without a loop."""
    taken = tuple(name for name in names if name != "context")
    fixed = {"context": context} if "context" in names else {}
    if (
        fixed
        or len(taken) > 2
        or any(p.kind is p.KEYWORD_ONLY for p in inspect.signature(function).parameters.values())
    ):
        return lambda arguments: function(**{name: arguments[name] for name in taken}, **fixed)
    if not taken:
        return lambda arguments: function()
    if len(taken) == 1:
        (only,) = taken
        return lambda arguments: function(arguments[only])
    first, second = taken
    return lambda arguments: function(arguments[first], arguments[second])


class _PluginManager(pluggy.PluginManager):
    """Does not look for hooks among what every object has; that is most of what there is to look at."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        return None if name.startswith("__") else super().parse_hookimpl_opts(plugin, name)


class _Registered:
    """What pluggy is given for a plugin: the admitted functions as attributes, equal to nothing but itself."""

    def __init__(self, functions: dict[str, Callable[..., Any]]) -> None:
        vars(self).update(functions)


class Answer:
    """One plugin's answer to a hook, and a way to reach the handlers it names (`context.Contribution`)."""

    __slots__ = ("_context", "_in_flight", "_runtime", "code", "plugin", "value")

    def __init__(self, value: Any, runtime: PluginRuntime, context: PluginContext, in_flight: InFlight) -> None:
        self.plugin = in_flight.plugin
        self.code = in_flight.code
        self.value = value
        self._runtime = runtime
        self._context = context
        self._in_flight = in_flight

    def open(self, handler: str, *arguments: Any) -> Any:
        """Return a new object of the plugin's class `handler`."""
        self._in_flight.check()
        return self._runtime.open(handler, *arguments)

    async def call(self, handler: str, *arguments: Any) -> Any:
        """Call the plugin's function `handler`, with its context last."""
        self._in_flight.check()
        result = self._runtime.call(handler, *arguments, self._context)
        if not isinstance(result, Coroutine):
            return result
        with self._in_flight.use_for_call(handler):
            return await result

    def node_runner(self, definition: Any) -> Any:
        """Return the runner of one of the plugin's node types."""
        self._in_flight.check()
        return self._runtime.node_runner(definition)

    def in_use(self, cancel: Callable[[], object] | None = None) -> contextlib.AbstractContextManager[None]:
        """Return what keeps the plugin from being unloaded."""
        return self._in_flight.use_elsewhere(cancel)


class Dispatcher:
    """All active hook implementations, prepared per hook; rebuilt when the set of plugins changes.

    `report` is told of each failure: plugin, hook, exception; `tell` of what else is wrong with an answer.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        report: Callable[[str, str, BaseException], None],
        tell: Callable[[str, Problem], None],
    ) -> None:
        self.catalogue = catalogue
        self._report = report
        self._tell = tell
        self._prepared: dict[str, tuple[Implementation, ...]] = {}
        self.revision = 0

    def rebuild(self, plugins: Iterable[tuple[str, list[Implementation]]]) -> None:
        """Take over the implementations of these plugins, in registration order."""
        manager = _PluginManager("tavern")
        manager.add_hookspecs(hookspecs)
        if self.catalogue.published_specs:
            manager.add_hookspecs(
                type("published", (), {k: staticmethod(f) for k, f in self.catalogue.published_specs.items()})
            )
        known: dict[tuple[str, int], Implementation] = {}
        for plugin, implementations in plugins:
            manager.register(_Registered({i.info.function: i.function for i in implementations}), plugin)
            known.update({(plugin, id(i.function)): i for i in implementations})
        self._prepared = {}
        for name in self.catalogue.hooks:
            hookimpls = reversed(getattr(manager.hook, name).get_hookimpls())
            called = [known[impl.plugin_name, id(impl.function)] for impl in hookimpls]
            if called:
                self._prepared[name] = tuple(called)
        self.revision += 1

    def implemented(self, hook: str) -> bool:
        """Return whether any active plugin implements the hook."""
        return hook in self._prepared

    def implementations(self, hook: str) -> tuple[Implementation, ...]:
        """Return the implementations of a hook in the order in which they are called."""
        return self._prepared.get(hook, ())

    def _in_turn(self, hook: str) -> Iterator[Implementation]:
        """Yield the implementations of a hook, each as it is when its turn comes.

        While others are awaited, a plugin may be taken out, or another load of it put in its place.
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

    async def collect(self, hook: str, arguments: dict[str, Any]) -> list[Answer]:
        """Return all answers other than None; a failure is reported and the rest go on."""
        answers = []
        for implementation in self._in_turn(hook):
            try:
                value = duplicate(await self.call_one(implementation, _own(arguments)))
            except Exception as error:
                self._report(implementation.info.plugin, hook, error)
                continue
            if value is not None and (value := self._items(implementation.info, value)):
                answers.append(_answer(implementation, value))
        return answers

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
        hint = "what is right is used"
        self._tell(
            info.plugin, Problem(message=one_line(f"{info.hook}: {message}"), hint=hint, file=info.file, line=info.line)
        )

    async def first(self, hook: str, arguments: dict[str, Any]) -> Answer | None:
        """Return the first answer other than None; a failure is reported and the next one is asked."""
        is_mutable = any(type(value) not in SHARED for value in arguments.values())
        for implementation in self._prepared.get(hook, ()):
            if implementation.in_flight.is_closed:  # it was taken out while others were awaited
                continue
            try:
                value = implementation.invoke(_own(arguments) if is_mutable else arguments)
                if type(value) is types.CoroutineType:
                    try:
                        suspended_on = value.send(None)
                    except StopIteration as finished:
                        value = finished.value
                    else:
                        value = await _go_on(value, suspended_on, DEADLINE, implementation)
            except Exception as error:
                self._report(implementation.info.plugin, hook, error)
                continue
            except (SystemExit, KeyboardInterrupt, asyncio.CancelledError) as error:
                self._report(implementation.info.plugin, hook, _ended(implementation.info, error))
                continue
            if value is not None:
                return _answer(implementation, duplicate(value))
        return None

    async def filter(self, hook: str, value: T, arguments: dict[str, Any]) -> T:
        """Return `value` after every implementation had its say; see `context.Hooks.filter`.

        With the policy `veto` a failure denies: fail closed. Each plugin gets a copy of its own.
        """
        spec = self._spec(hook)
        for implementation in self._in_turn(hook):
            plugin = implementation.info.plugin
            try:
                given = _own({spec.arguments[0]: value, **arguments})
                answer = await self.call_one(implementation, given)
                if answer is not None and not isinstance(answer, Veto):
                    answer = _checked(answer, type(value), f"{hook} of {plugin}")
            except Exception as error:
                self._report(plugin, hook, error)
                if spec.policy == "veto":
                    raise Vetoed(
                        f"{plugin} failed in {hook}, so this is refused: {describe(error)}", plugin=plugin
                    ) from error
                continue
            if isinstance(answer, Veto):
                raise Vetoed(f"{plugin} refused: {answer.reason}", plugin=plugin, reason=answer.reason)
            if answer is not None:
                value = answer
        return value

    async def call_one(
        self, implementation: Implementation, arguments: dict[str, Any], *, deadline: float | None = None
    ) -> Any:
        """Call one implementation with the arguments that it takes.

        Async ones, and declarations on their thread, have `deadline` seconds (`DEADLINE`, where not given).
        """
        info = implementation.info
        deadline = DEADLINE if deadline is None else deadline
        try:
            if not info.is_async and self._spec(info.hook).policy in _ON_THREAD:
                what = f"{info.hook} of {info.plugin}"
                with implementation.in_flight.use():
                    value = await run_in_thread(lambda: implementation.invoke(arguments), deadline=deadline, what=what)
            else:
                value = implementation.invoke(arguments)
            if not isinstance(value, Coroutine):
                return value
            try:
                suspended_on = value.send(None)
            except StopIteration as finished:
                return finished.value
            return await _go_on(value, suspended_on, deadline, implementation)
        except (SystemExit, KeyboardInterrupt, asyncio.CancelledError) as error:
            raise _ended(info, error) from error

    def _spec(self, hook: str) -> HookInfo:
        try:
            return self.catalogue.hooks[hook]
        except KeyError:
            raise NotFound(f"there is no hook {hook!r}") from None


def _answer(implementation: Implementation, value: Any) -> Answer:
    return Answer(value, implementation.runtime, implementation.context, implementation.in_flight)


def _ended(info: HookImplInfo, error: BaseException) -> PluginFailure:
    """Return what is told of a plugin that raised what ends more than itself; re-raises a true cancellation."""
    if not isinstance(error, asyncio.CancelledError):
        return ended(f"{info.hook} of {info.plugin}", error)
    if is_being_cancelled():
        raise error
    return PluginFailure(f"{info.hook} of {info.plugin} waited for something that was cancelled")


async def _go_on(
    coroutine: Coroutine[Any, Any, Any], suspended_on: Any, deadline: float, implementation: Implementation
) -> Any:
    """Run a coroutine that was stepped once and suspended to its end: in this task, under a timer."""
    timer = asyncio.timeout(deadline)
    try:
        async with timer:
            with implementation.in_flight.use(lambda: expire(timer)):
                return await resumed(coroutine, suspended_on, timer)
    except TimeoutError:
        if timer.expired():
            what = f"{implementation.info.hook} of {implementation.info.plugin}"
            raise DeadlineExceeded(f"{what} did not end within {deadline:g} s") from None
        raise


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


def _own(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: duplicate(value) for name, value in arguments.items()}
