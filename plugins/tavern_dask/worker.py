"""What runs at a worker: nodes of a workflow, several one after the other, whose values stay there as bytes.

A task never raises: it gives what became of each of its nodes, so that what was done before a failure is not lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any, NoReturn

import dask
from distributed import Semaphore, get_worker
from distributed.utils import sync

from tavern_dask.code import opened
from tavern_engine.api.clusters import RemoteNode, RemoteResult, Values
from tavern_host.contracts.blobs import Blob
from tavern_host.contracts.errors import (
    DeadlineExceeded,
    OutputError,
    PluginFailure,
    ServiceUnavailable,
    TavernError,
    describe,
    error_info,
)
from tavern_host.contracts.executions import RemoteWork
from tavern_host.contracts.nodes import NodeInstance
from tavern_host.contracts.wire import Model, WireError, wire_value
from tavern_host.runtime.codec import decode
from tavern_host.storage.values import decode_loose, encode_loose
from tavern_workflows.api.dataflow import converter

LARGE = 64 * 1024
"""From how many bytes on a value stays at the cluster, if the host does not want it."""

MOST_TRACE = 20_000
"""Characters of a traceback that the host gets, the last ones."""

GRACE = 1.0
"""Seconds that a node has to end that was stopped."""

REPORT = "tavern-report"
"""Before a task's key the key of what the host gets of it, where its values stay."""

BEGUN = "tavern-begun"
"""The topic of the scheduler's events under which nodes say that they begin."""

_running: dict[str, set[Callable[[], None]]] = {}
"""By pass, what stops each node that is running now."""
_lock = threading.Lock()
_of_thread = threading.local()
_contents: contextvars.ContextVar[dict[str, bytes]] = contextvars.ContextVar("contents")

Contents = tuple[dict[str, bytes], dict[str, bytes], dict[str, bytes]]
"""What a node is sent with, as the bytes that it is: `encoded` and `binary` of its inputs, and its Blobs."""


class Placed(Model):
    """A node, without its contents, with the name of its code; `key` names this attempt alone."""

    node: RemoteNode
    code: str
    key: str


class Work(Model):
    """A task of a pass: nodes, each after those whose values it takes. Where `is_noted`, each says that it begins."""

    pass_id: str
    nodes: tuple[Placed, ...]
    is_noted: bool


@dataclass
class Outcome:
    """What became of the nodes of a task: what the host gets, and by node the values."""

    results: list[RemoteResult]
    values: dict[int, Values] = field(default_factory=dict)


class Holding(Outcome):
    """An outcome with values that the host need not get."""


class _Undone(Exception):
    """A value does not become what a node takes: the host says so, as it does of all nodes."""


class _Misplaced(Exception):
    """A node needs what is at the host alone."""


def run_work(encoded: bytes, contents: list[Contents], *before: Outcome) -> Outcome:
    """Run a `Work`, with the contents of its nodes; `before` are the outcomes of those whose values it takes."""
    work: Work = decode(encoded, Work)
    values = {number: found for outcome in before for number, found in outcome.values.items()}
    own, results = dict[int, Values](), list[RemoteResult]()
    for placed, (inputs, binary, blobs) in zip(work.nodes, contents, strict=True):
        if work.is_noted:
            _note(work.pass_id, placed.node.number)
        node = placed.node.model_copy(update={"inputs": Values(encoded=inputs, binary=binary), "blobs": blobs})
        result, outputs = _run(placed.model_copy(update={"node": node}), work.pass_id, values)
        results.append(result)
        if outputs is not None:
            own[result.number] = values[result.number] = outputs
    return (Holding if any(result.kept for result in results) else Outcome)(results, own)


def report(outcome: Outcome) -> list[RemoteResult]:
    """Return the results that the host receives of an outcome."""
    return outcome.results


