"""Ctrl-C ends a command without a traceback, whatever it is at; a run can be resumed."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from helpers.command_line import COMMAND, minds_ctrl_c
from helpers.repetition import Failures
from test_cli_work import write


def test_ctrl_c_interrupts_a_run(tmp_path: Path) -> None:
    path = write(tmp_path, {"id": "w", "type": "core:Wait", "inputValues": {"seconds": 60}})
    process = subprocess.Popen(
        [*COMMAND, "workflow", "run", str(path)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=minds_ctrl_c,  # noqa: PLW1509
    )
    try:
        assert process.stderr.readline().decode() == "w (core:Wait) …\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()

    assert (process.returncode, out) == (130, b"")
    assert err.decode().endswith("` resumes it from here.\ninterrupted\n")


STOPS = """
import os, signal, sys
from tavern_host.cli import main

wanted = sys.argv[1]


class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)


sys.meta_path.insert(0, Stop())
sys.argv[1:] = ["tools", "list"]
main()
"""
"""Runs `tavern` and presses Ctrl-C at the import of a module."""


def test_ctrl_c_while_it_imports_shows_no_traceback(project: Path) -> None:
    stops = project / "stops.py"
    stops.write_text(STOPS)
    with Failures() as failures:
        for module in ("click", "tavern_host.cli.terminal", "pydantic", "tavern_host.plugins.manager"):
            with failures.row(module):
                done = subprocess.run(
                    [COMMAND[0], str(stops), module],
                    cwd=project,
                    capture_output=True,
                    preexec_fn=minds_ctrl_c,
                    timeout=60,
                    check=False,
                )
                assert (done.returncode, done.stderr.decode()) == (130, "interrupted\n")
