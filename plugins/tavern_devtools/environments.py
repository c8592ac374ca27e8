"""Virtual environments in which a plugin is really installed, for tests of what pip makes of it.

The host and its dependencies are those of the running interpreter; only the plugin is installed by itself.
"""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SECONDS = 300.0
"""How long a command may take."""

_NOT_THEIRS = ("PYTHON", "VIRTUAL_ENV", "TAVERN_", "PYTEST_")
"""How variables begin that concern the tests' own process alone."""
_MADE = shutil.ignore_patterns("__pycache__", "node_modules")
_MADE_AT_THE_TOP = shutil.ignore_patterns(".venv", "venv", ".tox", ".nox", ".*_cache", "build", "dist", "*.egg-info")
"""What tools make in a project and no build of it needs."""
_OFFLINE = ("could not find a version", "no matching distribution", "connection", "name resolution", "timed out")


class InstallationError(RuntimeError):
    """A plugin cannot be installed; the message says what pip said, and what to do."""


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Return the JSON document on stdout. Raises `ValueError` with what is there instead."""
        try:
            return json.loads(self.out)
        except ValueError:
            raise ValueError(f"no JSON on stdout: {self.out!r:.500} (stderr: {self.err!r:.500})") from None


@dataclass(frozen=True)
class InstalledPlugin:
    """An environment with a plugin, and a user of it whose files are below `folder`."""

    environment: Path
    folder: Path

    def tavern(self, *arguments: str | Path) -> Ran:
        """Run `tavern` with these arguments."""
        return self.python("-m", "tavern_host.cli", *arguments)

    def python(self, *arguments: str | Path) -> Ran:
        """Run the environment's Python with these arguments."""
        self.folder.mkdir(parents=True, exist_ok=True)
        own = {f"TAVERN_{kind}_DIR": str(self.folder / kind.lower()) for kind in ("CONFIG", "STATE", "DATA")}
        return _run([_python_of(self.environment), *arguments], cwd=self.folder, variables=own)


def make_environment(root: Path) -> Path:
    """Make a virtual environment with pip, in which the packages of this one can be imported too; return `root`.

    Raises `InstallationError`.
    """
    linked = ["--without-pip"] if find_spec("pip") else []  # pip is among the packages of this one: seconds less
    made = _run([sys.executable, "-m", "venv", *linked, root], cwd=root.parent)
    if made.code != 0:
        hint = "is the `venv` module installed? Debian and Ubuntu have it in python3-venv"
        raise InstallationError(f"no virtual environment can be made in {root} ({hint}):\n{made.out}{made.err}")
    packages = _run([_python_of(root), "-c", "import site; print(site.getsitepackages()[0], end='')"], cwd=root)
    Path(packages.out, "tavern_host_of_the_tests.pth").write_text(_links(), encoding="utf-8")
    return root


def install(source: Path, environment: Path, work: Path) -> None:
    """Install a plugin's project folder, wheel or sdist into an environment; `work` is a folder for the build.

    Raises `InstallationError`.
    """
    options: list[str] = []
    if source.is_dir():
        if not (source / "pyproject.toml").is_file():
            raise InstallationError(
                f"{source} has no pyproject.toml, so pip cannot install it; give the folder that has it"
            )
        source = _copied(source, work / source.name)  # builds leave files behind
        if not _missing_for_build(source):
            options.append("--no-build-isolation")
    pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", *options]
    done = _run([_python_of(environment), *pip, source], cwd=work)
    if done.code != 0:
        raise InstallationError(f"{source.name} cannot be installed{_advice(source, done)}:\n{done.out}{done.err}")


def _copied(project: Path, target: Path) -> Path:
    def left_out(folder: str, names: list[str]) -> set[str]:
        return _MADE(folder, names) | (_MADE_AT_THE_TOP(folder, names) if Path(folder) == project else set())

    try:
        return Path(shutil.copytree(project, target, symlinks=True, ignore=left_out))
    except (OSError, shutil.Error) as error:
        raise InstallationError(f"{project} cannot be copied: {error}") from None


def _advice(source: Path, done: Ran) -> str:
    if not any(text in done.err.lower() for text in _OFFLINE):
        return ""
    missing = _missing_for_build(source) if source.is_dir() else []
    what = " ".join(missing) or "what it depends on"
    return f" (pip did not get what it needs; to do without an index, install {what} into the environment of the tests)"


def _missing_for_build(project: Path) -> list[str]:
    """Return the build requirements of a project that this environment does not have."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        document = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
        needed = document.get("build-system", {}).get("requires", ["setuptools"])
        requirements = [Requirement(text) for text in needed]
    except (OSError, ValueError, InvalidRequirement, AttributeError, TypeError):
        return ["a build system"]  # pip says better what is wrong with the file

    def is_met(requirement: Requirement) -> bool:
        try:
            return requirement.specifier.contains(metadata.version(requirement.name), prereleases=True)
        except metadata.PackageNotFoundError:
            return False

    return [str(r) for r in requirements if not is_met(r)]


def _links() -> str:
    """Return the lines of a `.pth` file by which another environment finds this one's packages."""
    import tavern_host

    host = str(Path(tavern_host.__file__).parents[1])
    folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    lines = [] if host in folders else [host]
    return "\n".join([*lines, *(f"import site; site.addsitedir({folder!r})" for folder in folders)]) + "\n"


def _python_of(environment: Path) -> Path:
    return environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _run(command: list[str | Path], *, cwd: Path, variables: dict[str, str] | None = None) -> Ran:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_THEIRS)} | (variables or {})
    try:
        done = subprocess.run(
            [*command], check=False, cwd=cwd, env=environment, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        raise InstallationError(f"{' '.join(map(str, command))} did not end within {SECONDS:g} s") from None
    return Ran(done.returncode, done.stdout, done.stderr)