async def stop(pass_id: str) -> None:
    """Stop what is running for a pass, and wait a little for its end. Code that does not await runs to its own."""
    with _lock:
        for cancel in _running.get(pass_id, ()):
            cancel()
    end = time.monotonic() + GRACE
    while pass_id in _running and time.monotonic() < end:  # noqa: ASYNC110 -- it is set by threads
        await asyncio.sleep(0.01)


def _run(placed: Placed, pass_id: str, values: dict[int, Values]) -> tuple[RemoteResult, Values | None]:
    node = placed.node
    worker, began = get_worker().address, time.perf_counter()
    if not all(handle.node in values and handle.key in _bytes(values[handle.node]) for handle in node.handles):
        return RemoteResult(number=node.number, is_undone=True), None
    received = _size(node.inputs) + sum(len(_bytes(values[handle.node])[handle.key]) for handle in node.handles)
    about: dict[str, Any] = {}
    outputs = None
    try:
        inputs = _inputs(node, values)
        instance = opened(placed.code, node.config, _CONTEXT)
        if not node.may_repeat:
            _begin_once(placed.key)
        outputs = _encoded(_limited(instance, node, inputs, pass_id))
    except _Undone:
        return RemoteResult(number=node.number, is_undone=True), None
    except _Misplaced as reason:
        if node.may_repeat:
            return RemoteResult(number=node.number, is_misplaced=True), None
        about["error"] = error_info(PluginFailure(f"it cannot run on a cluster: {reason}"))
    except BaseException as error:  # the code of a node may raise anything
        about["error"] = error_info(error if isinstance(error, Exception) else PluginFailure(_said(error)))
        trace = "".join(traceback.format_exception(error))[-MOST_TRACE:]
        about["trace"] = "" if isinstance(error, TavernError) else trace
    if outputs is not None:
        kept = {} if node.is_wanted else {key: n for key, v in _bytes(outputs).items() if (n := len(v)) >= LARGE}
        about |= {"outputs": _without(outputs, kept), "kept": kept}
    seconds, size = time.perf_counter() - began, _size(outputs) if outputs is not None else 0
    done = RemoteWork(worker=worker, received=received, given=size, seconds=seconds)
    return RemoteResult(number=node.number, work=done, **about), outputs


def _said(error: BaseException) -> str:
    if isinstance(error, asyncio.CancelledError):
        return "it was cancelled by its own code"
    return f"it tried to end the program ({describe(error)})"


def _note(pass_id: str, number: int) -> None:
    """Say that a node begins, and return when the scheduler knows it, whatever the node does to this process."""
    worker = get_worker()
    with contextlib.suppress(OSError):
        sync(worker.loop, worker.scheduler.log_event, topic=BEGUN, msg=[pass_id, number, worker.address])


def _begin_once(key: str) -> None:
    """Raise `ServiceUnavailable` where this was begun before, at a worker that was lost: the scheduler remembers."""
    worker = get_worker()
    with dask.config.set({"distributed.scheduler.locks.lease-timeout": "inf"}):
        first = Semaphore(1, name=key, scheduler_rpc=worker.scheduler, loop=worker.loop)
        if not first.acquire(timeout=0):
            raise ServiceUnavailable("it was begun at a worker that was lost, and may not be run twice")


# --- running ----------------------------------------------------------------------------------------------


def _limited(instance: NodeInstance, node: RemoteNode, inputs: dict[str, Any], pass_id: str) -> dict[str, Any]:
    """Run a node; with a timeout in a thread, which is left behind when the time is over."""
    if node.timeout is None:
        return _awaited(instance, node, inputs, pass_id)
    found: Future[dict[str, Any]] = Future()

    def run() -> None:
        try:
            found.set_result(_awaited(instance, node, inputs, pass_id))
        except BaseException as error:  # it is raised where the result is waited for
            found.set_exception(error)
        _of_thread.runner.close()

    threading.Thread(target=run, name="node with a timeout", daemon=True).start()
    if not wait([found], timeout=node.timeout).done:
        raise DeadlineExceeded(f"it did not end within {node.timeout:g} s")
    return found.result()


