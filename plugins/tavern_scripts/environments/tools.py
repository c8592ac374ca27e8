"""The programs that install packages: uv, and npm or bun. Finds them; runs nothing."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from tavern_scripts.api.scripts import SandboxMount, ScriptErrorType
from tavern_scripts.policy.languages import Interpreter
from tavern_scripts.results.refusal import Refused
from tavern_scripts.sandbox.layout import installation

_PLACE = "/tavern/installer"
"""Where an installer is seen inside."""


@dataclass(frozen=True)
class Installer:
    """A program that installs packages: its first words inside, and what has to be mounted for it."""

    name: str
    argv: tuple[str, ...]
    mounts: tuple[SandboxMount, ...]


def find_uv() -> Installer:
    """Return uv, of the PyPI package `uv` or of the system. Raises `Refused` where there is none."""
    package = importlib.util.find_spec("uv")
    beside = [Path(sys.executable).parent / "uv"] if package is not None else []
    found = next((path for path in (*beside, Path(shutil.which("uv") or "/nowhere")) if os.access(path, os.X_OK)), None)
    if found is None:
        raise Refused(
            ScriptErrorType.DEPENDENCY,
            "Python packages are installed by uv, and there is no uv: "
            "install it by `pip install 'tavern-host[scripts]'`",
        )
    place = f"{_PLACE}/uv"
    return Installer("uv", (place,), (SandboxMount(target=place, source=os.path.realpath(found)),))


def find_node_installer(interpreter: Interpreter) -> Installer:
    """Return npm, or bun where it runs the script and there is no npm. Raises `Refused` where there is neither."""
    npm = _npm(interpreter)
    if npm is not None:
        node = interpreter.program if interpreter.language == "nodejs" else shutil.which("node")
        if node is not None:
            mounts = [*_program(node), SandboxMount(target=f"{_PLACE}/npm", source=str(npm))]
            argv = (os.path.realpath(node), f"{_PLACE}/npm/bin/npm-cli.js")
            return Installer("npm", argv, tuple(mounts))
    if interpreter.language == "bun":
        return Installer("bun", (interpreter.program,), tuple(_program(interpreter.program)))
    raise Refused(
        ScriptErrorType.DEPENDENCY,
        "the script depends on packages, which npm installs, and there is no npm beside node: install it",
    )


def _npm(interpreter: Interpreter) -> Path | None:
    """Return the folder of npm: the one that belongs to the interpreter, or the system's."""
    beside = Path(interpreter.program).with_name("npm")
    for candidate in (str(beside), shutil.which("npm")):
        if candidate:
            folder = Path(os.path.realpath(candidate)).parent.parent
            if (folder / "bin" / "npm-cli.js").is_file():
                return folder
    return None


def _program(path: str) -> list[SandboxMount]:
    return [SandboxMount(target=place, source=place) for place in installation(os.path.realpath(path))]
