"""One run being carried out: chooses what has to run, runs it, and gives the interface's outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import JsonValue

from tavern_engine.cache.cache import OutputCache
from tavern_engine.cache.disk.recall import UNREAD, Recall
from tavern_engine.compile.bound import Bound
from tavern_engine.compile.plan import Role
from tavern_engine.run.account import State
from tavern_engine.run.execution import Execution
from tavern_engine.run.feed import shown
from tavern_engine.run.gather import NOTHING, Gatherer
from tavern_engine.run.scope import Scope
from tavern_engine.run.selection import Selection, changed, everything, needed
from tavern_engine.run.wireform import json_form
from tavern_host.contracts.errors import ErrorInfo, InvalidInput
from tavern_host.contracts.names import did_you_mean

Results = Mapping[str, dict[str, Any]]


class Activity:
    """A run of a bound plan. `finished` are outputs that nodes gave before the run was interrupted, by id;
    `targets` the nodes that are wanted; `recall` finds what memory does not know. Raises `InvalidInput` for a target
    that does not exist."""

    def __init__(
        self,
        bound: Bound,
        scope: Scope,
        *,
        cache: OutputCache | None = None,
        recall: Recall | None = None,
        finished: Results | None = None,
        targets: list[str] | None = None,
    ) -> None:
        self._bound = bound
        self._scope = scope
        self._cache = cache
        self._disk = recall
        self._finished = finished or {}
        self._targets = _places(bound, targets or [])
        self._execution: Execution | None = None
        self._is_stopped = False
        self._interface = self._streams_out()
        scope.interface = self._interface

    @property
    def streams(self) -> frozenset[str]:
        """The interface outputs that go out as streams."""
        return frozenset(key for outputs in self._interface.values() for key, _ in outputs)

    @property
    def error(self) -> ErrorInfo | None:
        """The failure that is the run's own."""
        return self._execution.error if self._execution is not None else None

    async def run(self) -> None:
        """Run all that is needed; returns when nothing is left or `stop` was called. Cancelling stops too."""
        if self._is_stopped:
            return
        scope, level = self._scope, self._bound.plan.level
        scope.feed.begin()
        selection = self._selection() if self._disk is None else await self._recalled(self._disk)
        if self._is_stopped:
            return
        self._tell_known(selection)
        signatures = self._bound.signatures if self._cache is not None or scope.feed.journal is not None else None
        execution = self._execution = Execution(level, self._bound.written, signatures, selection, scope)
        try:
            await execution.run()
        finally:
            await scope.close()
            scope.feed.yields.close()
            scope.feed.flush()
            scope.feed.account.close()
            if execution.stragglers:
                count = execution.stragglers
                nodes = "a node ignores" if count == 1 else f"{count} nodes ignore"
                what = f"{nodes} being interrupted and may still be running"
                scope.log.warning("run %s: %s", scope.run_id, what)

    def stop(self) -> None:
        """Interrupt the nodes that run, in the middle of an `await` if need be, and begin no others."""
        self._is_stopped = True
        if self._execution is not None:
            self._execution.stop()

    def outputs(self) -> dict[str, JsonValue]:
        """Return the interface outputs that there are: those whose sources all gave something."""
        found: dict[str, JsonValue] = {}
        if self._execution is None:
            return found
        level = self._bound.plan.level
        gatherer: Gatherer = self._execution.gatherer
        for index in self._bound.plan.outputs:
            node = level.nodes[index]
            for key, value in node.written.items():
                found[key] = json_form(value)
            for item in node.inputs:
                value = gatherer.value(item)
                if value is not NOTHING:
                    found[item.key] = json_form(value)
                else:
                    found.pop(item.key, None)
        return found

    # --- choosing ---------------------------------------------------------------------------------

    async def _recalled(self, disk: Recall) -> Selection:
        """Return the selection after the disk was asked; what of its outputs is needed has been read."""
        signatures, numbers = self._bound.signatures, self._bound.plan.level.numbers
        await disk.ask(s for s, number in zip(signatures, numbers, strict=True) if s is not None and number >= 0)
        while True:
            selection = self._selection()
            used = [signatures[index] for index in (*selection.known, *selection.unasked)]
            unread = [s for s, outputs in zip(used, selection.known.values(), strict=False) if outputs is UNREAD]
            if not unread:
                disk.used([s for s in used if s is not None])
                return selection
            await disk.read(s for s in unread if s is not None)

    def _selection(self) -> Selection:
        level, signatures, cone, cache = self._bound.plan.level, self._bound.signatures, self._bound.cone, self._cache
        is_cold = cache is None or (cache.has_none(signatures) and not self._disk)
        is_whole = not self._targets and not self._finished
        if is_cold and is_whole:
            return everything(level)
        known = self._known(None if is_cold else cache)
        if is_whole and not level.branching and not self._disk and cache is not None and cone is not None:
            # What a person changes is mostly new, with all that comes after it.
            selection = changed(cone, known) if cache.has_none(map(signatures.__getitem__, cone.order)) else None
            if selection is not None:
                return selection
        return needed(level, known, self._targets)

    def _known(self, cache: OutputCache | None) -> Callable[[int], dict[str, Any] | None]:
        level, signatures, finished = self._bound.plan.level, self._bound.signatures, self._finished
        nodes, numbers, disk = level.nodes, level.numbers, self._disk

        def known(index: int) -> dict[str, Any] | None:
            if finished:
                node = nodes[index]
                if node.id in finished and node.role in (Role.NODE, Role.LOOP):
                    return finished[node.id]
            signature = signatures[index]
            if cache is None or signature is None or numbers[index] < 0:
                return None
            outputs = disk.get(signature) if disk is not None else None
            return outputs if outputs is not None else cache.get(signature)

        return known

    def _tell_known(self, selection: Selection) -> None:
        """Take down the nodes that need not run."""
        feed, numbers = self._scope.feed, self._bound.plan.level.numbers
        states = feed.account.states
        for index in selection.left_out:
            if numbers[index] >= 0:
                states[numbers[index]] = State.SKIPPED
        feed.known((numbers[index], outputs) for index, outputs in selection.known.items() if numbers[index] >= 0)
        if selection.unasked:
            feed.account.recall = self._recall(selection.unasked)
        unasked = list(map(numbers.__getitem__, selection.unasked))
        feed.cached(unasked if -1 not in unasked else [number for number in unasked if number >= 0])

    def _recall(self, unasked: list[int]) -> Callable[[int], dict[str, JsonValue] | None]:
        """Return what looks the outputs of nodes up when somebody wants to see them: those that were kept when the run
        was interrupted, else those that the cache knows."""
        plan, signatures, finished, cache = self._bound.plan, self._bound.signatures, self._finished, self._cache
        numbers, ids, streaming = plan.level.numbers, plan.ids, plan.streaming
        found: dict[int, bytes | None] = {}  # made when the first one is asked for: most runs are never looked at

        def recall(number: int) -> dict[str, JsonValue] | None:
            if not found:
                found.update((numbers[index], signatures[index]) for index in unasked)
            if number not in found:
                return None
            outputs, signature = finished.get(ids[number]), found[number]
            if outputs is None and cache is not None and signature is not None:
                outputs = cache.get(signature)
            return shown(outputs, streaming.get(number, ())) if outputs is not None else None

        return recall

    def _streams_out(self) -> dict[tuple[int, str], list[Any]]:
        """Return by node and output which interface outputs a stream goes out by, and what converts its items."""
        found: dict[tuple[int, str], list[Any]] = {}
        for index in self._bound.plan.outputs:
            for item in self._bound.plan.level.nodes[index].inputs:
                for feed in item.feeds:
                    if feed.collects:
                        found.setdefault((feed.source, feed.key), []).append((item.key, feed.convert))
        return found


def check_targets(bound: Bound, targets: list[str]) -> None:
    """Raise `InvalidInput` for a target that does not exist."""
    _places(bound, targets)


def _places(bound: Bound, targets: list[str]) -> list[int]:
    known = bound.plan.targets
    wrong = [target for target in targets if target not in known]
    if wrong:
        near = did_you_mean(wrong[0], known)
        raise InvalidInput(f"there is no node {wrong[0]!r} that could be a target{near}", targets=list(wrong))
    return [known[target] for target in targets]
