"""Runs `tavern`: in this process, and as a process where the process itself is the promise."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tavern_host.cli.terminal import run

SECONDS = 100.0
COMMAND = (sys.executable, "-m", "tavern_host.cli")
FEW_PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p asyncio"}
"""The environment of pytest for an author, who has fewer of its plugins than there are here: it starts sooner."""


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Return the one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The error: the last line of stderr."""
        return self.err.splitlines()[-1] if self.err else ""


def tavern(
    *arguments: str | Path, stdin: str = "", cwd: Path | None = None, one_stream: bool = False, **environment: str
) -> Ran:
    """Run `tavern` with these arguments in this process; with `one_stream` stderr goes to stdout too, as on a terminal.

    A traceback, which no command may show, fails the test.
    """
    out = _stream()
    err = out if one_stream else _stream()
    with (
        contextlib.chdir(cwd or Path.cwd()),
        _variables(environment),
        _log_and_modules_restored(),
        _stdin(stdin),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        _garbage_left(),
    ):
        code = run([*map(str, arguments)])
    return _without_traceback(Ran(code, _text(out), "" if one_stream else _text(err)))


def tavern_process(*arguments: str | Path, stdin: str = "", cwd: Path | None = None, **environment: str) -> Ran:
    """Run `tavern` with these arguments as a process of its own, as a person or a script does."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=stdin.encode("utf-8", "surrogateescape"),
        capture_output=True,
        cwd=cwd,
        env={**os.environ, **environment},
        timeout=SECONDS,
        check=False,
    )
    return _without_traceback(Ran(done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8")))


def _without_traceback(ran: Ran) -> Ran:
    assert "Traceback" not in ran.err, ran.err
    return ran


def _stream(text: str = "") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(text.encode("utf-8", "surrogateescape")), "utf-8", "surrogateescape")


def _text(stream: io.TextIOWrapper) -> str:
    if stream.closed:
        return ""
    stream.flush()
    stream.seek(0)
    return stream.read()


@contextlib.contextmanager
def _garbage_left() -> Iterator[None]:
    """Collect no garbage meanwhile: what is logged of that of earlier tests is not what a command says."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def _variables(variables: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _stdin(text: str) -> Iterator[None]:
    before, sys.stdin = sys.stdin, _stream(text)
    try:
        yield
    finally:
        sys.stdin = before


@contextlib.contextmanager
def _log_and_modules_restored() -> Iterator[None]:
    """Undo what `tavern` does to the log, and forget the modules of folder plugins, as the end of a process does."""
    logger = logging.getLogger("tavern")
    before = logger.propagate, logger.handlers, logger.level
    logger.handlers = []
    try:
        yield
    finally:
        logger.propagate, logger.handlers = before[:2]
        logger.setLevel(before[2])
        for name in [name for name in list(sys.modules) if name.startswith("tavern_plugins.")]:
            sys.modules.pop(name, None)


def minds_ctrl_c() -> None:
    """Let a process that is about to begin mind Ctrl-C, also where the tests run in the background and do not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
