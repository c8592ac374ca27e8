"""One pass over a workflow at the cluster: sends groups of nodes as tasks, takes what they give, sends again what was
lost."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterable
from itertools import count
from typing import Any, Protocol

from dask.task_spec import Task, TaskRef
from distributed import Client, Future, as_completed
from distributed.scheduler import KilledWorker

from tavern_dask.code import Shipping
from tavern_dask.tasks import UNKNOWN, tasks_of
from tavern_dask.worker import Holding, Outcome, Placed, Work, report, run_work, stop
from tavern_host.contracts.clusters import NodeSource, RemoteGroup, RemoteNode, RemoteResult
from tavern_host.contracts.errors import ServiceUnavailable, describe, error_info

MOST_LOSSES = 4
"""How often a node is sent again at most that the scheduler gave up, as that of a local cluster does after the
loss of two workers."""

RECENT = 100
"""How many nodes whose values came back keep them at the cluster too: what follows them may be on its way there."""

_CANCELS = 5.0
"""Seconds that workers have to hear that a pass was cancelled."""

_LEARNED = 0.2
"""The weight of a node's time in what is known of its type."""


class Connection(Protocol):
    """What is needed of the cluster."""

    seconds: dict[str, float]
    shipping: Shipping

    @property
    def connected(self) -> Client | None:
        """The client, if there is a connection now."""

    @property
    def waits(self) -> bool:
        """Whether nodes wait while there is no connection; else they fail."""

    async def client(self) -> Client:
        """Return a client that is connected. Raises `ServiceUnavailable`."""


