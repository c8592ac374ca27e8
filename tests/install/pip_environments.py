"""Builds wheels, makes environments with pip, and runs commands in them as a person at a terminal does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
_NOT_OURS = ("PYTHON", "VIRTUAL_ENV", "TAVERN_")
"""How variables begin that would let an installation see the tests' own environment."""


def own_environment() -> dict[str, str]:
    """Return the variables of this process without those that concern this process alone."""
    return {k: v for k, v in os.environ.items() if not k.startswith(_NOT_OURS)}


def run(*command: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command outside of the repository and return what came of it."""
    environment = own_environment() | variables
    return subprocess.run(
        [*command], check=False, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )


def must_run(*command: str | Path, cwd: Path) -> str:
    """Run a command that has to succeed; return its stdout."""
    done = run(*command, cwd=cwd)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Environment:
    """A virtual environment, used from outside as a person at a terminal does."""

    root: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.root / "bin" / "python"

    def get_ready(self, *requirements: str) -> None:
        """Install with uv, in a second, what pip takes ten for; what uv does not find is left to pip."""
        run(sys.executable, "-m", "uv", "pip", "install", "--python", self.python, *requirements, cwd=self.root)

    def pip_install(self, *what: str | Path) -> None:
        """Install packages with their dependencies, from wherever pip is set up to look."""
        pip = [sys.executable, "-m", "pip", "--python", self.python, "install"]
        must_run(*pip, "--quiet", "--no-compile", *what, cwd=self.root)

    @property
    def packages(self) -> Path:
        """Where its packages are."""
        return next(self.root.glob("lib/python*/site-packages"))

    def at(self, folder: Path) -> User:
        """Return a user of this environment, with operator's folders and a current folder below `folder`."""
        return User(self, folder)


@dataclass(frozen=True)
class User:
    """Somebody who types commands; what they decided is kept in folders of their own."""

    environment: Environment
    folder: Path

    def variables(self) -> dict[str, str]:
        """Return the variables of this user's commands."""
        return {f"TAVERN_{kind}_DIR": str(self.folder / kind.lower()) for kind in ("CONFIG", "STATE", "DATA")}

    def python(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run the environment's interpreter."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return run(self.environment.python, *arguments, cwd=self.folder, **self.variables())

    def try_tavern(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the `tavern` that pip installed; return what came of it."""
        return self.python(self.environment.root / "bin" / "tavern", *arguments)

    def tavern(self, *arguments: str) -> Any:
        """Run a `tavern` command that has to succeed; return its `--json`."""
        done = self.try_tavern(*arguments, "--json")
        assert done.returncode == 0, f"tavern {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout)

    def imported_by(self, *arguments: str) -> tuple[set[str], Any]:
        """Return the modules that a `tavern` command imports, and its `--json`."""
        done = self.python("-v", self.environment.root / "bin" / "tavern", *arguments, "--json")
        assert done.returncode == 0, done.stderr
        return set(re.findall(r"^import '([\w.]+)' #", done.stderr, re.MULTILINE)), json.loads(done.stdout)


def make_environment(root: Path) -> Environment:
    """Make an empty environment; pip, which takes longest to make, is that of the tests."""
    must_run(sys.executable, "-m", "venv", "--without-pip", root, cwd=root.parent)
    return Environment(root)


def build_wheel(source: Path, target: Path) -> Path:
    """Build a wheel of a folder or sdist with pip and return it."""
    options = ["-q", "--no-deps", "--no-build-isolation", "--wheel-dir", target]
    must_run(sys.executable, "-m", "pip", "wheel", *options, source, cwd=target)
    (wheel,) = target.glob("*.whl")
    return wheel
