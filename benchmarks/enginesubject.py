"""The engine as the benchmarks use it: plans, runs, cache, journal and events, without a host around them.

What the figures need of an engine is here and nowhere else. `Subject` compiles a workflow of the benchmarks' nodes;
its runs share a cache, and tell of what happens to a consumer task, which has had every message, in the form that goes
over the wire, when the run is over: through a bounded queue, or over the host's own event bus.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.enginenodes import NODES
from tavern_engine.api.runs import RunEnd, RunEntry
from tavern_engine.cache.cache import OutputCache
from tavern_engine.compile.bound import BoundPlan
from tavern_engine.compile.compiler import compile_plan
from tavern_engine.journal.batch_rows import Batch
from tavern_engine.journal.journal import Journal, RunJournal, read_rows
from tavern_engine.journal.keys import ProjectKey
from tavern_engine.journal.run_store.store import SqlRunStore
from tavern_engine.registry import NodeType
from tavern_engine.run.event_batch import EventBatch
from tavern_engine.run.node_table import NodeTable, State
from tavern_engine.run.run_blobs import RunBlobs
from tavern_engine.run.run_execution import RunExecution
from tavern_engine.run.scope import Scope
from tavern_engine.run.stream_messages import Message
from tavern_host.contracts.calls import CallContext, system_call
from tavern_host.contracts.events import Event
from tavern_host.contracts.executions import RunRequest, RunStatus
from tavern_host.contracts.nodes import NodeDefinition
from tavern_host.contracts.workflows import Workflow, WorkflowNode
from tavern_host.events.bus import EventBus
from tavern_host.sdk.decorator import NodeCode
from tavern_nodes.node_runners import InProcessNodeRunner

if TYPE_CHECKING:
    from tavern_host.storage.databases import SharedDatabase

_PLUGIN = "benchmark"
_END = "EXECUTION_STATUS_UPDATE"
_LEASE = 30.0
_TOGETHER = 512
"""How many messages the consumer takes at once at most."""

_log = logging.getLogger("tavern.benchmark")
_numbers = itertools.count(1)


@dataclass(frozen=True)
class _Nodes:
    """What a plugin with the benchmarks' nodes contributes."""

    plugin: str = _PLUGIN
    version: str = "1.0.0"
    code: str = "1.0.0"
    settings: str = ""

    @property
    def value(self) -> list[NodeDefinition]:
        return [code.definition for code in _CODES.values()]

    def open(self, handler: Any, *arguments: Any) -> Any:
        context: Any = None  # none of these nodes asks for one
        return InProcessNodeRunner(_CODES[handler.full_type], context)

    async def call(self, handler: str, *arguments: Any) -> Any:
        raise NotImplementedError("the benchmarks' nodes name no functions")

    def in_use(self, cancel: Callable[[], object] | None = None) -> AbstractContextManager[None]:
        return nullcontext()


def _code_of(function: Any) -> NodeCode:
    code: NodeCode = function.__tavern_node__
    return code


_CODES = {code.definition.full_type: code for code in map(_code_of, NODES)}
_CONTRIBUTION = _Nodes()
_TYPES = {name: NodeType(code.definition, code.definition, _CONTRIBUTION) for name, code in _CODES.items()}


class Ran:
    """What came of a run, as the engine keeps it. `messages` is how many the consumer got, `lost` how many it did
    not, since too many were waiting for it."""

    def __init__(self, run_id: str, account: NodeTable, numbers: Mapping[str, int], messages: int, lost: int) -> None:
        self.run_id = run_id
        self._account = account
        self._numbers = numbers
        self.messages = messages
        self.lost = lost

    @property
    def executed(self) -> int:
        """How many nodes were run, and not taken from the cache."""
        return self._account.states.count(State.DONE)

    def output(self, node_id: str) -> Any:
        """Return the outputs of a node, by key."""
        return self._account.outputs[self._numbers[node_id]]


class Listener(Protocol):
    """Takes the messages of one run at a time."""

    def publish(self, messages: list[Message]) -> None:
        """Take messages; does not wait."""

    async def finish(self, message: Message) -> None:
        """Take the last message of the run, which is never lost."""

    async def consumed(self) -> tuple[int, int]:
        """Read messages up to the last one of the run; return how many there were, and how many were lost."""


