"""Finds out whether a sandbox holds by trying to break it: a program inside tries each property, this side lays out the
baits and checks what is left. It goes by what happens, never by versions."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Collection, Iterator
from pathlib import Path
from typing import Any

from tavern_host.contracts.errors import ServiceUnavailable
from tavern_scripts.api.scripts import (
    IsolationCheck,
    SandboxLaunch,
    SandboxMount,
    SandboxOutput,
    ScriptBackend,
    ScriptLimits,
)
from tavern_scripts.sandbox.canary_program import CHECKS

_MB = 1 << 20
_LIMITS = ScriptLimits(
    wall=20,
    cpu=10,
    memory=96 * _MB,
    processes=12,
    files=64,
    file_size=8 * _MB,
    scratch=4 * _MB,
    input=_MB,
    output=_MB,
    log=_MB,
)
_SECONDS = 20.0
_LONGEST_SOCKET = 107
"""How many bytes the path of a Unix socket has at most."""

_NAMESPACES = ("pid", "net", "ipc", "uts", "cgroup", "mnt")
_PROGRAM = Path(__file__).with_name("canary_program.py")

_BOMB = """
import os, time
print("began", flush=True)  # before the first of them may have used up what there is
for _ in range(4):
    if os.fork() == 0:
        kept = []
        while True:
            kept.append(bytearray(b"x" * (1 << 20)))
            if len(kept) > 40:
                time.sleep(0.01)
            if len(kept) > 60:
                time.sleep(30)
time.sleep(30)
"""
_SLEEPER = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
print("began", flush=True)
time.sleep(30)
"""


async def prove(backend: ScriptBackend, *, without: Collection[str] = (), bounded: bool = True) -> list[IsolationCheck]:
    """Try out every property and return what was observed of each; `without` are those that are not claimed.

    `bounded` says that no capabilities may be left to be got back. Raises `ServiceUnavailable` where programs do not
    even begin.
    """
    async with asyncio.timeout(_SECONDS):
        attacked = await _attack(backend, [name for name in CHECKS if name not in without], bounded=bounded)
        memory, ended = await asyncio.gather(_use_up_memory(backend), _end_early(backend))
    return [check for check in (*attacked, memory, ended) if check.name not in without]


