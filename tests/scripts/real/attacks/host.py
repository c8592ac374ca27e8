"""The host that is attacked, as a process of its own, which runs as root or as an ordinary user: it has secrets, servers,
a terminal and a process that must not be reached, and runs attacks in the sandbox or, to show that they work, without.

Started by `hosts`, it takes one JSON object per line on a socket and answers each with one.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tavern_scripts.api.scripts import ScriptBackend, ScriptLimits
from tavern_scripts.policy.languages import Interpreters
from tavern_scripts.policy.review import Granted, Reads
from tavern_scripts.sandbox.choose import host_candidates
from tavern_scripts.workers.launches import Places, Program, RunExtras, launch_of

_VICTIM = """
import ctypes, os, signal, sys, time
signal.signal(signal.SIGURG, lambda *_: os._exit(1))
ctypes.CDLL(None).prctl(0x59616d61, ctypes.c_ulong(-1), 0, 0, 0)
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
held = ctypes.create_string_buffer(os.environ["TAVERN_SECRET"].encode())
opened = open(sys.argv[1])
print(ctypes.addressof(held), opened.fileno(), flush=True)
while True:
    time.sleep(100)
"""
"""A process of the host: it has the secret in its environment, its memory and an open file, and ends by a signal that
others ignore, and with the host, also where that is killed."""

_NAMESPACES = ("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc", "--net")
_LIMITS = ScriptLimits(
    wall=20,
    cpu=20,
    memory=512 << 20,
    processes=32,
    files=128,
    file_size=64 << 20,
    scratch=16 << 20,
    input=1 << 20,
    output=1 << 20,
    log=1 << 20,
)


def open_backend(name: str) -> ScriptBackend:
    """Return one of the host's own backends as this user can have it. Raises `LookupError` saying why there is none."""
    candidates = host_candidates(allow_degraded=True, allow_unsandboxed=False, log=logging.getLogger("attacked"))
    found = {candidate.name: candidate for candidate in candidates}
    make = found[name].make
    if make is None:
        raise LookupError(f"{found[name].reason} {found[name].hint}".strip())
    return make()


