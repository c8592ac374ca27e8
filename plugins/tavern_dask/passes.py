"""One pass over a workflow at the cluster: sends groups of nodes as tasks, takes what they give, sends again what was
lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Collection
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from dask.task_spec import Task, TaskRef
from distributed import Client, Future, as_completed
from distributed.scheduler import KilledWorker

from tavern_dask.code import Shipping
from tavern_dask.tasks import UNKNOWN, tasks_of
from tavern_dask.worker import REPORT, Contents, Holding, Outcome, Placed, Work, report, run_work, stop
from tavern_engine.api.clusters import NodeSource, RemoteGroup, RemoteNode, RemoteResult, Values
from tavern_host.contracts.errors import ServiceUnavailable, describe, error_info
from tavern_host.runtime.codec import encode

MOST_LOSSES = 4
"""How often a node may have been running at a worker that was lost, each time that the scheduler gives it up: after the
loss of two workers with a local cluster."""

MOST_IN_VAIN = 20
"""How often the scheduler may give up a node without that anything else of its pass ends meanwhile."""

_SHIPMENTS = 5
"""How often code is sent while workers are lost that it goes to."""

_SHORT = 0.05
"""Seconds until values are asked for once more that could not be had."""

RECENT = 100
"""How many nodes whose values came back keep them at the cluster too: what follows them may be on its way there."""

_CANCELS = 5.0
"""Seconds that scheduler and workers have to hear that a pass was cancelled, or has ended."""

_LEARNED = 0.2
"""The weight of a node's time in what is known of its type."""


class Connection(Protocol):
    """What is needed of the cluster."""

    seconds: dict[str, float]
    shipping: Shipping
    next_loss: asyncio.Future[None]
    """Ends when a worker is lost."""

    @property
    def connected(self) -> Client | None:
        """The client, if there is a connection now."""

    @property
    def waits(self) -> bool:
        """Whether nodes wait while there is no connection; else they fail."""

    async def client(self) -> Client:
        """Return a client that is connected. Raises `ServiceUnavailable`."""


@dataclass(eq=False, slots=True)
class Sent:
    """A node that was sent, and what is known of it."""

    placed: Placed
    contents: Contents = ({}, {}, {})
    future: Future | None = None
    """That of the task that has its values; None: they were given up."""
    is_awaited: bool = True
    gave_nothing: bool = False
    was_lost: bool = False
    begun_at: str = ""
    """The worker at which it began last, as one says that was lost before."""
    losses: int = 0
    in_vain: int = 0
    ended: int = 0
    """How many nodes of the pass had ended when it was lost."""

    @property
    def key(self) -> Any:
        """That of its task."""
        return self.future.key if self.future is not None else None

    def lost(self, worker: str, *, is_own: bool, ended: int) -> str | None:
        """Note that the scheduler gave the node up with a worker, by what happened to its own task or to one before it,
        after so many nodes of the pass had ended. Return why it is not sent again, if it is not."""
        self.was_lost = True
        if is_own and self.begun_at == worker:
            self.losses += 1
        self.in_vain = self.in_vain + 1 if self.ended == ended else 0
        self.ended = ended
        if self.losses > MOST_LOSSES:
            lost = f"the worker {worker} was lost while it ran, for the {self.losses}th time"
            return f"{lost}: it ends workers, or needs more memory than they have"
        if self.in_vain > MOST_IN_VAIN:
            times = f"{self.in_vain} times in a row"
            return f"workers that had it were lost {times}, and no other node ended; the last was {worker}"
        return None


