"""The host where Python has nothing that only POSIX systems have: it works, and what needs Linux says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import helpers
from helpers.command_line import SECONDS, Ran

COMMAND = (sys.executable, "-c", "import bare_system; from tavern_host.cli import main; main()")


def _environment() -> dict[str, str]:
    folders = [*helpers.__path__, os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))}


def _bare(*words: str, cwd: Path) -> Ran:
    done = subprocess.run(
        [*COMMAND, *words], cwd=cwd, env=_environment(), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def test_a_project_is_made_run_and_served(tmp_path: Path) -> None:
    assert _bare("init", "inn", cwd=tmp_path).code == 0
    project = tmp_path / "inn"
    ran = _bare("workflow", "run", "greeting", "--input", "name=Ada", "--json", cwd=project)
    assert ran.code == 0 and "Ada" in ran.out, ran.err
    (project / "a.py").write_text("print(1)")
    script = _bare("scripts", "run", "a.py", cwd=project)
    assert script.code == 1 and "no sandbox holds on this machine" in script.err and "needs Linux" in script.err
    with subprocess.Popen(
        [*COMMAND, "serve", "--port", "0"], cwd=project, env=_environment(), stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            said = [server.stdout.readline() for _ in range(3)]
        finally:
            server.terminate()
        assert "whatever runs in a sandbox needs Linux" in said[1] and said[2].startswith("Open http"), said
        assert server.wait(SECONDS) == 0
