"""One pass over a workflow at the cluster: sends groups of nodes as tasks, takes what they give, sends again what was
lost."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from itertools import count
from typing import Any, Protocol

from dask.task_spec import Task, TaskRef
from distributed import Client, Future, as_completed
from distributed.scheduler import KilledWorker

from tavern_dask.code import Shipping
from tavern_dask.tasks import UNKNOWN, tasks_of
from tavern_dask.worker import Holding, Outcome, Placed, Work, report, run_work, stop
from tavern_host.contracts.clusters import RemoteGroup, RemoteNode, RemoteResult
from tavern_host.contracts.errors import ServiceUnavailable, describe, error_info

MOST_LOSSES = 10
"""How often a node is sent again at most whose worker, or the connection to it, was lost."""

_CANCELS = 5.0
"""Seconds that workers have to hear that a pass was cancelled."""

_LEARNED = 0.2
"""The weight of a node's time in what is known of its type."""


class Connection(Protocol):
    """What is needed of the cluster."""

    seconds: dict[str, float]
    shipping: Shipping

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
        self._losses: Counter[int] = Counter()
        self._count = count()

    async def run(self, group: RemoteGroup) -> AsyncGenerator[list[RemoteResult], None]:
        """Run a group; yields results as they come."""
        client = await self._cluster.client()
        names = await self._cluster.shipping.ship(group.sources)
        for node in group.nodes:
            self._nodes[node.number] = Placed(node, names[node.source], f"tavern-{self._id}-{next(self._count)}")
        left = {node.number for node in group.nodes}
        sent = self._send(client, left)
        completed = as_completed(sent.values(), loop=client.loop)
        reports: dict[Any, Any] = {}
        """By the key of what the host gets of a task the key of the task."""
        try:
            while left:
                done = [await anext(completed), *completed.next_batch(block=False)]
                finished, results = [], []
                for future in done:
                    if future.status != "finished":
                        key = reports.get(future.key, future.key)
                        again, failed = await self._lost(future, {n for n in left if self._futures[n].key == key})
                        results += failed
                        if again:
                            client = await self._cluster.client()
                            completed.update(self._send(client, again).values())
                    elif future.type is Holding:
                        short = client.submit(report, future, key=("tavern-report", *future.key), pure=False)
                        reports[short.key] = future.key
                        completed.add(short)
                    else:
                        finished.append(future)
                for given in await client.gather(finished, errors="skip"):
                    results += given.results if isinstance(given, Outcome) else given
                new = [result for result in results if result.number in left]
                left.difference_update(result.number for result in new)
                self._learn(new)
                if new:
                    yield new
        finally:
            completed.clear()
            if left:
                await self._cancel(client, {self._futures[number] for number in left if number in self._futures})

    async def close(self) -> None:
        """Give up all values, at the scheduler too."""
        once = [placed.key for number, placed in self._nodes.items() if not placed.node.may_repeat]
        self._futures.clear()
        self._nodes.clear()
        with contextlib.suppress(Exception):  # there may be no connection any more
            client = await self._cluster.client() if once else None
            for key in once:
                assert client is not None
                await client.scheduler.semaphore_close(name=key)

    def _send(self, client: Client, numbers: Iterable[int]) -> dict[Any, Future]:
        """Send nodes, and those with values for them that are not there any more, as tasks; return these by key."""
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
        self._futures |= {number: futures[key] for number, key in places.items()}
        return futures

    async def _lost(self, future: Future, numbers: set[int]) -> tuple[set[int], list[RemoteResult]]:
        """Return which nodes of a task that gave nothing are sent again, and what became of the others."""
        if not numbers:
            return set(), []
        error = await future.exception() if future.status == "error" else None
        if error is None:
            reason = "the connection to the Dask scheduler was lost while it ran"
        elif isinstance(error, KilledWorker):
            reason = f"the worker {error.last_worker.address} was lost while it ran"
        else:
            reason = f"the cluster could not run it: {describe(error)}"
        may_repeat = (error is None and self._cluster.waits) or isinstance(error, KilledWorker)
        again, failed = set[int](), []
        self._losses.update(numbers)
        for number in numbers:
            said = reason
            if may_repeat and self._nodes[number].node.may_repeat:
                if self._losses[number] <= MOST_LOSSES:
                    again.add(number)
                    continue
                said = f"{reason}, for the {self._losses[number]}th time"
            elif may_repeat:
                said = f"{reason}, and it may not be run twice"
            failed.append(RemoteResult(number=number, error=error_info(ServiceUnavailable(said))))
        return again, failed

    def _learn(self, results: list[RemoteResult]) -> None:
        known = self._cluster.seconds
        for result in results:
            if result.work is not None:
                code, taken = self._nodes[result.number].code, result.work.seconds
                known[code] = known.get(code, taken) * (1 - _LEARNED) + taken * _LEARNED

    async def _cancel(self, client: Client, futures: set[Future]) -> None:
        with contextlib.suppress(Exception):  # what cannot be reached cannot be cancelled
            async with asyncio.timeout(_CANCELS):
                await client.cancel(list(futures), force=True)
                await client.run(stop, self._id, on_error="ignore")
