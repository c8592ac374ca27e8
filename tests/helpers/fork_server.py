"""A program: imports what tests of processes import, then becomes each process that it is asked for, by forking.

`python fork_server.py DESCRIPTOR` reads requests from a socket and answers each with a process id. What is forked is a
child of the process that asked, which may wait for it as for any it has started, and is one process with one thread;
its arguments, folder, variables and standard streams are those that were asked for.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import platform
import runpy
import signal
import socket
import struct
import sys
import threading
from pathlib import Path
from typing import Any

CLONE = {"x86_64": 56, "aarch64": 220}
"""The number of the system call that forks, by machine."""
_CLONE_PARENT = 0x8000
LENGTH = struct.Struct("=q")


def main() -> None:
    """Answer requests until their sender has ended; each child leaves this loop and runs what was asked for."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    sys.path[0] = str(Path.cwd())  # instead of the folder of this file
    for module in json.loads(_read(connection)[0]):
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    gc.collect()
    gc.freeze()
    assert threading.active_count() == 1, "only what has one thread may be forked"
    while True:
        try:
            message, streams = _read(connection)
        except KeyboardInterrupt:
            return
        if not message:
            return
        pid = _fork_sibling()
        if pid == 0:
            connection.close()
            run = _become(json.loads(message), streams)
            break
        connection.sendall(LENGTH.pack(pid))
        for stream in streams:
            os.close(stream)
    run()


def _read(connection: socket.socket) -> tuple[bytes, list[int]]:
    """Return the next message with the file descriptors that came with it; nothing at the end."""
    head, streams, _, _ = socket.recv_fds(connection, LENGTH.size, 3)
    if not head:
        return b"", []
    (left,), parts = LENGTH.unpack(head), list[bytes]()
    while left:
        part = connection.recv(left)
        if not part:
            return b"", []
        parts.append(part)
        left -= len(part)
    return b"".join(parts), streams


def _fork_sibling() -> int:
    """Fork a child of this process's parent; return what `os.fork` does, and -1 where that cannot be done."""
    python, system = ctypes.pythonapi, ctypes.PyDLL(None)  # type: ignore[attr-defined]
    python.PyOS_BeforeFork()
    pid: int = system.syscall(CLONE[platform.machine()], _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    (python.PyOS_AfterFork_Parent if pid else python.PyOS_AfterFork_Child)()
    return pid


def _become(asked: dict[str, Any], streams: list[int]) -> Any:
    """Make of this process what was asked for; return what runs it."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in streams:
        os.close(stream)
    if asked["session"]:
        os.setsid()
    if asked["group"] >= 0:
        os.setpgid(0, asked["group"])
    os.chdir(asked["cwd"])
    paths = [path for path in sys.path[1:] if path not in _given_paths()]
    os.environ.clear()
    os.environ.update(asked["environment"])
    how, what, *arguments = asked["arguments"]
    sys.argv = [how, *arguments]
    sys.path[:] = [asked["cwd"] if how == "-m" else "", *_given_paths(), *paths]
    sys.stdin, sys.stdout, sys.stderr = (_stream(number) for number in range(3))
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]
    if how == "-m":
        return lambda: runpy.run_module(what, run_name="__main__", alter_sys=True)
    here = sys.modules["__main__"].__dict__
    for name in [name for name in here if name in ("__file__", "__cached__") or not name.startswith("__")]:
        del here[name]
    return lambda: exec(compile(what, "<string>", "exec", dont_inherit=True), here)


def _given_paths() -> list[str]:
    return [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]  # noqa: PTH100


def _stream(number: int) -> io.TextIOWrapper:
    """Return a standard stream as Python opens it when it starts."""
    before = (sys.__stdin__, sys.__stdout__, sys.__stderr__)[number]
    assert before is not None
    is_unbuffered = number > 0 and bool(os.environ.get("PYTHONUNBUFFERED"))
    raw: Any = open(number, "wb" if number else "rb", 0 if is_unbuffered else -1, closefd=False)  # noqa: SIM115
    is_line_buffered = not is_unbuffered and (number == 2 or os.isatty(number))
    return io.TextIOWrapper(
        raw, before.encoding, before.errors, "\n", line_buffering=is_line_buffered, write_through=is_unbuffered
    )


if __name__ == "__main__":
    main()
