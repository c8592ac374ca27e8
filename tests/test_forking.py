"""What tests fork instead of starting it is a process as any other, and leaves none behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.forking import PYTHON, ForkServer

LOOK = """
import json, os, signal, sys, threading, random
told = {name: [stream.encoding, stream.errors, stream.line_buffering, stream.isatty(), stream.seekable()]
        for name, stream in (("in", sys.stdin), ("out", sys.stdout), ("err", sys.stderr))}
told |= {"argv": sys.argv, "cwd": os.getcwd(), "path": sys.path, "name": __name__, "read": sys.stdin.read(),
         "threads": threading.active_count(), "parent": os.getppid(), "flags": list(sys.flags),
         "environment": {name: value for name, value in os.environ.items() if name != "_"},
         "leads": [os.getpid() == os.getsid(0), os.getpid() == os.getpgrp()],
         "signals": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)],
         "mask": list(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "globals": sorted(globals()),
         "open": sorted(os.listdir("/proc/self/fd"))}
print(json.dumps(told))
print("tavern_host" in sys.modules, file=sys.stderr)
sys.exit(7)
"""


@pytest.mark.parametrize("more", [{}, {"start_new_session": True}, {"process_group": 0}], ids=str)
def test_a_forked_process_is_as_one_that_was_started(tmp_path: Path, more: dict[str, int]) -> None:
    environment = {**os.environ, "CAFÉ": "\udce9", "LANGS": "", "PYTHONPATH": str(Path(__file__).parent)}
    ran = [
        subprocess.run(
            [*command, "-c", LOOK, "--x", "a b"],
            cwd=tmp_path, env=environment, input=b"said", capture_output=True, check=False, **more,  # type: ignore[call-overload]
        )
        for command in ((sys.executable,), PYTHON)
    ]  # fmt: skip
    started, forked = (json.loads(one.stdout) for one in ran)
    assert forked == started
    assert [(one.returncode, one.stderr.strip()) for one in ran] == [(7, b"False"), (7, b"True")]


async def test_forked_processes_are_killed_and_waited_for() -> None:
    process = await asyncio.create_subprocess_exec(*PYTHON, "-c", "input()", stdin=subprocess.PIPE)
    process.kill()
    assert await process.wait() == -signal.SIGKILL


def test_a_fork_server_ends_with_who_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *given, **more: begun.append(start(*given, **more)))
    server = ForkServer(None)
    server.begin()
    assert server._connection is not None
    server._connection.close()
    assert begun[0].wait(60) == 0
