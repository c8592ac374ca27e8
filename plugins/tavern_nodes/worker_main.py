"""What runs in the process of an isolated node: one function of a plugin, once.

It is run as a script; `worker_process` starts it and says on standard input what to call. Before that has been read,
`sys.path` is not the host's, so nothing of the host is imported above.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import threading
import time
from importlib import import_module
from typing import Any, NoReturn

TRAILER = 12
"""How many bytes at the end of what comes back say how the process of the function ended."""

PROGRESS = b"progress "
"""What a line of the answer begins with that says how far the function is."""

_BETWEEN = 0.002
"""Seconds between two such lines; what is said sooner is left out."""


def main(lifeline: int) -> None:
    """Answer the request on standard input in a child process; report how that ended; kill all that it started.

    `lifeline` is a pipe that is closed when nothing waits any longer. A thread of the child could not wait for that:
    the function may never release the interpreter lock.
    """
    answer_to = os.dup(1)
    os.dup2(2, 1)  # what the function prints must not get into the answer
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    noticed, notice = os.pipe()
    os.set_blocking(notice, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(notice)
    worker = os.fork()
    if worker == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for pipe in (noticed, notice, lifeline):
            os.close(pipe)
        _work(answer_to)
    _close_input()
    status = _wait(worker, noticed, lifeline)
    with contextlib.suppress(BrokenPipeError):  # the host is gone
        os.write(answer_to, str(status).rjust(TRAILER).encode())
    os.killpg(0, signal.SIGKILL)


def _wait(worker: int, noticed: int, lifeline: int) -> int:
    """Return the exit status of the worker, as it ends by itself or as the lifeline ends; below 0, a signal."""
    ready = select.poll()
    ready.register(noticed, select.POLLIN)
    ready.register(lifeline, select.POLLIN)
    while True:
        if lifeline in dict(ready.poll()):
            os.kill(worker, signal.SIGKILL)
            return os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
        os.read(noticed, 64)
        ended, status = os.waitpid(worker, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)


def _work(answer_to: int) -> NoReturn:
    os.register_at_fork(after_in_child=lambda: os.close(answer_to))
    with os.fdopen(0, "rb", closefd=False) as incoming:
        request = json.loads(incoming.readline())
        values = incoming.read()
    _close_input()
    sys.path[:] = request["path"]
    report = _Report(answer_to)
    answer = _answer(request, values, report)
    report.close()
    for printed in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # the function may have closed or replaced it
            printed.flush()
    with os.fdopen(answer_to, "wb") as outgoing:
        outgoing.write(answer)
    os._exit(0)  # threads of the function are not waited for


def _close_input() -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def uncoded(value: Any, kept: list[Any]) -> str:
    """Say why a value cannot go from one process to another; `kept` is what no codec made bytes of."""
    first = kept[0]
    if first is value and isinstance(value, dict | list | tuple):
        return "is too large, nested too deeply, or has keys that are not str, and no codec knows it"
    shown = (
        f"the {type(first).__name__} {first}"
        if isinstance(first, float)
        else f"a value of the type {type(first).__name__}"
    )
    return f"holds {shown}, which has no codec and cannot go from one process to another"


def _answer(request: dict[str, Any], values: bytes, report: _Report) -> bytes:
    """Return the encoded answer: a line that says whether the function returned or raised, and the bytes of it."""
    from tavern_host.contracts.errors import PluginFailure
    from tavern_host.runtime.threads import ended
    from tavern_host.storage.values import decode_loose, encode_loose

    try:
        function = _function(request["handler"], request["folder"])
        arguments, named = decode_loose(values, [])
        if request["context"] is not None:
            parameter, call = request["context"]
            named[parameter] = _context(call, report)
        result = function(*arguments, **named)
        encoded, kept = encode_loose(result)
        if kept:
            raise PluginFailure(f"{request['what']}: its result {uncoded(result, kept)}")
    except (SystemExit, KeyboardInterrupt) as error:
        return _failure(ended(request["what"], error))
    except BaseException as error:  # whatever it is, the host gets it
        return _failure(error)
    return _framed(encoded, trace=None)


class _NoPlugin:
    """Stands for a plugin's context where there is none."""

    def __getattr__(self, name: str) -> NoReturn:
        from tavern_host.contracts.errors import PluginFailure

        raise PluginFailure(f"an isolated node runs in a process of its own and has no plugin context, so no {name}")


def _context(call: dict[str, Any], report: _Report) -> Any:
    """Return the context of a node in this process."""
    from tavern_host.context import NodeContext
    from tavern_host.contracts.nodes import NodeCall

    known = NodeCall.model_validate(call)
    plugin: Any = _NoPlugin()
    return NodeContext(plugin, known.run_id, known.node_id, known.call, known.iteration, report)


class _Report:
    """Writes to the host how far the function is, as long as it runs; from any of its threads."""

    def __init__(self, answer_to: int) -> None:
        self._to = answer_to
        self._lock = threading.Lock()
        self._next = 0.0
        self._is_closed = False

    def __call__(self, said: Any) -> None:
        with self._lock, contextlib.suppress(OSError):  # the host is gone, or this is a child of the function
            now = time.monotonic()
            if not self._is_closed and now >= self._next:
                self._next = now + _BETWEEN
                os.write(self._to, PROGRESS + json.dumps([said.value, said.maximum, said.message]).encode() + b"\n")

    def close(self) -> None:
        """Write nothing any more: now comes the answer."""
        with self._lock:
            self._is_closed = True


def _failure(error: BaseException) -> bytes:
    import traceback

    from tavern_host.runtime.codec import encode_error

    return _framed(encode_error(error), trace="".join(traceback.format_exception(error)))


def _framed(payload: bytes, trace: str | None) -> bytes:
    return json.dumps({"size": len(payload), "trace": trace}).encode() + b"\n" + payload


def _function(handler: str, folder: dict[str, Any] | None) -> Any:
    if folder is not None:
        from pathlib import Path

        from tavern_host.runtime.folder_import import import_folder

        reviewed = folder["reviewed"]
        hashes = None if reviewed is None else {path: bytes.fromhex(text) for path, text in reviewed.items()}
        import_folder(folder["package"], Path(folder["root"]), hashes)
    module, _, name = handler.partition(":")
    return getattr(import_module(module), name)


if __name__ == "__main__":
    main(int(sys.argv[1]))
