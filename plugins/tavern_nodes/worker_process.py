"""Runs a function of a plugin in a process of its own, which is killed with all that it started when its caller is
cancelled. What the process does is in `worker_main`. It is no sandbox: the function may do all that the host may.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tavern_host.common import system
from tavern_host.contracts.errors import InvalidInput, PluginFailure
from tavern_host.contracts.nodes import NodeCall, NodeProgress, Report
from tavern_host.runtime.codec import decode_error
from tavern_host.runtime.source import FolderSource
from tavern_host.runtime.threads import retrieve_exception, run_in_thread
from tavern_host.storage.values import decode_loose, encode_loose
from tavern_nodes.worker_main import PROGRESS, TRAILER, uncoded

_CHILD = Path(__file__).with_name("worker_main.py")
ENDS_BY_ITSELF = 5.0
"""Seconds after which a process that was asked to end is killed; the function may have stopped it."""


@dataclass(frozen=True)
class Request:
    """A call of the function `handler` (`module:name`); `what` is its name in messages. `context` is the parameter
    that gets a node's context, and what is in it."""

    handler: str
    source: FolderSource | None
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]
    what: str
    context: tuple[str, NodeCall] | None = None


async def run_in_process(request: Request, report: Report | None = None) -> Any:
    """Return the result of a function, called in a new process; `report` takes its progress, on another thread.

    Values are encoded on both ways. Cancelling kills the process and those that it started, and waits for its end.
    Raises `InvalidInput` for an argument without a codec, `PluginFailure` where the process ends without an answer
    or its result has no codec, else what the function raises: as itself where it has a code, else as
    `PluginFailure`, with the traceback as a note.
    """
    what = request.what
    if not hasattr(os, "fork") or not sys.executable:
        raise PluginFailure(f"{what} cannot run in a process of its own on this system")
    process = _Process(what)

    def ask() -> Any:
        return _result(*process.answer(_encoded(request), report), what)

    running = asyncio.ensure_future(run_in_thread(ask, what=what))
    running.add_done_callback(retrieve_exception)
    try:
        return await asyncio.shield(running)
    finally:
        process.end()
        if not running.done():
            await asyncio.wait([running], timeout=ENDS_BY_ITSELF)
        if not running.done():
            process.kill()
            await asyncio.wait([running])


class _Process:
    """One process: started and waited for on a thread, ended from any.

    It watches over another one, in which the function runs, and takes that along when `_held` is closed.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._held: int | None = None
        self._is_over = False

    def answer(self, request: bytes, report: Report | None) -> tuple[str | None, bytes]:
        """Start the process with a request, pass its progress on, and return its answer: the traceback of a failure,
        and the bytes of what the function returned or raised. Raises `PluginFailure` where it gives none.
        """
        child = self._start()
        try:
            output = _exchange(child, request, report)
        finally:
            self.end()
            self._bury(child)
        head, found, payload = output[:-TRAILER].partition(b"\n")
        about = json.loads(head) if found else {}
        if len(payload) == about.get("size"):
            return about["trace"], payload
        try:
            status = int(output[-TRAILER:])
        except ValueError:  # the function ended both processes
            status = child.returncode
        raise PluginFailure(f"{self._what}: its process {_ending(status)} before it answered")

    def _start(self) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        if not system.IS_POSIX:
            raise PluginFailure(f"{self._what} runs in a process of its own: that {system.NEEDS_LINUX}")
        with self._lock:
            if self._is_over:
                raise PluginFailure(f"{self._what} was interrupted before its process had started")
            try:
                lifeline, self._held = os.pipe()
                try:
                    command = [sys.executable, "-P", str(_CHILD), str(lifeline)]
                    self._child = subprocess.Popen(
                        command, stdin=pipe, stdout=pipe, pass_fds=(lifeline,), start_new_session=True
                    )
                    return self._child
                finally:
                    os.close(lifeline)
            except OSError as error:
                raise PluginFailure(f"{self._what}: its process could not be started: {error}") from None

    def end(self) -> None:
        """Let the process end itself and what it started; one that has not been started yet never is."""
        with self._lock:
            self._is_over = True
            if self._held is not None:
                os.close(self._held)
                self._held = None

    def kill(self) -> None:
        """End the process where the function keeps it from ending by itself (it may have stopped it)."""
        with self._lock:
            if self._child is not None and self._child.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    system.end_group(self._child.pid, "SIGKILL")

    def _bury(self, child: subprocess.Popen[bytes]) -> None:
        try:
            child.wait(ENDS_BY_ITSELF)
        except subprocess.TimeoutExpired:
            self.kill()
            child.wait()
        for pipe in (child.stdin, child.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()


def _exchange(child: subprocess.Popen[bytes], request: bytes, report: Report | None) -> bytes:
    assert child.stdin is not None and child.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        child.stdin.write(request)
        child.stdin.close()
    while (line := child.stdout.readline()).startswith(PROGRESS) and line.endswith(b"\n"):
        if report is not None:
            report(NodeProgress.of(*json.loads(line[len(PROGRESS) :])))
    return line + child.stdout.read()


def _encoded(request: Request) -> bytes:
    source, context = request.source, request.context
    values, kept = encode_loose([request.arguments, dict(request.named)])
    if kept:
        _refuse(request.arguments, request.named, request.what)
    reviewed = None if source is None else source.reviewed
    folder = source and {
        "package": source.package,
        "root": str(source.root),
        "reviewed": None if reviewed is None else {path: content.hex() for path, content in reviewed.items()},
    }
    header = {
        "path": [path for path in sys.path if isinstance(path, str)],
        "handler": request.handler,
        "what": request.what,
        "folder": folder,
        "context": context and [context[0], context[1].to_json()],
    }
    return json.dumps(header).encode() + b"\n" + values


def _refuse(arguments: tuple[Any, ...], named: Mapping[str, Any], what: str) -> NoReturn:
    """Raise `InvalidInput` for the first argument that has no codec."""
    parts = dict(named) if named else {key: value for part in arguments for key, value in part.items()}
    for key, value in parts.items():
        kept = encode_loose(value)[1]
        if kept:
            raise InvalidInput(f"{what}: the input {key!r} {uncoded(value, kept)}")
    raise InvalidInput(f"{what}: its inputs are together too large to go from one process to another")


def _result(trace: str | None, payload: bytes, what: str) -> Any:
    if trace is None:
        return decode_loose(payload, [])
    error = decode_error(payload)
    error.add_note(f"in the process of {what}:\n{trace}")
    raise error


def _ending(status: int) -> str:
    """Say how a process ended, by its exit status; below 0, that is a signal."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"was killed by {name}{' (perhaps for want of memory)' if -status == signal.SIGKILL else ''}"