async def _attack(backend: ScriptBackend, names: list[str], *, bounded: bool) -> list[IsolationCheck]:
    with _baits() as (folder, facts):
        token = facts["token"]
        read, staged = folder / "read", folder / "staged"
        facts |= {"checks": names, "bounded": bounded}
        launch = SandboxLaunch(
            argv=[_python(), "-I", "-S", "/canary/read/program.py", "/canary/read", "/canary/staged", "/tmp", token],
            environment={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
            mounts=[
                SandboxMount(target="/canary/read", source=str(read)),
                SandboxMount(target="/canary/staged", source=str(staged), mode="staged"),
            ],
            limits=_LIMITS,
        )
        output, ended = await _run(backend, launch, json.dumps(facts).encode())
        try:
            found = json.loads(output["stdout"])
        except ValueError:
            said = (output["stderr"] or ended.data).decode(errors="replace").strip()
            why = said or f"exit status {ended.exit_code}, {ended.reason or 'nothing said'}"
            raise ServiceUnavailable(f"the program that tries out the sandbox did not get to its end: {why}") from None
        checks = [IsolationCheck(name=name, holds=holds, observed=said) for name, holds, said in found]
        left = [pid for pid in _with(token) if pid != os.getpid()]
        checks.append(
            IsolationCheck(name="leftovers", holds=not left, observed=f"processes after the end: {left or 'none'}")
        )
        kept = sorted(path.name for path in staged.iterdir())
        checks.append(IsolationCheck(name="copying out", holds=kept == ["kept"], observed=f"copied: {kept}"))
        return checks


async def _use_up_memory(backend: ScriptBackend) -> IsolationCheck:
    launch = SandboxLaunch(argv=[_python(), "-I", "-S", "-c", _BOMB], limits=_LIMITS)
    output, ended = await _run(backend, launch, b"")
    holds = ended.reason == "memory" and output["stdout"].startswith(b"began")
    said = ended.reason or f"exit status {ended.exit_code}: {ended.data.decode(errors='replace')}"
    return IsolationCheck(name="memory", holds=holds, observed=f"several processes together: ended by {said}")


async def _end_early(backend: ScriptBackend) -> IsolationCheck:
    token = f"canary-{secrets.token_hex(8)}"
    launch = SandboxLaunch(argv=[_python(), "-I", "-S", "-c", _SLEEPER, token], limits=_LIMITS)
    began = False
    running = backend.run(launch, _given(b""))
    try:
        async for each in running:
            if each.kind == "stdout":
                began = bool(_with(token))
                break
            if each.kind == "ended":
                break
    finally:
        await running.aclose()  # type: ignore[attr-defined]
    left = _with(token)
    return IsolationCheck(name="ending", holds=began and not left, observed=f"processes after it: {left or 'none'}")


async def _run(backend: ScriptBackend, launch: SandboxLaunch, stdin: bytes) -> tuple[dict[str, bytes], SandboxOutput]:
    output = {"stdout": b"", "stderr": b"", "channel": b""}
    ended = SandboxOutput(kind="ended", reason="broken", data=b"nothing was said of an end")
    running = backend.run(launch, _given(stdin))
    try:
        async for each in running:
            if each.kind == "ended":
                ended = each
            else:
                output[each.kind] += each.data
    finally:
        await running.aclose()  # type: ignore[attr-defined]
    return output, ended


async def _given(data: bytes) -> AsyncIterator[bytes]:
    if data:
        yield data


@contextlib.contextmanager
def _baits() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Lay out what a program must not reach, and yield the folder with what it may have, and the facts."""
    token = f"canary-{secrets.token_hex(8)}"
    place = tempfile.gettempdir()
    if len(os.fsencode(place)) > _LONGEST_SOCKET - len("/tavern-canary-12345678/secret/socket"):
        place = "/tmp"
    with tempfile.TemporaryDirectory(prefix="tavern-canary-", dir=place) as name, contextlib.ExitStack() as open_things:
        folder = Path(name)
        folder.chmod(0o755)
        for inner in ("read", "staged", "secret"):
            (folder / inner).mkdir(mode=0o755)
        (folder / "read" / "given").write_text("given", encoding="utf-8")
        (folder / "read" / "program.py").write_bytes(_PROGRAM.read_bytes())
        secret = folder / "secret" / "secret"
        secret.write_text(token, encoding="utf-8")
        for path in (*(folder / "read").iterdir(), secret):
            path.chmod(0o644)
        tcp = open_things.enter_context(socket.create_server(("127.0.0.1", 0)))
        listening = []
        for address in (f"\0{token}", str(folder / "secret" / "socket")):
            made = open_things.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            made.bind(address)
            made.listen()
            listening.append(made)
        (folder / "secret" / "socket").chmod(0o777)
        inherited = os.open(secret, os.O_RDONLY)
        open_things.callback(os.close, inherited)
        os.set_inheritable(inherited, True)
        yield (
            folder,
            {
                "token": token,
                "secret": str(secret),
                "size": _LIMITS.scratch,
                "file_size": _LIMITS.file_size,
                "processes": _LIMITS.processes,
                "pids": [os.getpid(), os.getppid()],
                "port": tcp.getsockname()[1],
                "abstract": token,
                "socket": str(folder / "secret" / "socket"),
                "session": os.getsid(0),
                "overflow": 65534,
                "variables": ["PATH", "LANG", "PWD", "LC_CTYPE", "TMPDIR"],
                "namespaces": {name: os.readlink(f"/proc/self/ns/{name}") for name in _NAMESPACES},
                "limits": _claimed(),
            },
        )


def _claimed() -> dict[str, int]:
    """Return the limits that must be in force, where they are not lower already."""
    import resource

    claimed = {
        "RLIMIT_NOFILE": _LIMITS.files,
        "RLIMIT_FSIZE": _LIMITS.file_size,
        "RLIMIT_CPU": int(_LIMITS.cpu) + 1,
        "RLIMIT_CORE": 0,
    }
    highest = {name: resource.getrlimit(getattr(resource, name))[1] for name in claimed}
    return {name: value for name, value in claimed.items() if not 0 <= highest[name] < value}


def _with(token: str) -> list[int]:
    """Return the processes that have a word in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if token.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def _python() -> str:
    return os.path.realpath(sys.executable)
