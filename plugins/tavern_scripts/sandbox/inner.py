"""Starts a program where there is no bubblewrap, stays as its supervisor, and ends with it all that came from it. It
limits the program by Landlock and a filter of system calls, or, when so instructed, not at all."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import resource
import signal
import sys
import time
from typing import Any, NoReturn

_ARGUMENTS, _GATE, _INFO = 4, 5, 6
_DEATH_SIGNAL, _SUBREAPER, _SECCOMP, _FILTER = 1, 36, 22, 2


def main() -> NoReturn:
    """Do what the descriptor 4 says, once the descriptor 5 gives the filter."""
    with open(_ARGUMENTS, encoding="utf-8") as file:
        job = json.load(file)
    library = ctypes.CDLL(None, use_errno=True)
    library.prctl(_SUBREAPER, 1, 0, 0, 0)
    library.prctl(_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: _stop(job["scratch"]))
    with open(_INFO, "w", encoding="utf-8") as file:
        json.dump({"child-pid": os.getpid()}, file)
    with open(_GATE, "rb") as file:
        rules = file.read()
    if not rules:
        sys.exit("inner: the host is gone")
    child = os.fork()
    if child == 0:
        _become(job, rules, library)
    for number in (0, 1, 2, 3, 7):
        with contextlib.suppress(OSError):
            os.close(number)
    _, status = os.waitpid(child, 0)
    _end_all()
    is_stopped = os.WIFSTOPPED(status)  # it made this one its tracer; nothing would resume it
    code = -signal.SIGKILL if is_stopped else os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _become(job: dict[str, Any], rules: bytes, library: ctypes.CDLL) -> NoReturn:
    """Become the program."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        library.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        for name, (soft, hard) in job["limits"].items():
            highest = resource.getrlimit(int(name))[1]
            if highest != resource.RLIM_INFINITY:
                soft, hard = min(soft, highest), min(hard, highest)
            resource.setrlimit(int(name), (soft, hard))
        os.chdir(job["folder"])
        if job["rights"] is not None:
            sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
            landlock = importlib.import_module("landlock")  # beside this file, which is no part of a package here
            landlock.restrict([(path, allowed) for path, allowed in job["rights"]])
            _filter(rules, library)
        os.execve(job["argv"][0], job["argv"], job["environment"])
    except BaseException as error:
        os.write(2, f"inner: {job['argv'][0]} could not be started: {error}\n".encode())
    os._exit(1)


def _filter(rules: bytes, library: ctypes.CDLL) -> None:
    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))

    program = Program(len(rules) // 8, rules)
    if library.prctl(_SECCOMP, _FILTER, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "the filter of system calls could not be set")


def _stop(scratch: str) -> NoReturn:
    """End all processes, and take away what they wrote: the host may be gone, and nothing of it is kept."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would find the imports below half done
    _end_all()
    os.chdir("/")
    importlib.import_module("shutil").rmtree(scratch, ignore_errors=True)
    os._exit(128 + signal.SIGTERM)


def _end_all() -> None:
    """End all processes that came from this one, again and again until none is left."""
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            children = [int(pid) for pid in file.read().split()]
        for pid in _descendants(children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        time.sleep(0.0005)


def _descendants(found: list[int]) -> list[int]:
    for pid in found:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                    found += [int(child) for child in file.read().split()]
    return found


if __name__ == "__main__":
    main()
