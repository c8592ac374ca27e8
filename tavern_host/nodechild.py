"""What runs in the process of an isolated node: one function of a plugin, once.

It is run as a script; `nodeprocess` starts it and says on standard input what to call. Before that has been read,
`sys.path` is not the host's, so nothing of the host is imported above.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from importlib import import_module
from typing import Any


def main(lifeline: int) -> None:
    """Answer the request on standard input. `lifeline` is a pipe that ends when the host does."""
    answer_to = os.dup(1)
    watcher = _watch(lifeline, answer_to)
    os.close(lifeline)
    os.register_at_fork(after_in_child=lambda: os.close(answer_to))
    os.dup2(2, 1)  # what the function prints must not get into the answer
    with os.fdopen(0, "rb", closefd=False) as incoming:
        request = json.loads(incoming.readline())
        values = incoming.read()
    _close_input()
    sys.path[:] = request["path"]
    answer = _answer(request, values)
    for printed in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # the function may have closed or replaced it
            printed.flush()
    with contextlib.suppress(OSError):  # the function may have waited for every child that there is
        os.kill(watcher, signal.SIGKILL)
        os.waitpid(watcher, 0)
    with os.fdopen(answer_to, "wb") as outgoing:
        outgoing.write(answer)


def _watch(lifeline: int, answer_to: int) -> int:
    """Start a process that ends this one and all that it started when the host is gone; return its id.

    A thread could not: the function may never let go of the interpreter.
    """
    watcher = os.fork()
    if watcher:
        return watcher
    os.close(answer_to)
    os.dup2(2, 1)
    _close_input()
    os.read(lifeline, 1)
    os.killpg(0, signal.SIGKILL)
    os._exit(1)


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


def _answer(request: dict[str, Any], values: bytes) -> bytes:
    """Return what the function returns or raises: a line that says which, and the bytes of it."""
    from tavern_host.codec import decode_loose, encode_loose
    from tavern_host.contracts.errors import PluginFailure
    from tavern_host.threads import ended

    try:
        function = _function(request["handler"], request["folder"])
        arguments, named = decode_loose(values, [])
        result = function(*arguments, **named)
        encoded, kept = encode_loose(result)
        if kept:
            raise PluginFailure(f"{request['what']}: its result {uncoded(result, kept)}")
    except (SystemExit, KeyboardInterrupt) as error:
        return _failure(ended(request["what"], error))
    except BaseException as error:  # whatever it is, the host is told
        return _failure(error)
    return _framed(encoded, trace=None)


def _failure(error: BaseException) -> bytes:
    import traceback

    from tavern_host.codec import encode
    from tavern_host.contracts.errors import ErrorInfo, PluginFailure, describe, error_info

    try:
        told = encode(error_info(error), ErrorInfo)
    except (AttributeError, ValueError):  # made without what ours have, or with details that cannot be sent
        told = encode(error_info(PluginFailure(describe(error))), ErrorInfo)
    return _framed(told, trace="".join(traceback.format_exception(error)))


def _framed(payload: bytes, trace: str | None) -> bytes:
    return json.dumps({"size": len(payload), "trace": trace}).encode() + b"\n" + payload


def _function(handler: str, folder: dict[str, Any] | None) -> Any:
    if folder is not None:
        from pathlib import Path

        from tavern_host.runtime import import_folder

        reviewed = folder["reviewed"]
        hashes = None if reviewed is None else {path: bytes.fromhex(text) for path, text in reviewed.items()}
        import_folder(folder["package"], Path(folder["root"]), hashes)
    module, _, name = handler.partition(":")
    return getattr(import_module(module), name)


if __name__ == "__main__":
    main(int(sys.argv[1]))