class Host:
    """What there is to attack, and what runs attacks."""

    def __init__(self, backend: ScriptBackend, folder: Path, secret: str) -> None:
        self._backend = backend
        self._folder = folder
        self._secret = secret
        self._interpreters = Interpreters()
        self._arrived: list[str] = []
        self._servers: list[socket.socket] = []
        self._victim: subprocess.Popen[str] | None = None
        self._address = 0
        self._opened = 0
        self._timers: dict[int, asyncio.Timeout] = {}

    async def run(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Run an attack in the sandbox."""
        interpreter = await self._interpreters.find(job["language"])
        places = Places(Path(job["script"]), Path(job["output"]), Path(job["kept"]))
        program = Program(job["name"], (job["token"],))
        granted = Granted(Reads(whole=True), writes=tuple(job["writes"]))
        limits = _LIMITS.model_copy(update={**job["limits"]})
        launch = await asyncio.to_thread(launch_of, program, interpreter, places, granted, limits, {}, RunExtras())
        before = _resident()

        async def stdin() -> AsyncIterator[bytes]:
            yield job["input"].encode()

        return await self._read(self._backend.run(launch, stdin()), job, before)

    async def stop(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """End a run as the time limit would."""
        self._timers[job["number"]].reschedule(0)
        return {}

    async def run_outside(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Run the same without a sandbox, and end what lives on of it."""
        interpreter = await self._interpreters.find(job["language"])
        prefix = _NAMESPACES if job["namespaced"] else ()
        argv = [*prefix, *interpreter.argv(512 << 20), str(Path(job["script"], job["name"])), job["token"]]
        observed = await asyncio.to_thread(_run_outside, argv, job)
        self._take_the_dead()
        return observed

    async def state(self) -> dict[str, Any]:
        """Return the present state of the host, and the requests that its servers received."""
        await asyncio.sleep(0)
        here = os.getpid()
        return {
            "arrived": self._arrived,
            "victim": self._is_victim_well(),
            "victim_pid": self._victim.pid if self._victim is not None else 0,
            "victim_address": self._address,
            "victim_descriptor": self._opened,
            "descriptors": sorted(filter(None, map(_descriptor, os.listdir("/proc/self/fd")))),
            "children": _children(here),
            "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
            "groups": _groups(here),
        }

    async def renew(self) -> dict[str, Any]:
        """Forget what came, and start the victim again if it is gone."""
        self._arrived.clear()
        if not self._is_victim_well():
            self._start_victim()
        return await self.state()

    def open(self) -> dict[str, Any]:
        """Open the servers and start the victim; return where they are."""
        loop = asyncio.get_running_loop()
        name = f"\0tavern-attacked-{os.getpid()}"
        path = str(self._folder / "host.sock")
        opened: dict[str, Any] = {"unix": path, "datagrams": f"{path}.datagrams", "abstract": name}
        for kind, family, type, address in (
            ("tcp", socket.AF_INET, socket.SOCK_STREAM, ("0.0.0.0", 0)),
            ("tcp6", socket.AF_INET6, socket.SOCK_STREAM, ("::", 0)),
            ("udp", socket.AF_INET, socket.SOCK_DGRAM, ("0.0.0.0", 0)),
            ("unix", socket.AF_UNIX, socket.SOCK_STREAM, path),
            ("abstract", socket.AF_UNIX, socket.SOCK_STREAM, name),
            ("datagrams", socket.AF_UNIX, socket.SOCK_DGRAM, f"{path}.datagrams"),
        ):
            server = _server(family, type, address)
            if server is not None:
                self._servers.append(server)
                loop.add_reader(server.fileno(), self._answer, kind, server)
                opened.setdefault(kind, server.getsockname()[1])
        self._start_victim()
        return {**opened, "host_address": _own_address()}

    def close(self) -> None:
        """Close the servers and end the victim."""
        for server in self._servers:
            asyncio.get_running_loop().remove_reader(server.fileno())
            server.close()
        if self._victim is not None:
            self._victim.kill()
            self._victim.communicate()

    def _take_the_dead(self) -> None:
        """Wait for what came to this process because its parent ended first."""
        for pid in _children(os.getpid()):
            if self._victim is None or pid != self._victim.pid:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def _start_victim(self) -> None:
        if self._victim is not None:
            self._victim.kill()
            self._victim.communicate()
        (self._folder / "open.txt").write_text(self._secret)
        self._victim = subprocess.Popen(
            [sys.executable, "-c", _VICTIM, str(self._folder / "open.txt")], stdout=subprocess.PIPE, text=True
        )
        assert self._victim.stdout is not None
        address, opened = self._victim.stdout.readline().split()
        self._address, self._opened = int(address), int(opened)

    def _is_victim_well(self) -> bool:
        if self._victim is None or self._victim.poll() is not None:
            return False
        try:
            with Path(f"/proc/{self._victim.pid}/mem").open("rb") as memory:
                memory.seek(self._address)
                held = memory.read(len(self._secret)).decode()
            state = Path(f"/proc/{self._victim.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return False
        is_as_nice = os.getpriority(os.PRIO_PROCESS, self._victim.pid) == os.getpriority(os.PRIO_PROCESS, 0)
        files = resource.prlimit(self._victim.pid, resource.RLIMIT_NOFILE)[0]
        return held == self._secret and state != "T" and is_as_nice and files > 8

    def _answer(self, kind: str, server: socket.socket) -> None:
        self._arrived.append(kind)
        with contextlib.suppress(OSError):
            if server.type == socket.SOCK_STREAM:
                connection, _ = server.accept()
                with connection:
                    connection.settimeout(1)
                    connection.sendall(self._secret.encode())
            else:
                _, sender = server.recvfrom(1000)
                if sender:
                    server.sendto(self._secret.encode(), sender)

    async def _read(self, output: AsyncIterator[Any], job: Mapping[str, Any], before: int) -> dict[str, Any]:
        """Read as the service does: until the end, the time limit, or too much output."""
        parts = {"stdout": bytearray(), "stderr": bytearray()}
        reason, code, note, peak, spoke = None, None, "", 0, 0.0
        try:
            async with asyncio.timeout(job["wall"]) as timer:
                self._timers[job["id"]] = timer
                async for each in output:
                    if each.kind == "ended":
                        reason, code, note = each.reason, each.exit_code, each.data.decode(errors="replace")
                        continue
                    parts[each.kind] += each.data
                    spoke = _now()
                    if "began" in job and b"ended [" in parts["stdout"]:
                        Path(job["began"]).touch()
                    if job["goes_on"] is not None and b"ended [" in parts["stdout"]:
                        timer.reschedule(asyncio.get_running_loop().time() + job["goes_on"])
                    if len(parts[each.kind]) > job["output_limit"]:
                        reason = "output"
                        break
                    peak = max(peak, _resident() - before)
        except TimeoutError:
            reason = "wall"
        finally:
            await output.aclose()  # type: ignore[attr-defined]
        texts = [bytes(part[: job["output_limit"]]) for part in parts.values()]
        return {**_said(*texts, code, reason), "note": note, "peak_of_host": peak, "spoke_at": spoke or _now()}


def _run_outside(argv: Sequence[str], job: Mapping[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, cwd=job["script"], close_fds=False
        )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(job["input"].encode())
        reason = None
        try:
            process.wait(job["wall"])
        except subprocess.TimeoutExpired:
            reason = "wall"
            process.kill()
            process.wait()
        survivors = _end_all(job["token"])
        parts = [os.pread(file.fileno(), job["output_limit"], 0) for file in (stdout, stderr)]
        return {**_said(*parts, process.returncode, reason), "survivors": survivors}


def _said(stdout: bytes, stderr: bytes, code: int | None, reason: str | None) -> dict[str, Any]:
    texts = {"stdout": stdout.decode(errors="replace"), "stderr": stderr.decode(errors="replace")}
    return {**texts, "exit_code": code, "reason": reason}


def _now() -> float:
    """Return the time since this machine was started."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _server(family: int, type: int, address: Any) -> socket.socket | None:
    try:
        server = socket.socket(family, type)
        if family == socket.AF_INET6:
            server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        server.bind(address)
        if family == socket.AF_UNIX and not address.startswith("\0"):
            Path(address).chmod(0o777)
        if type == socket.SOCK_STREAM:
            server.listen(64)
    except OSError:
        return None
    server.setblocking(False)
    return server


def _own_address() -> str:
    """Return an address of this machine by which it is reached from outside, else that of its own loop."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.2"
        return str(probe.getsockname()[0])


def _descriptor(number: str) -> str | None:
    """Return the target of a descriptor; None for the one with which they are listed."""
    try:
        return os.readlink(f"/proc/self/fd/{number}").partition(":[")[0]
    except OSError:
        return None


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return sorted(found)


def _end_all(token: str) -> int:
    """End what lives on of an attack without a sandbox, and return how many processes that were."""
    count = 0
    for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
        try:
            if pid == os.getpid() or token.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes():
                continue
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue
        count += 1
        for _ in range(200):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            if not Path(f"/proc/{pid}").exists():
                break
            time.sleep(0.01)
    return count


def _groups(pid: int) -> list[str]:
    """Return the control groups that a host has made."""
    found = []
    for folder, folders, _ in os.walk("/sys/fs/cgroup"):
        found += [f"{folder}/{name}" for name in folders if name.startswith(f"tavern-{pid}-")]
    return found


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def main(name: str, folder: Path, link: socket.socket) -> None:
    """Serve attacks until the other side closes the link."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    reader, writer = await asyncio.open_connection(sock=link, limit=64 << 20)
    try:
        backend = open_backend(name)
        checks = await backend.prove()
        missing = [f"{check.name}: {check.observed}" for check in checks if not check.holds]
    except Exception as error:  # whatever it is, the tests say it
        missing = [f"{type(error).__name__}: {error}"]
    if missing:
        writer.write(json.dumps({"missing": missing}).encode() + b"\n")
        await writer.drain()
        return
    host = Host(backend, folder, os.environ["TAVERN_SECRET"])
    opened = host.open()
    writer.write(json.dumps({"missing": [], "opened": opened}).encode() + b"\n")
    actions: dict[str, Callable[[Mapping[str, Any]], Any]] = {
        "run": host.run,
        "outside": host.run_outside,
        "state": lambda _: host.state(),
        "renew": lambda _: host.renew(),
        "stop": host.stop,
    }

    async def answer(job: dict[str, Any]) -> None:
        try:
            result = await actions[job["do"]](job)
        except Exception as error:
            result = {"failed": f"{type(error).__name__}: {error}"}
        writer.write(json.dumps({"id": job["id"], **result}).encode() + b"\n")

    async with asyncio.TaskGroup() as group:
        while line := await reader.readline():
            group.create_task(answer(json.loads(line)))
    host.close()
    writer.close()


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # what an attack leaves behind without a sandbox comes to this process
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), socket.socket(fileno=int(sys.argv[3]))))