class QueueListener:
    """Puts messages into a bounded queue, those that come together as one item; what finds it full is lost."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[list[dict[str, Any]]] = asyncio.Queue(64)
        self._seq = 0
        self._lost = 0

    def publish(self, messages: list[Message]) -> None:
        """Take messages."""
        wire = self._wire(messages)
        try:
            self._queue.put_nowait(wire)
        except asyncio.QueueFull:
            self._lost += len(wire)

    async def finish(self, message: Message) -> None:
        """Take the last message."""
        await self._queue.put(self._wire([message]))

    def _wire(self, messages: list[Message]) -> list[dict[str, Any]]:
        numbered = enumerate(messages, self._seq)
        wire = [{"type": kind, "payload": payload, "seq": seq} for seq, (kind, payload) in numbered]
        self._seq += len(wire)
        return wire

    async def consumed(self) -> tuple[int, int]:
        """Read messages up to the end of the run."""
        count = 0
        while True:
            batch = await self._queue.get()
            count += len(batch)
            if batch[-1]["type"] == _END:
                lost, self._lost = self._lost, 0
                return count, lost


class BusListener:
    """Publishes messages on an event bus of a host, and subscribes to them."""

    def __init__(self) -> None:
        self._bus = EventBus()
        self._subscription = self._bus.subscribe()

    def publish(self, messages: list[Message]) -> None:
        """Take messages."""
        self._bus.publish_all(messages)

    async def finish(self, message: Message) -> None:
        """Take the last message."""
        self._bus.publish(*message)

    async def consumed(self) -> tuple[int, int]:
        """Read messages up to the end of the run."""
        count = lost = 0
        while True:
            for event in await self._subscription.some(_TOGETHER):
                if not isinstance(event, Event):
                    lost += event.last - event.first + 1
                    continue
                message = {"type": event.type, "payload": event.payload, "seq": event.seq}
                count += 1
                if message["type"] == _END:
                    return count, lost


class RunLog:
    """Where runs are journalled: a run store in a folder, or in a database. Closed by whoever made it."""

    def __init__(self, folder: Path, shared: SharedDatabase | None = None) -> None:
        key = ProjectKey(folder.with_name(f"{folder.name} of the operator"))
        self._store = SqlRunStore(folder, _log, key, shared)
        self._journal = Journal(self._store, _PLUGIN, _log)
        self._document: str | None = None

    async def begin(self, run_id: str, call: CallContext) -> RunJournal:
        """Accept a run; return what takes the results of its nodes."""
        if self._document is None:
            self._document = await self._store.put(b"{}")
        entry = RunEntry(
            id=run_id, request=RunRequest(), workflow=self._document, call=call, submitted_at=datetime.now(UTC)
        )
        await self._store.accept(entry, worker=_PLUGIN, lease=_LEASE)
        return self._journal.begin(run_id)

    async def end(self, run_id: str) -> None:
        """Return when all results are written, and that the run is over."""

        async def last(batch: Batch | None) -> None:
            rows, large = (b"", ()) if batch is None else (batch.content, tuple(batch.large))
            await self._store.update(_PLUGIN, run_id, RunEnd(status=RunStatus.COMPLETE), batch=rows, contents=large)

        await self._journal.end(run_id, last)

    async def rows(self, run_id: str) -> int:
        """Return how many results of a run can be read back."""
        return len(await read_rows(await self._store.batches(run_id), _log))

    async def close(self) -> None:
        """Let go of the store."""
        await self._journal.close()
        await self._store.close()


class Subject:
    """A compiled workflow and what its runs share. Made and used on one event loop."""

    def __init__(self, workflow: Workflow, *, listener: Listener | None = None, journal: RunLog | None = None) -> None:
        self._plan = compile_plan(workflow, _TYPES)
        self._bound = BoundPlan.of(self._plan)
        self._cache = OutputCache()
        self._listener = listener or QueueListener()
        self._journal = journal
        self._call: CallContext = system_call()

    def forget(self) -> None:
        """Empty the cache."""
        self._cache.clear()

    async def run(self, changed: Mapping[str, WorkflowNode] | None = None) -> Ran:
        """Run the workflow once, with other written values at some nodes from now on."""
        if changed:
            self._bound = self._bound.patched({self._plan.targets[i]: self._written(n) for i, n in changed.items()})
        run_id = f"run_{next(_numbers)}"
        account = NodeTable(self._plan.ids)
        events = EventBatch(run_id, self._plan, account, self._listener.publish, cache=self._cache)
        if self._journal is not None:
            events.journal = await self._journal.begin(run_id, self._call)
        blobs: Any = None  # none of these nodes gives large bytes
        scope = Scope(run_id, self._call, events, _log, RunBlobs(run_id, blobs, _log))
        execution = RunExecution(self._bound, scope, cache=self._cache)
        consumer = asyncio.create_task(self._listener.consumed())
        await execution.run()
        await self._listener.finish((_END, {"promptId": run_id, "status": "complete"}))
        messages, lost = await consumer
        if self._journal is not None:
            await self._journal.end(run_id)
        return Ran(run_id, account, self._plan.numbers, messages, lost)

    def _written(self, node: WorkflowNode) -> dict[str, Any]:
        kind = self._plan.level.nodes[self._plan.targets[node.id]].kind
        assert kind is not None
        return kind.values(node)
