"""Makes environments with pip, and runs commands in them as a person at a terminal does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[3]
_NOT_OURS = ("PYTHON", "VIRTUAL_ENV", "TAVERN_")
"""How variables begin that would let an installation see the tests' own environment."""


def run(*command: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command outside of the repository and return what came of it."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_OURS)} | variables
    return subprocess.run(
        [*command], check=False, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )


def must_run(*command: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command that has to succeed."""
    done = run(*command, cwd=cwd, **variables)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and somebody who types commands in it: what they decide is kept in a folder beside it."""

    root: Path

    def make(self, *requirements: str) -> None:
        """Make it, with uv, in a second, what pip takes ten for; what uv does not find is left to pip."""
        must_run(sys.executable, "-m", "venv", "--without-pip", self.root, cwd=self.root.parent)
        uv = [sys.executable, "-m", "uv", "pip", "install", "--python", self.root / "bin" / "python"]
        run(*uv, *requirements, cwd=self.root)

    def pip_install(self, *what: str | Path) -> None:
        """Install packages with their dependencies, from wherever pip is set up to look."""
        pip = [sys.executable, "-m", "pip", "--python", self.root / "bin" / "python", "install"]
        must_run(*pip, "--quiet", "--no-compile", *what, cwd=self.root)

    def python(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run the environment's interpreter, which has to succeed."""
        return must_run(self.root / "bin" / "python", *arguments, cwd=self.root.parent, **self.variables())

    def tavern(self, *arguments: str | Path) -> Any:
        """Run a `tavern` command that has to succeed; return its `--json`."""
        return json.loads(self.python(self.root / "bin" / "tavern", *arguments, "--json").stdout)

    def refused(self, *arguments: str | Path) -> str:
        """Run a `tavern` command that is a mistake; return its error."""
        done = run(self.root / "bin" / "tavern", *arguments, cwd=self.root.parent, **self.variables())
        assert (done.returncode, done.stdout) == (2, "")
        return done.stderr

    def imported_by(self, *arguments: str | Path) -> tuple[set[str], Any]:
        """Return the modules that a `tavern` command imports, and its `--json`."""
        done = self.python("-v", self.root / "bin" / "tavern", *arguments, "--json")
        return set(re.findall(r"^import '([\w.]+)' #", done.stderr, re.MULTILINE)), json.loads(done.stdout)

    def variables(self) -> dict[str, str]:
        """Return the variables that keep what is decided beside the environment."""
        return {f"TAVERN_{kind}_DIR": str(self.root.parent / kind.lower()) for kind in ("CONFIG", "STATE", "DATA")}
