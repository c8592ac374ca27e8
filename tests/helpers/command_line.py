"""Runs `tavern` as a process, as a person or a script does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 60.0
COMMAND = (sys.executable, "-m", "tavern_host.cli")


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


def tavern(*arguments: str | Path, stdin: str = "", cwd: Path | None = None, **environment: str) -> Ran:
    """Run `tavern` with these arguments. No command may ever show a traceback, so none is let through."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=stdin.encode("utf-8", "surrogateescape"),
        capture_output=True,
        cwd=cwd,
        env={**os.environ, **environment},
        timeout=SECONDS,
        check=False,
    )
    ran = Ran(done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8"))
    assert "Traceback" not in ran.err, ran.err
    return ran


def minds_ctrl_c() -> None:
    """Let a process that is about to begin mind Ctrl-C, also where the tests run in the background and do not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