class Pass:
    """The nodes and values of one pass."""

    def __init__(self, cluster: Connection, pass_id: str) -> None:
        self._cluster = cluster
        self._id = pass_id
        self._sent: dict[int, Sent] = {}
        self._sources: dict[str, NodeSource] = {}
        self._in_turn = asyncio.Lock()
        self._recent: deque[Sent] = deque()
        self._ended = 0
        self._count = count()

    def has_begun(self, number: int, worker: str) -> None:
        """Note that a node begins at a worker."""
        if (sent := self._sent.get(number)) is not None:
            sent.begun_at = worker

    async def run(self, group: RemoteGroup) -> AsyncGenerator[list[RemoteResult], None]:
        """Run a group; yields results as they come."""
        async with self._in_turn:  # what a group takes of another one is sent before it
            client, names = await self._shipped(group.sources)
            left = {}
            for node in group.nodes:
                key, bare = f"tavern-{self._id}-{next(self._count)}", {"inputs": Values(), "blobs": {}}
                placed = Placed(node=node.model_copy(update=bare), code=names[node.source], key=key)
                left[node.number] = Sent(placed, (node.inputs.encoded, node.inputs.binary, node.blobs))
            self._sent |= left
            results = self._undone(left)
            completed = as_completed(self._send(client, left), loop=client.loop)
        try:
            while True:
                new = [result for result in results if left.pop(result.number, None) is not None]
                self._take(new)
                if new:
                    yield new
                if not left:
                    return
                try:
                    results, lost = await self._next(client, completed)
                except (OSError, StopAsyncIteration):  # there is no scheduler
                    results, lost = [], {sent.key: None for sent in left.values()}
                again = []
                for number, sent in left.items() if lost else ():
                    if sent.key not in lost:
                        continue
                    if (said := self._reason(sent, lost[sent.key])) is None:
                        again.append(number)
                    else:
                        sent.gave_nothing = True
                        results.append(RemoteResult(number=number, error=error_info(ServiceUnavailable(said))))
                if again:
                    client, _ = await self._shipped(tuple(self._sources.values()))
                    results += self._undone(again)
                    completed.update(self._send(client, again))
        finally:
            completed.clear()
            for sent in left.values():
                sent.is_awaited = False
            if left and client.status == "running":
                await self._cancel(client, {sent.future for sent in left.values() if sent.future is not None})

    async def close(self) -> None:
        """Give up all values, at the scheduler too."""
        once = [sent.placed.key for sent in self._sent.values() if not sent.placed.node.may_repeat]
        self._sent.clear()
        self._recent.clear()
        client = self._cluster.connected
        with contextlib.suppress(OSError):
            async with asyncio.timeout(_CANCELS):
                for key in once if client is not None else ():
                    await client.scheduler.semaphore_close(name=key)  # type: ignore[union-attr]  # there is one

    async def _shipped(self, sources: tuple[NodeSource, ...]) -> tuple[Client, list[str]]:
        """Return a client whose workers have the code of these node types, and the names of these there."""
        for left in reversed(range(_SHIPMENTS)):
            client = await self._cluster.client()
            try:
                names = await self._cluster.shipping.ship(sources)
                break
            except OSError as error:  # a worker was lost meanwhile
                if not left:
                    raise ServiceUnavailable(f"code cannot be sent to the workers: {describe(error)}") from error
                await asyncio.sleep(_SHORT)
        self._sources |= zip(names, sources, strict=True)
        return client, names

    async def _next(self, client: Client, completed: Any) -> tuple[list[RemoteResult], dict[Any, BaseException | None]]:
        """Return the results of tasks that have ended, and by key why others gave none; None: the connection was lost.

        Raises `OSError` where the scheduler is gone, `StopAsyncIteration` where nothing is left to wait for.
        """
        finished: list[Future] = []
        lost: dict[Any, BaseException | None] = {}
        for future in (await anext(completed), *completed.next_batch(block=False)):
            if future.status in ("pending", "lost"):  # its worker was lost since then, and it is run again
                completed.add(future)
            elif future.status != "finished":
                key = future.key[1:] if future.key[0] == REPORT else future.key
                lost[key] = await future.exception() if future.status == "error" else None
            elif future.type is Holding:
                completed.add(client.submit(report, future, key=(REPORT, *future.key), pure=False))
            else:
                finished.append(future)
        results: list[RemoteResult] = []
        if finished:
            answer = await self._gathered(client, [future.key for future in finished])
            for outcome in answer.get("data", {}).values():
                results += outcome.results if isinstance(outcome, Outcome) else outcome
            if answer["status"] != "OK":  # a worker was lost with some of them
                await asyncio.sleep(_SHORT)
                completed.update(finished)
        return results, lost

    async def _gathered(self, client: Client, keys: list[Any]) -> dict[str, Any]:
        """Ask the scheduler for values; once more when a worker is lost, which it might try to reach for long."""
        asked, done = set[asyncio.Future[Any]](), set[asyncio.Future[Any]]()
        try:
            while not done:
                asked.add(asyncio.ensure_future(client.scheduler.gather(keys=keys)))
                loss = self._cluster.next_loss
                done, _ = await asyncio.wait({*asked, loss}, return_when=asyncio.FIRST_COMPLETED)
                done.discard(loss)
            answer: dict[str, Any] = done.pop().result()
            return answer
        finally:
            for each in asked:
                each.cancel()

    def _send(self, client: Client, numbers: Collection[int]) -> list[Future]:
        """Send nodes, and those with values for them that are not there any more, as tasks; return these.

        A node that was lost goes alone and says when it begins: so a loss counts against what ran, not what waited.
        """
        wanted = {number for number in numbers if not self._sent[number].gave_nothing}
        waiting = list(wanted)
        while waiting:
            for handle in self._sent[waiting.pop()].placed.node.handles:
                future = self._sent[handle.node].future
                if handle.node not in wanted and (future is None or future.status in ("cancelled", "error")):
                    wanted.add(handle.node)
                    waiting.append(handle.node)
        nodes = [sent.placed.node for number, sent in self._sent.items() if number in wanted]
        name, graph = f"tavern-{self._id}-{next(self._count)}", dict[Any, Task]()

        def seconds(node: RemoteNode) -> float:
            return self._cluster.seconds.get(self._sent[node.number].placed.code, UNKNOWN)

        tasks = tasks_of((node for node in nodes if not self._sent[node.number].was_lost), seconds)
        tasks += [[node] for node in nodes if self._sent[node.number].was_lost]
        places = {node.number: (name, task[0].number) for task in tasks for node in task}
        for task in tasks:
            key = places[task[0].number]
            before = {handle.node for node in task for handle in node.handles} - {node.number for node in task}
            sources = {places[number] if number in places else self._sent[number].key for number in before}
            sent = [self._sent[node.number] for node in task]
            work = Work(pass_id=self._id, nodes=tuple(one.placed for one in sent), is_noted=sent[0].was_lost)
            graph[key] = Task(key, run_work, encode(work, Work), [one.contents for one in sent], *map(TaskRef, sources))
        futures = dict(zip(graph, client.get(graph, list(graph), sync=False), strict=True))
        for number, key in places.items():
            if number in numbers or not self._sent[number].is_awaited:  # else it is sent where it is awaited
                self._sent[number].future = futures[key]
        return list(futures.values())

    def _undone(self, numbers: Collection[int]) -> list[RemoteResult]:
        """Return the results of nodes, each after those whose values it takes, that take one that is not there."""
        results = []
        for number in numbers:
            sent = self._sent[number]
            if any(self._sent[handle.node].gave_nothing for handle in sent.placed.node.handles):
                sent.gave_nothing = True
                results.append(RemoteResult(number=number, is_undone=True))
        return results

    def _reason(self, sent: Sent, error: BaseException | None) -> str | None:
        """Return why a node whose task gave nothing fails; None where it is sent again."""
        if error is None:
            said = "the connection to the Dask scheduler was lost while it ran"
            if not self._cluster.waits:
                return said
            return None if sent.placed.node.may_repeat else f"{said}, and it may not be run twice"
        if not isinstance(error, KilledWorker):
            return f"the cluster could not run it: {describe(error)}"
        # Of what may not be run twice the scheduler remembers whether it was begun, and the worker asks it.
        return sent.lost(error.last_worker.address, is_own=error.task == sent.key, ended=self._ended)

    def _take(self, results: list[RemoteResult]) -> None:
        """Learn from results how long nodes take, and give up the values of those that have come back, but of the last:
        what is lost of them need not be made once more."""
        seconds = self._cluster.seconds
        self._ended += len(results)
        for result in results:
            sent = self._sent[result.number]
            sent.is_awaited = False
            if result.work is not None:
                code, taken = sent.placed.code, result.work.seconds
                seconds[code] = seconds.get(code, taken) * (1 - _LEARNED) + taken * _LEARNED
            if not result.kept:
                self._recent.append(sent)
        while len(self._recent) > RECENT:
            sent = self._recent.popleft()
            if not sent.is_awaited:
                sent.future = None

    async def _cancel(self, client: Client, futures: set[Future]) -> None:
        with contextlib.suppress(Exception):  # what cannot be reached cannot be cancelled
            async with asyncio.timeout(_CANCELS):
                await client.cancel(list(futures), force=True)
                await client.run(stop, self._id, on_error="ignore")
