"""Runs one module of WebAssembly: the program of a process of its own, which imports wasmtime and nothing of the host.

On stdin comes the job, its length in four bytes before it, and then what the module reads. How it ended is written to
the descriptor `report`; where nothing is, the process was killed.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import wasmtime

_OVERHEAD = 256 << 20
"""How many bytes of memory the compiler and this program may have besides the module's."""

_OWN_FILES = 16
"""How many files this program has open itself."""

_STACK = 1 << 20
_TABLES = 16
_TABLE_ELEMENTS = 1 << 20
_MOST_MODULE = 64 << 20
_TICK = 0.05
_GRACE = 5.0
"""How many seconds a module has to come back from a call of the system, once it is interrupted."""

_TRAPPED = 134
"""The exit code of a module that broke a rule, as that of a program that aborts."""


def main() -> None:
    """Read the job, carry it out, and report how it ended."""
    size = int.from_bytes(_exactly(4), "big")
    job: dict[str, Any] = json.loads(_exactly(size))
    _limit(job)
    sys.path.append(job["packages"])
    watch = Watch(job)
    try:
        code, reason, message = _run(job, watch)
    except MemoryError:
        code, reason, message = 1, "memory", ""
    if message:
        print(message, file=sys.stderr, flush=True)
    watch.report(_TRAPPED if watch.reason else code, watch.reason or reason)


class Watch:
    """Interrupts the module when its time is over, and ends with the host."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.reason: str | None = None
        self._job = job
        self._host = os.getppid()
        self._until = time.monotonic() + job["wall"]

    def begin(self, engine: wasmtime.Engine) -> None:
        """Watch from now on, in a thread."""
        threading.Thread(target=self._watch, args=(engine,), daemon=True).start()

    def report(self, code: int, reason: str | None) -> None:
        """Say how it ended, and end."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        peak = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        found = {"code": code, "reason": reason, "cpu": (used.ru_utime + used.ru_stime) * 1000, "peak": peak}
        os.write(self._job["report"], json.dumps(found).encode())
        os._exit(0)

    def _watch(self, engine: wasmtime.Engine) -> None:
        while time.monotonic() < self._until:
            time.sleep(_TICK)
            if os.getppid() != self._host:
                os._exit(1)
        self.reason = "wall"
        while time.monotonic() < self._until + _GRACE:  # a store may set its deadline after the first of them
            engine.increment_epoch()
            time.sleep(_TICK)
        self.report(_TRAPPED, self.reason)


def _run(job: dict[str, Any], watch: Watch) -> tuple[int, str | None, str]:
    """Return the exit code of the module, the limit that it would have broken, if any, and what is to be said of it."""
    import wasmtime

    engine = wasmtime.Engine(_config())
    watch.begin(engine)
    called = job["argv"][0]
    data = Path(job["module"]).read_bytes() if Path(job["module"]).stat().st_size <= _MOST_MODULE else b""
    if not data.startswith(b"\0asm"):
        return 1, None, f"{called} is no module of WebAssembly, or has more than {_MOST_MODULE >> 20} MB"
    if data[4:8] != b"\1\0\0\0":
        return 1, None, f"{called} is a component of WebAssembly; a script is a core module for WASI preview 1"
    try:
        module = wasmtime.Module(engine, data)
        linker = wasmtime.Linker(engine)
        linker.define_wasi()
        store = wasmtime.Store(engine)
        store.set_limits(job["memory"], _TABLE_ELEMENTS, instances=1, tables=_TABLES, memories=1)
        store.set_wasi(_wasi(job))
        store.set_epoch_deadline(1)
        instance = linker.instantiate(store, module)
        start = instance.exports(store).get("_start")
        if not isinstance(start, wasmtime.Func):
            return 1, None, f"{called} has no function _start: build it as a command, not as a library"
        start(store)
    except wasmtime.ExitTrap as ended:
        return int(ended.code), None, ""
    except wasmtime.Trap as trap:
        return _TRAPPED, None, trap.message
    except wasmtime.WasmtimeError as error:
        reason = "memory" if "exceeds memory limits" in str(error) else None
        return 1, reason, f"{called} cannot be run: {error}"
    return 0, None, ""


def _config() -> wasmtime.Config:
    """Return the features that a module may use: nothing that has a memory, or a thread, which is not limited."""
    import wasmtime

    config = wasmtime.Config()
    config.epoch_interruption = True
    config.max_wasm_stack = _STACK
    for name in ("wasm_threads", "shared_memory", "wasm_gc", "wasm_multi_memory", "wasm_memory64"):
        setattr(config, name, False)
    config.parallel_compilation = False
    return config


def _wasi(job: dict[str, Any]) -> wasmtime.WasiConfig:
    """Return a module's surroundings: its words, its variables, its pipes, and the folders that it was granted."""
    import wasmtime

    wasi = wasmtime.WasiConfig()
    wasi.argv = job["argv"]
    wasi.env = [*job["environment"].items()]
    wasi.inherit_stdin()
    wasi.inherit_stdout()
    wasi.inherit_stderr()
    for folder, target, changes in job["folders"]:
        wasi.preopen_dir(folder, target, changes)
    return wasi


def _limit(job: dict[str, Any]) -> None:
    """Bound what this process may use."""
    cpu, memory, files = int(job["cpu"]) + 1, job["memory"] + _OVERHEAD, job["files"] + _OWN_FILES
    wanted = {
        resource.RLIMIT_CPU: (cpu, cpu + 1),
        resource.RLIMIT_DATA: (memory, memory),
        resource.RLIMIT_FSIZE: (job["file_size"], job["file_size"]),
        resource.RLIMIT_NOFILE: (files, files),
        resource.RLIMIT_CORE: (0, 0),
    }
    for kind, values in wanted.items():
        _, most = resource.getrlimit(kind)
        resource.setrlimit(kind, values if most < 0 else (min(values[0], most), min(values[1], most)))


def _exactly(size: int) -> bytes:
    """Read so many bytes, and no more: what follows is for the module."""
    data = b""
    while len(data) < size:
        part = os.read(0, size - len(data))
        if not part:
            os._exit(1)
        data += part
    return data


if __name__ == "__main__":
    main()
