"""Lets tests start processes that have imported the host already, which is most of what a start takes.

`PYTHON` is Python with an option that it ignores. `subprocess` and `asyncio` let a fork server of this process, see
`fork_server.py`, fork what begins with it. Whatever a fork could not have, such as other variables that Python or the
C library read when they start, is started as any program, and so is everything where processes cannot be forked so.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from helpers.fork_server import CLONE, LENGTH

PYTHON = (sys.executable, "-X", "preloaded")
"""How a command line begins whose process only needs to be one of Python, not to show how Python starts or imports."""
_READ_AT_START = ("PYTHON", "LC_", "LANG=", "LANGUAGE=", "LD_", "TZ=")
"""How variables begin that Python or the C library reads when it starts: `LANGSMITH_TRACING` is none of them."""


class ForkServer:
    """The fork server of this process; it is started when the first process is, if not before, and ends with it."""

    def __init__(self, start: Any) -> None:
        self._start = start
        """What starts a program: the function that `subprocess` calls."""
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._variables: dict[str, str] = {}

    def fork_exec(self, *given: Any) -> int:
        """Start a process as the function of `subprocess` does that takes the same arguments; return its id."""
        asked = _asked(given)
        if asked is not None:
            with self._lock:
                if self._connection is None:
                    self.begin()
                if _read_at_start(asked["environment"]) == self._variables:
                    pid = self._ask(asked, given[6], given[9], given[11])
                    if pid > 0:
                        return pid
        return self._start(*given)  # type: ignore[no-any-return]

    def begin(self) -> None:
        """Start the fork server, which imports what is imported here of the host, without waiting for it."""
        self._variables = _read_at_start(dict(os.environ))
        self._connection, theirs = socket.socketpair()
        with theirs:
            program = [sys.executable, str(Path(__file__).with_name("fork_server.py")), str(theirs.fileno())]
            subprocess.Popen(program, pass_fds=[theirs.fileno()])
        known = [name for name in [*sys.modules] if name.startswith("tavern_") and "testing" not in name]
        self._send([name for name in known if not name.startswith("tavern_plugins") and "__main__" not in name], [])

    def _ask(self, asked: dict[str, Any], *streams: int) -> int:
        assert self._connection is not None
        try:
            self._send(asked, [number if stream == -1 else stream for number, stream in enumerate(streams)])
            answer = self._connection.recv(LENGTH.size, socket.MSG_WAITALL)
        except ConnectionError:  # the server has ended
            answer = b""
        return LENGTH.unpack(answer)[0] if answer else -1

    def _send(self, message: Any, streams: list[int]) -> None:
        assert self._connection is not None
        text = json.dumps(message).encode()
        socket.send_fds(self._connection, [LENGTH.pack(len(text))], streams)
        self._connection.sendall(text)


def fork_what_is_preloaded(*, at_once: bool) -> None:
    """Let `subprocess` and `asyncio` fork what begins with `PYTHON`, where that can be done; with `at_once`, the fork
    server is started before it is needed, so that nothing has to wait for it."""
    if sys.platform == "linux" and platform.machine() in CLONE:
        server = ForkServer(subprocess._fork_exec)  # type: ignore[attr-defined]
        subprocess._fork_exec = server.fork_exec  # type: ignore[attr-defined]
        if at_once:
            server.begin()


def _asked(given: tuple[Any, ...]) -> dict[str, Any] | None:
    """Return what a fork server is asked for, or None for what a fork cannot be."""
    arguments, kept, cwd, environment, error_pipe = [*map(os.fsdecode, given[0])], given[3], *given[4:6], given[13]
    session, group, *user, preexec = given[15:22]
    is_plain = kept == (error_pipe,) and preexec is None and user == [None, None, None, -1]
    if tuple(arguments[:3]) != PYTHON or arguments[3] not in ("-m", "-c") or not is_plain:
        return None
    folder = os.path.abspath(os.fsdecode(cwd or "."))  # noqa: PTH100 - links stay, as in what `chdir` is given
    if not os.path.isdir(folder):  # noqa: PTH112
        return None
    variables = dict(os.environ)
    if environment is not None:
        variables = dict(os.fsdecode(one).split("=", 1) for one in environment)
    added = variables.get("PYTHONPATH", "").split(os.pathsep)
    if not {path for path in added if path} <= {*sys.path}:  # there may be other versions of what is preloaded
        return None
    return {
        "arguments": arguments[3:],
        "cwd": folder,
        "environment": variables,
        "session": bool(session),
        "group": -1 if group is None else group,
    }


def _read_at_start(variables: dict[str, str]) -> dict[str, str]:
    read = {name: value for name, value in variables.items() if f"{name}=".startswith(_READ_AT_START)}
    return {name: value for name, value in read.items() if name != "PYTHONPATH"}  # which the fork server follows