def _awaited(instance: NodeInstance, node: RemoteNode, inputs: dict[str, Any], pass_id: str) -> dict[str, Any]:
    """Run a node on the event loop of this thread, in a context of its own."""
    runner: asyncio.Runner | None = getattr(_of_thread, "runner", None)
    if runner is None:
        runner = _of_thread.runner = asyncio.Runner()
    loop = runner.get_loop()

    async def run() -> dict[str, Any]:
        _contents.set(node.blobs)
        task = asyncio.current_task()
        assert task is not None

        def cancel() -> None:
            loop.call_soon_threadsafe(task.cancel)

        with _lock:
            _running.setdefault(pass_id, set()).add(cancel)
        try:
            return await instance.run(inputs, None, None)
        finally:
            with _lock:
                _running[pass_id].discard(cancel)
                if not _running[pass_id]:
                    del _running[pass_id]

    return runner.run(run(), context=contextvars.Context())


class _Blobs:
    """The Blobs that came with the node that is running."""

    async def read(self, blob: Blob) -> bytes:
        """Return all bytes."""
        contents = _contents.get()
        if blob.hash not in contents:
            raise _Misplaced("it reads a Blob that is at the host")
        return contents[blob.hash]

    async def put(self, content: Any, media_type: str = "", *, holder: str | None = None) -> Blob:
        """Refuse: Blobs are kept at the host."""
        raise _Misplaced("it makes a Blob")


class _Context:
    """Stands for the context of a plugin: there are no services, settings and secrets at a worker."""

    blobs = _Blobs()

    def __getattr__(self, name: str) -> NoReturn:
        raise _Misplaced(f"it uses {name} of its plugin's context")


_CONTEXT = _Context()


# --- values -----------------------------------------------------------------------------------------------


def _inputs(node: RemoteNode, values: dict[int, Values]) -> dict[str, Any]:
    inputs = decoded(node.inputs)
    for handle in node.handles:
        value = _value(values[handle.node], handle.key)
        if handle.given is not None and handle.wanted is not None:
            convert = converter(handle.given, handle.wanted)
            try:
                value = value if convert is None else convert(value)
            except (OverflowError, ValueError):
                raise _Undone from None
        if handle.place is None:
            inputs[handle.input] = value
        else:
            inputs[handle.input][handle.place] = value
    return inputs


def decoded(values: Values) -> dict[str, Any]:
    """Return values, new each time."""
    return {key: decode_loose(value, []) for key, value in values.encoded.items()} | values.binary


def _encoded(outputs: dict[str, Any]) -> Values:
    if not isinstance(outputs, dict):
        raise PluginFailure(f"it returned {type(outputs).__name__}, expected a dict with its outputs")
    encoded, binary = {}, {}
    for key, value in outputs.items():
        if type(value) is bytes:
            binary[key] = value
            continue
        try:
            encoded[key], kept = encode_loose(wire_value(value))
        except WireError as error:
            raise OutputError(f"the output {key!r}{error.place}: {error.reason}", output=key) from None
        if kept:
            raise _Misplaced(f"its output {key!r} holds a {type(kept[0]).__name__}, which has no codec")
    return Values(encoded=encoded, binary=binary)


def _bytes(values: Values) -> dict[str, bytes]:
    return {**values.encoded, **values.binary}


def _value(values: Values, key: str) -> Any:
    return values.binary[key] if key in values.binary else decode_loose(values.encoded[key], [])


def _size(values: Values) -> int:
    return sum(map(len, _bytes(values).values()))


def _without(values: Values, kept: dict[str, int]) -> Values:
    encoded, binary = ({k: v for k, v in part.items() if k not in kept} for part in (values.encoded, values.binary))
    return Values(encoded=encoded, binary=binary)
