"""Completion as shells have it: the process that they ask, and the scripts that they read."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from helpers.command_line import tavern, tavern_process
from test_completion import asked


def test_the_process_of_a_shell_is_answered(tmp_path: Path) -> None:
    ran = tavern_process(cwd=tmp_path, **asked("tavern plu"))
    assert (ran.code, ran.out, ran.err) == (0, "plain,plugins\n", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_given_its_script(tmp_path: Path, shell: str) -> None:
    ran = tavern("completion", "ksh")
    assert (ran.code, ran.error) == (2, "Error: 'ksh': expected bash, zsh or fish")
    ran = tavern("completion", shell)
    assert (ran.code, f"_TAVERN_COMPLETE={shell}_complete" in ran.out) == (0, True)
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} does not read its script, since it is not installed: apt install {shell}")
    assert subprocess.run([shell, "-n"], input=ran.out.encode(), check=False).returncode == 0
