"""Runs inside of a sandbox before there is a script for it: imports what scripts use, waits, runs one script, and ends
as Python would. Imports nothing but the standard library."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import gc
import importlib
import json
import math
import os
import resource
import signal
import sys
import threading
import time
import types
from importlib.machinery import SourceFileLoader
from typing import Any

MODULES = (
    "argparse ast asyncio base64 bisect calendar collections collections.abc contextlib copy csv dataclasses datetime "
    "decimal difflib enum fractions functools glob gzip hashlib heapq html html.parser io itertools json logging math "
    "operator pathlib pprint random re shutil statistics string struct subprocess tempfile textwrap threading time "
    "traceback typing unicodedata urllib.parse uuid warnings weakref zipfile zlib"
)
"""What is imported beforehand."""

CHANNEL = 3
"""Where it says that it is ready, and that it has begun; afterwards it is the script's, or closed."""

_LENGTH = 4
"""How many bytes say how long the job is that follows them on stdin."""


def main() -> None:
    """Wait for a job, run it and end with its exit status."""
    for name in MODULES.split():
        with contextlib.suppress(ImportError):  # not every build of Python has all of them
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    _say({"ready": True, "cpu": time.process_time()})
    job = _read_job()
    if job is None:
        return
    _take_over(job)
    _say({"begun": True})
    if not job["channel"]:
        os.close(CHANNEL)
    known = set(sys.modules)
    _end(_run(sys.argv[0]), known)


def _say(what: dict[str, Any]) -> None:
    os.write(CHANNEL, json.dumps(what).encode() + b"\n")


def _read_job() -> dict[str, Any] | None:
    """Return the job to run, or None at the end of stdin; what follows the job on stdin is the script's own."""
    head = _read(_LENGTH)
    if len(head) < _LENGTH:
        return None
    size = int.from_bytes(head, "big")
    data = _read(size)
    return json.loads(data) if len(data) == size else None


def _read(size: int) -> bytes:
    data = b""
    while len(data) < size and (more := os.read(0, size - len(data))):
        data += more
    return data


def _take_over(job: dict[str, Any]) -> None:
    """Become the program that would have been started for this job."""
    places = dict(zip(job["places"], sys.argv[1:], strict=True))
    added = {name: os.environ[name] for name in ("LC_CTYPE", "PWD") if name in os.environ}  # not by the host
    os.environ.clear()
    os.environ.update(added)
    os.environ.update({name: _found(value, places) for name, value in job["environment"].items()})
    time.tzset()
    folder = _found(job["folder"], places)
    os.chdir(folder)
    if "PWD" in added:
        os.environ["PWD"] = folder
    sys.argv = [_found(word, places) for word in job["argv"]]
    sys.orig_argv = [*job["command"], *sys.argv]
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(sys.argv[0])
    seconds = math.ceil(job["cpu"]) + round(time.process_time())
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (min(seconds, most), min(seconds + 1, most)))


def _found(word: str, places: dict[str, str]) -> str:
    """Return a word with the place that it begins with as it is in this sandbox; in most it is the same."""
    for place, here in places.items():
        if word == place or word.startswith(f"{place}/"):
            return here + word[len(place) :]
    return word


def _run(path: str) -> int:
    module = types.ModuleType("__main__")
    loader = SourceFileLoader("__main__", path)
    vars(module).update(__file__=path, __cached__=None, __loader__=loader, __builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = module
    try:
        exec(compile(loader.get_data(path), path, "exec", dont_inherit=True), vars(module))
    except SystemExit as error:
        return _status(error.code)
    except BaseException as error:
        trace = _own(error.__traceback__)
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _own(trace: types.TracebackType | None) -> types.TracebackType | None:
    """Return a traceback without what stands here and in the import system."""
    while trace is not None and trace.tb_frame.f_code.co_filename in (
        __file__,
        "<frozen importlib._bootstrap_external>",
    ):
        trace = trace.tb_next
    return trace


def _status(code: object) -> int:
    """Return the exit status that a `SystemExit` asks for."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _end(status: int, known: set[str]) -> None:
    """End without taking apart what was imported beforehand, which takes longer than most scripts: what the script
    itself made is released, so that its files are written to the end. `known` are the modules that are not its own."""
    if threading.active_count() > 1:
        sys.exit(status)
    atexit._run_exitfuncs()
    for name in sys.modules.keys() - known:
        del sys.modules[name]
    vars(sys.modules.pop("__main__")).clear()
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError:
            status = status or 120
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    main()
