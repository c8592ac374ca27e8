"""What a call of a tool costs from code in the sandbox, against the same call in this process and a bare exchange of
JSON over a pair of Unix sockets with another process (docs/performance.md)."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time

from benchmarks import toolsubject
from benchmarks.harness import ROUNDS, Result, measured
from tavern_scripts.api.scripts import SCRIPT_EXECUTION, ScriptRequest

CALLS = 500

_CODE = """
import json, statistics, sys, time, tools
about = json.load(sys.stdin)
taken = []
for _ in range(about["calls"]):
    began = time.perf_counter()
    tools.answer(**about["arguments"])
    taken.append(time.perf_counter() - began)
print(json.dumps(statistics.median(taken)))
"""
_PEER = """
import json, os, sys
fd = int(sys.argv[1])
while head := os.read(fd, 4):
    asked = json.loads(os.read(fd, int.from_bytes(head, "big")))
    data = json.dumps({"id": asked["id"], "value": asked["arguments"]["text"]}).encode()
    os.write(fd, len(data).to_bytes(4, "big") + data)
"""


def code() -> list[Result]:
    """Measure a tool call that a running script makes, and return its cost."""
    return asyncio.run(_code())


async def _code() -> list[Result]:
    pairs = []
    async with toolsubject.subject() as subject:
        for _ in range(ROUNDS):
            inside = await _from_code(subject)
            pairs.append((inside, await _in_process(subject) + await asyncio.to_thread(_bare)))
    name = "a call of a tool from code in the sandbox"
    return [measured(name, pairs, "the call in process and bare JSON over sockets", 1.5, unit="µs", scale=1e6)]


async def _from_code(subject: toolsubject.Subject) -> float:
    inputs = {"arguments": toolsubject.ARGUMENTS, "calls": CALLS}
    request = ScriptRequest(code=_CODE, language="python", input_data=inputs, tools=[toolsubject.TOOL])
    result = await subject.host.services.get(SCRIPT_EXECUTION).run(request, call=subject.call)
    assert isinstance(result.output_data, float), result.error
    return result.output_data


async def _in_process(subject: toolsubject.Subject) -> float:
    """Return the seconds of one call, the median of all; each has a turn of the event loop, as calls of code do."""
    taken = []
    for _ in range(CALLS):
        began = time.perf_counter()
        await subject.run()
        taken.append(time.perf_counter() - began)
        await asyncio.sleep(0)
    return statistics.median(taken)


def _bare() -> float:
    """Return the seconds of one exchange with a process that answers each question, the median of all."""
    ours, theirs = socket.socketpair()
    number = ours.fileno()
    with (
        ours,
        subprocess.Popen([sys.executable, "-c", _PEER, str(theirs.fileno())], pass_fds=[theirs.fileno()]) as peer,
    ):
        theirs.close()
        taken = []
        for count in range(CALLS):
            began = time.perf_counter()
            data = json.dumps({"id": count, "tool": toolsubject.TOOL, "arguments": toolsubject.ARGUMENTS}).encode()
            os.write(number, len(data).to_bytes(4, "big") + data)
            json.loads(os.read(number, int.from_bytes(os.read(number, 4), "big")))
            taken.append(time.perf_counter() - began)
        ours.shutdown(socket.SHUT_RDWR)
        peer.wait()
    return statistics.median(taken)
