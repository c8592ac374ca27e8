"""Executes one run: selects the nodes that have to run, schedules them, and returns the interface outputs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import groupby, islice
from typing import Any

from pydantic import JsonValue

from tavern_engine.api.clusters import NODE_CLUSTER
from tavern_engine.cache.cache import OutputCache
from tavern_engine.cache.disk.lookup import UNREAD, CacheLookup
from tavern_engine.compile.bound import BoundPlan
from tavern_engine.compile.plan import Role
from tavern_engine.run.event_batch import shown
from tavern_engine.run.inputs import MISSING
from tavern_engine.run.json_values import json_form
from tavern_engine.run.node_table import State
from tavern_engine.run.scheduler import Scheduler
from tavern_engine.run.scope import Cluster, Scope
from tavern_engine.run.selection import Selection, after_known, changed, everything, needed
from tavern_host.context import Services
from tavern_host.contracts.errors import ErrorInfo, InvalidInput
from tavern_host.contracts.names import did_you_mean

Results = Mapping[str, dict[str, Any]]

AT_ONCE = 500
"""How many reused nodes are published in one step of the event loop."""


class RunExecution:
    """The execution of a bound plan. `finished` are outputs from before the run was interrupted, by node id; `targets`
    the nodes that are wanted; `lookup` finds in the disk cache what memory does not have. Raises `InvalidInput` for a
    target that does not exist."""

    def __init__(
        self,
        bound: BoundPlan,
        scope: Scope,
        *,
        cache: OutputCache | None = None,
        lookup: CacheLookup | None = None,
        finished: Results | None = None,
        targets: list[str] | None = None,
    ) -> None:
        self._bound = bound
        self._scope = scope
        self._cache = cache
        self._disk = lookup
        self._finished = finished or {}
        self._targets = places_of(bound, targets) if targets else []
        self._scheduler: Scheduler | None = None
        self._is_stopped = False
        self._interface = self._streams_out()
        scope.interface = self._interface

    @property
    def streams(self) -> frozenset[str]:
        """The interface outputs that are published as streams."""
        return frozenset(key for outputs in self._interface.values() for key, _ in outputs)

    @property
    def types(self) -> list[tuple[str, str]]:
        """By number the plugin and the type of each node; empty for a large run."""
        return self._bound.plan.types

    @property
    def plugins(self) -> set[str]:
        """The plugins that its nodes are of."""
        return {one.plugin for one in self._bound.plan.contributions}

    @property
    def error(self) -> ErrorInfo | None:
        """The failure that is the run's own."""
        return self._scheduler.error if self._scheduler is not None else None

    async def run(self, services: Services | None = None) -> None:
        """Run the selected nodes, some on the cluster of `services` if there is one; returns when none is left or
        `stop` was called. Cancelling stops too."""
        if self._is_stopped:
            return
        self._scope.cluster = None if services is None else await _cluster_of(services)
        scope, level = self._scope, self._bound.plan.level
        scope.events.begin()
        selection = self._selection() if self._disk is None else await self._selection_with_disk(self._disk)
        if self._is_stopped:
            return
        signatures = self._bound.signatures if self._cache is not None or scope.events.journal is not None else None
        scheduler = self._scheduler = Scheduler(level, self._bound.written, signatures, selection, scope)
        try:
            await self._publish_reused(selection)
            await scheduler.run()
        finally:
            await scope.close()
            scope.events.stream_messages.close()
            scope.events.reports.close()
            scope.events.close()
            await scope.blobs.held()
            if scheduler.stragglers:
                count = scheduler.stragglers
                nodes = "a node ignores" if count == 1 else f"{count} nodes ignore"
                what = f"{nodes} being interrupted and may still be running"
                scope.log.warning("run %s: %s", scope.run_id, what)

    def stop(self) -> None:
        """Interrupt the running nodes, in the middle of an `await` if need be, and begin no others."""
        self._is_stopped = True
        if self._scheduler is not None:
            self._scheduler.stop()

    def outputs(self) -> dict[str, JsonValue]:
        """Return the interface outputs whose sources gave a value."""
        found: dict[str, JsonValue] = {}
        if self._scheduler is None:
            return found
        level = self._bound.plan.level
        resolver = self._scheduler.executor.resolver
        see = self._scope.blobs.see
        for index in self._bound.plan.outputs:
            node = level.nodes[index]
            for key, value in node.written.items():
                found[key] = json_form(value, see)
            for item in node.inputs:
                value = resolver.value(item)
                if value is not MISSING:
                    found[item.key] = json_form(value, see)
                else:
                    found.pop(item.key, None)
        return found

    # --- selection --------------------------------------------------------------------------------

    async def _selection_with_disk(self, disk: CacheLookup) -> Selection:
        """Return the selection after the disk cache was queried; the outputs that it needs have been read."""
        signatures, numbers = self._bound.signatures, self._bound.plan.level.numbers
        await disk.query(s for s, number in zip(signatures, numbers, strict=True) if s is not None and number >= 0)
        while True:
            selection = self._selection()
            used = [signatures[index] for index in (*selection.known, *selection.unasked)]
            unread = [s for s, outputs in zip(used, selection.known.values(), strict=False) if outputs is UNREAD]
            if not unread:
                disk.touch([s for s in used if s is not None])
                return selection
            await disk.read(s for s in unread if s is not None)

    def _selection(self) -> Selection:
        level, signatures, cone, cache = self._bound.plan.level, self._bound.signatures, self._bound.cone, self._cache
        is_cold = cache is None or (cache.has_none(signatures) and not self._disk)
        is_whole = not self._targets and not self._finished and not self._bound.given
        if is_cold and is_whole:
            return everything(level)
        known = self._known(None if is_cold else cache)
        if is_whole and not level.branching and not self._disk and cache is not None and cone is not None:
            # The values that a person changes are mostly new, and so is all that depends on them.
            selection = changed(cone, known) if cache.has_none(map(signatures.__getitem__, cone.order)) else None
            if selection is not None:
                return selection
        return needed(level, known, self._targets, self._bound.given)

    def _known(self, cache: OutputCache | None) -> Callable[[int], dict[str, Any] | None]:
        level, signatures, finished = self._bound.plan.level, self._bound.signatures, self._finished
        given = self._bound.given
        nodes, numbers, disk = level.nodes, level.numbers, self._disk
        has_blobs = self._scope.blobs.has_all

        def known(index: int) -> dict[str, Any] | None:
            if index in given:
                return given[index]
            if finished:
                node = nodes[index]
                if node.id in finished and node.role in (Role.NODE, Role.LOOP):
                    return finished[node.id]
            signature = signatures[index]
            if cache is None or signature is None or numbers[index] < 0:
                return None
            outputs = disk.get(signature) if disk is not None else None
            outputs = outputs if outputs is not None else cache.get(signature)
            return outputs if outputs is None or has_blobs(outputs) else None

        return known

    async def _publish_reused(self, selection: Selection) -> None:
        """Publish the nodes that need not run, each after those that feed it; of many, others get their turn."""
        events, level, known = self._scope.events, self._bound.plan.level, selection.known
        if not (known or selection.unasked or selection.left_out):
            return
        numbers = level.numbers
        skipped = [numbers[index] for index in selection.left_out if numbers[index] >= 0]
        events.table.mark(skipped, State.SKIPPED)
        if selection.unasked:
            events.table.load_output = self._loader(selection.unasked)
        late, given = after_known(level, selection), self._bound.given
        first = selection.unasked if not late else [index for index in selection.unasked if index not in late]
        unread = list(map(numbers.__getitem__, first))
        events.reused_unread(unread if -1 not in unread else [number for number in unread if number >= 0])
        shown = sorted((i for i in (*known, *late) if numbers[i] >= 0), key=level.ranks.__getitem__)
        for (is_late, are_given), group in groupby(shown, lambda index: (index in late, index in given)):
            if is_late:
                events.reused_unread(list(map(numbers.__getitem__, group)))
                continue
            while part := [(numbers[index], known[index]) for index in islice(group, AT_ONCE)]:
                events.reused(part, are_given=are_given)
                if len(part) == AT_ONCE:
                    await asyncio.sleep(0)

    def _loader(self, unasked: list[int]) -> Callable[[int], dict[str, JsonValue] | None]:
        """Return a function that looks up the outputs of reused nodes when they are to be shown: those from before the
        run was interrupted, else those of the cache."""
        plan, signatures, finished, cache = self._bound.plan, self._bound.signatures, self._finished, self._cache
        numbers, ids, streaming = plan.level.numbers, plan.ids, plan.streaming
        found: dict[int, bytes | None] = {}  # built on first use: most runs are never looked at

        def load(number: int) -> dict[str, JsonValue] | None:
            if not found:
                found.update((numbers[index], signatures[index]) for index in unasked)
            if number not in found:
                return None
            outputs, signature = finished.get(ids[number]), found[number]
            if outputs is None and cache is not None and signature is not None:
                outputs = cache.get(signature)
            return shown(outputs, streaming.get(number, ())) if outputs is not None else None

        return load

    def _streams_out(self) -> dict[tuple[int, str], list[Any]]:
        """Return by node and output the interface outputs that publish a stream, and what converts its items."""
        found: dict[tuple[int, str], list[Any]] = {}
        for index in self._bound.plan.outputs:
            for item in self._bound.plan.level.nodes[index].inputs:
                for edge in item.edges:
                    if edge.collects:
                        found.setdefault((edge.source, edge.key), []).append((item.key, edge.convert))
        return found


async def _cluster_of(services: Services) -> Cluster | None:
    """Return the cluster that is set up, if there is one."""
    if not services.has(NODE_CLUSTER):
        return None
    service = services.get(NODE_CLUSTER)
    takes = await service.takes()
    return Cluster(service, takes == "pure") if takes != "none" else None


def places_of(bound: BoundPlan, targets: list[str]) -> list[int]:
    """Return the nodes that are targets. Raises `InvalidInput` for one that does not exist."""
    known = bound.plan.targets
    wrong = [target for target in targets if target not in known]
    if wrong:
        near = did_you_mean(wrong[0], known)
        raise InvalidInput(f"there is no node {wrong[0]!r} that could be a target{near}", targets=list(wrong))
    return [known[target] for target in targets]