class Pass:
    """The nodes and values of one pass. `futures` are by number of a node those of the tasks that have its values."""

    def __init__(self, cluster: Connection, pass_id: str) -> None:
        self._cluster = cluster
        self._id = pass_id
        self._nodes: dict[int, Placed] = {}
        self._futures: dict[int, Future] = {}
        self._sources: dict[str, NodeSource] = {}
        self._waiting: set[int] = set()
        self._in_turn = asyncio.Lock()
        self._recent: deque[int] = deque()
        self._losses: Counter[int] = Counter()
        self._count = count()

    async def run(self, group: RemoteGroup) -> AsyncGenerator[list[RemoteResult], None]:
        """Run a group; yields results as they come."""
        left = {node.number for node in group.nodes}
        async with self._in_turn:  # what a group takes of another one is sent before it
            client, names = await self._shipped(group.sources)
            for node in group.nodes:
                self._nodes[node.number] = Placed(node, names[node.source], f"tavern-{self._id}-{next(self._count)}")
            self._waiting |= left
            completed = as_completed(self._send(client, left), loop=client.loop)
        reports: dict[Any, Any] = {}
        """By the key of what the host gets of a task the key of the task."""
        try:
            while left:
                try:
                    results, lost = await self._next(client, completed, reports)
                except (OSError, StopAsyncIteration):  # there is no scheduler
                    results, lost = [], {self._futures[number].key: None for number in left}
                again = set[int]()
                for key, error in lost.items():
                    more, failed = self._lost(error, {number for number in left if self._futures[number].key == key})
                    again |= more
                    results += failed
                if again:
                    client, _ = await self._shipped(tuple(self._sources.values()))
                    completed.update(self._send(client, again))
                new = [result for result in results if result.number in left]
                self._forget(new)
                left.difference_update(result.number for result in new)
                self._learn(new)
                if new:
                    yield new
        finally:
            self._waiting -= left
            completed.clear()
            if left:
                await self._cancel(client, {self._futures[number] for number in left if number in self._futures})

    async def close(self) -> None:
        """Give up all values, at the scheduler too."""
        once = [placed.key for placed in self._nodes.values() if not placed.node.may_repeat]
        self._futures.clear()
        self._nodes.clear()
        client = self._cluster.connected
        with contextlib.suppress(OSError):
            for key in once if client is not None else ():
                await client.scheduler.semaphore_close(name=key)  # type: ignore[union-attr]  # there is one

    async def _shipped(self, sources: tuple[NodeSource, ...]) -> tuple[Client, list[str]]:
        """Return a client whose workers have the code of these node types, and the names of these there."""
        client = await self._cluster.client()
        names = await self._cluster.shipping.ship(sources)
        self._sources |= zip(names, sources, strict=True)
        return client, names

    async def _next(
        self, client: Client, completed: Any, reports: dict[Any, Any]
    ) -> tuple[list[RemoteResult], dict[Any, BaseException | None]]:
        """Return the results of tasks that have ended, and by key why others gave none; None: the connection was lost.

        Raises `OSError` where the scheduler is gone, `StopAsyncIteration` where nothing is left to wait for.
        """
        finished: list[Future] = []
        lost: dict[Any, BaseException | None] = {}
        for future in (await anext(completed), *completed.next_batch(block=False)):
            if future.status in ("pending", "lost"):  # its worker was lost since then, and it is run again
                completed.add(future)
            elif future.status != "finished":
                error = await future.exception() if future.status == "error" else None
                lost[reports.get(future.key, future.key)] = error
            elif future.type is Holding:
                short = client.submit(report, future, key=("tavern-report", *future.key), pure=False)
                reports[short.key] = future.key
                completed.add(short)
            else:
                finished.append(future)
        results: list[RemoteResult] = []
        # Passes that gather at the same moment share one request, which must not end with the first that is cancelled.
        for given in await asyncio.shield(client.gather(finished, errors="skip")) if finished else ():
            results += given.results if isinstance(given, Outcome) else given
        return results, lost

    def _send(self, client: Client, numbers: Iterable[int]) -> list[Future]:
        """Send nodes, and those with values for them that are not there any more, as tasks; return these."""
        wanted, waiting = set(numbers), list(numbers)
        while waiting:
            for handle in self._nodes[waiting.pop()].node.handles:
                known = self._futures.get(handle.node)
                if handle.node not in wanted and (known is None or known.status in ("cancelled", "error")):
                    wanted.add(handle.node)
                    waiting.append(handle.node)
        nodes = [placed.node for number, placed in self._nodes.items() if number in wanted]
        name, graph, places = f"tavern-{self._id}-{next(self._count)}", dict[Any, Task](), dict[int, Any]()

        def seconds(node: RemoteNode) -> float:
            return self._cluster.seconds.get(self._nodes[node.number].code, UNKNOWN)

        for nodes_of_task in tasks_of(nodes, seconds):
            key = (name, nodes_of_task[0].number)
            own = {node.number for node in nodes_of_task}
            before = {handle.node for node in nodes_of_task for handle in node.handles} - own
            sources = {places[number] if number in places else self._futures[number].key for number in before}
            work = Work(self._id, [self._nodes[number] for number in own])
            graph[key] = Task(key, run_work, pickle.dumps(work), *map(TaskRef, sources))
            places |= dict.fromkeys(own, key)
        futures = dict(zip(graph, client.get(graph, list(graph), sync=False), strict=True))
        others = self._waiting.difference(numbers)  # who waits for them sends them
        self._futures |= {number: futures[key] for number, key in places.items() if number not in others}
        return list(futures.values())

    def _lost(self, error: BaseException | None, numbers: set[int]) -> tuple[set[int], list[RemoteResult]]:
        """Return which nodes of a task that gave nothing are sent again, and what became of the others."""
        is_worker = isinstance(error, KilledWorker)
        if error is None:
            reason = "the connection to the Dask scheduler was lost while it ran"
        elif is_worker:
            reason = f"the worker {error.last_worker.address} was lost while it ran"  # type: ignore[attr-defined]
            self._losses.update(numbers)
        else:
            reason = f"the cluster could not run it: {describe(error)}"
        again, failed = set[int](), []
        for number in numbers:
            said, losses = reason, self._losses[number]
            if is_worker or (error is None and self._cluster.waits):
                # Of what may not be run twice the scheduler remembers whether it was begun, and the worker asks it.
                if (is_worker or self._nodes[number].node.may_repeat) and losses <= MOST_LOSSES:
                    again.add(number)
                    continue
                said += f", for the {losses}th time" if losses > MOST_LOSSES else ", and it may not be run twice"
            failed.append(RemoteResult(number=number, error=error_info(ServiceUnavailable(said))))
        return again, failed

    def _learn(self, results: list[RemoteResult]) -> None:
        known = self._cluster.seconds
        for result in results:
            if result.work is not None:
                code, taken = self._nodes[result.number].code, result.work.seconds
                known[code] = known.get(code, taken) * (1 - _LEARNED) + taken * _LEARNED

    def _forget(self, results: list[RemoteResult]) -> None:
        """Give up the values of nodes that have come back, but those of the last: what is lost of them need not be made
        once more."""
        for result in results:
            self._waiting.discard(result.number)
            if not result.kept:
                self._recent.append(result.number)
        while len(self._recent) > RECENT:
            number = self._recent.popleft()
            if number not in self._waiting:  # it may have been sent once more
                self._futures.pop(number, None)

    async def _cancel(self, client: Client, futures: set[Future]) -> None:
        if client.status != "running":
            return
        with contextlib.suppress(Exception):  # what cannot be reached cannot be cancelled
            async with asyncio.timeout(_CANCELS):
                await client.cancel(list(futures), force=True)
                await client.run(stop, self._id, on_error="ignore")
