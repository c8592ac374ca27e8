"""Runs inside of a sandbox for as long as a session lives: one piece of code after another among the same variables;
and reports the result of each. Imports nothing but the standard library."""

from __future__ import annotations

import ast
import builtins
import contextlib
import io
import json
import linecache
import math
import os
import resource
import stat
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Iterator
from typing import Any

RESULT = 3
"""The descriptor that a script writes its result to, where it was promised one."""

_LENGTH = 4
_PIECE = 64 << 10
_MOST_FILES = 200
_MAX_DEPTH = 16

Stamp = tuple[int, int, int]


class Session:
    """The variables, and the pipes to the host, of which code gets copies only."""

    def __init__(self) -> None:
        self._input, self._output, self._errors, self._channel = (os.dup(number) for number in (0, 1, 2, RESULT))
        self._module = types.ModuleType("__main__")
        vars(self._module).update(__builtins__=builtins)
        sys.modules["__main__"] = self._module
        self._pid = os.getpid()
        self._here = sys.argv[1:]
        self._places: dict[str, str] = {}
        self._stamps: dict[str, Stamp] = {}

    def serve(self) -> None:
        """Run what is sent, until nothing more is."""
        _write(self._channel, b'{"ready": true}\n')
        while (call := self._read_call()) is not None:
            data = self._read(call["input"])
            used = _used()
            try:
                self._arrange(call, data)
                status, value = self._run(call["code"], call["name"])
            except OSError as error:
                print(f"the call could not be made: {error}", file=sys.stderr)
                status, value = 1, None
            if os.getpid() != self._pid:  # a child of the code that has come to its end
                _flush()
                os._exit(status)
            report = {"exit": status, "value": value, "cpu": _used() - used}
            self._report_end(bytes.fromhex(call["mark"]), report, self._found(call["output"]), call["room"])

    def _read_call(self) -> dict[str, Any] | None:
        head = self._read(_LENGTH)
        if len(head) < _LENGTH:
            return None
        call: dict[str, Any] = json.loads(self._read(int.from_bytes(head, "big")))
        return call

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size and (more := os.read(self._input, min(_PIECE, size - len(data)))):
            data += more
        return bytes(data)

    def _arrange(self, call: dict[str, Any], data: bytes) -> None:
        """Make everything as a script finds it, whatever the code before has done to it."""
        if not self._places:
            self._places = dict(zip(call["places"], self._here, strict=True))
            if not sys.flags.safe_path:
                sys.path[0] = os.path.dirname(self._found(call["argv"][0]))
        added = {name: os.environ[name] for name in ("LC_CTYPE", "PWD") if name in os.environ}  # not by the host
        os.environ.clear()
        os.environ.update(added)
        os.environ.update({name: self._found(value) for name, value in call["environment"].items()})
        sys.argv = [self._found(word) for word in call["argv"]]
        nothing = os.open(os.devnull, os.O_RDONLY)
        if nothing != 0:  # what would be opened there otherwise, would be taken for stdin
            os.dup2(nothing, 0)
            os.close(nothing)
        for number, ours in ((1, self._output), (2, self._errors)):
            os.dup2(ours, number)
        if call["channel"]:
            os.dup2(self._channel, RESULT)
        else:
            with contextlib.suppress(OSError):
                os.close(RESULT)
        for name, number in (("stdout", 1), ("stderr", 2)):
            stream = getattr(sys, name)
            if stream is None or getattr(stream, "closed", False):
                setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False))
        _give(data)
        seconds = math.ceil(call["cpu"]) + round(time.process_time())
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds if most < 0 else min(seconds, most), most))

    def _found(self, word: str) -> str:
        """Return a word with the place that it begins with as it is in this sandbox; in most it is the same."""
        for place, here in self._places.items():
            if word == place or word.startswith(f"{place}/"):
                return here + word[len(place) :]
        return word

    def _run(self, code: str, name: str) -> tuple[int, str | None]:
        """Run a piece of code; return its exit status, and as JSON the value of the expression that it ends with."""
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        names = vars(self._module)
        try:
            tree = ast.parse(code, name)
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, name, "exec", dont_inherit=True), names)
            if last is None:
                return 0, None
            assert isinstance(last, ast.Expr)
            value = eval(compile(ast.Expression(last.value), name, "eval", dont_inherit=True), names)
            return 0, None if value is None else _shown(value)
        except SystemExit as error:
            return _status(error.code), None
        except BaseException as error:
            trace = error.__traceback__
            while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
                trace = trace.tb_next
            error = error.with_traceback(trace)
            if sys.excepthook is sys.__excepthook__:
                traceback.print_exception(error)  # that one finds no lines of code that came without a file
            else:
                sys.excepthook(type(error), error, trace)
            return 1, None

    def _report_end(self, mark: bytes, report: dict[str, Any], folder: str, room: int) -> None:
        """Say that the call is over, on all pipes, which marks what belongs to it.

        Up to `room` bytes of the files that it left are sent; after a failure they are, when another call succeeds.
        """
        _flush()
        for number in (self._output, self._errors, self._channel):
            _write(number, mark)
        files: list[tuple[str, int]] = []
        for path, size in self._changed(folder) if report["exit"] == 0 else ():
            if len(files) == _MOST_FILES or size > room:
                report["left"] = report.get("left", 0) + 1
                continue
            room -= size
            files.append((path, size))
        report["files"] = files
        _write(self._channel, json.dumps(report).encode() + b"\n")
        for path, size in files:
            self._send(os.path.join(folder, path), size)

    def _changed(self, folder: str) -> list[tuple[str, int]]:
        """Return the regular files that were written since the call before, and their sizes."""
        found = []
        stamps: dict[str, Stamp] = {}
        for path in _files(folder, ""):
            try:
                about = os.lstat(os.path.join(folder, path))
            except OSError:
                continue
            stamps[path] = (about.st_ino, about.st_size, about.st_mtime_ns)
            if stat.S_ISREG(about.st_mode) and stamps[path] != self._stamps.get(path):
                found.append((path, about.st_size))
        self._stamps = stamps
        return found

    def _send(self, path: str, size: int) -> None:
        """Send exactly so many bytes of a file, whatever becomes of it meanwhile."""
        with contextlib.suppress(OSError), open(path, "rb") as file:
            while size > 0 and (data := file.read(min(_PIECE, size))):
                _write(self._channel, data)
                size -= len(data)
        while size > 0:
            _write(self._channel, bytes(min(_PIECE, size)))
            size -= min(_PIECE, size)


def _files(folder: str, inner: str) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for entry in sorted(os.scandir(os.path.join(folder, inner)), key=lambda entry: entry.name):
            path = f"{inner}/{entry.name}" if inner else entry.name
            if entry.is_dir(follow_symlinks=False):
                if path.count("/") < _MAX_DEPTH:
                    yield from _files(folder, path)
            else:
                yield path


def _give(data: bytes) -> None:
    """Let stdin be this."""
    if len(data) <= io.DEFAULT_BUFFER_SIZE:
        reading, writing = os.pipe()
        os.write(writing, data)
        os.close(writing)
        os.dup2(reading, 0)
        os.close(reading)
    else:
        with tempfile.TemporaryFile() as file:
            file.write(data)
            file.seek(0)
            os.dup2(file.fileno(), 0)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _shown(value: object) -> str:
    """Return a value as JSON; what is no JSON as it would be printed."""
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return json.dumps(repr(value))


def _status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _used() -> float:
    """Return how many seconds of the CPU were used so far, those of ended children too."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def _write(number: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(number, view) :]


if __name__ == "__main__":
    Session().serve()
