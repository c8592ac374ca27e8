"""A host that runs scripts, and the programs that a call is measured against."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tavern_host import Host
from tavern_host.projects import Folders
from tavern_scripts.api.scripts import SCRIPT_EXECUTION, SandboxLaunch, ScriptExecution, ScriptRequest

NOTHING = "pass"
WITH_DEPENDENCIES = '# /// script\n# dependencies = ["six==1.17.0"]\n# ///\nimport six\n'
"""Needs the package index of this machine once."""

PREFIX = "extensions.tavern-scripts."


@dataclass(frozen=True)
class Subject:
    """A service that runs scripts. `launch` is what it starts for a script of nothing."""

    service: ScriptExecution
    launch: SandboxLaunch
    concurrent: int

    @property
    def program(self) -> list[str]:
        """The interpreter with the options that scripts are run with, doing nothing."""
        script = next(at for at, word in enumerate(self.launch.argv) if word.endswith(".py"))
        return [*self.launch.argv[:script], "-c", NOTHING]

    def of(self, code: str, **request: Any) -> Callable[[], Awaitable[None]]:
        """Return how a piece of Python code is run. That raises `AssertionError` where it fails."""
        wanted = ScriptRequest(code=code, language="python", **request)

        async def run() -> None:
            result = await self.service.run(wanted)
            assert result.success, result.error

        return run

    async def run(self) -> None:
        """Run a script of nothing."""
        await self.of(NOTHING)()

    async def run_bare_sandbox(self) -> None:
        """Run it without the service."""
        async with aclosing(self._backend().run(self.launch, _nothing())) as outputs:
            async for output in outputs:
                if output.kind == "ended":
                    assert output.exit_code == 0, output

    def by_hand(self, number: int) -> list[str]:
        """Return the command that makes the sandbox; it reads the filter from a descriptor."""
        command: list[str] = self._backend().by_hand(self.launch, number)
        return command

    @contextmanager
    def filter(self) -> Iterator[int]:
        """Give a descriptor with the filter of system calls."""
        from tavern_scripts.sandbox.seccomp import build_filter

        number = os.memfd_create("filter", 0)
        try:
            os.write(number, build_filter())
            os.lseek(number, 0, os.SEEK_SET)
            yield number
        finally:
            os.close(number)

    def _backend(self) -> Any:
        from tavern_scripts.sandbox.bubblewrap import Bubblewrap
        from tavern_scripts.sandbox.executables import find_bubblewrap, find_setpriv

        return Bubblewrap(find_bubblewrap()[0], setpriv=find_setpriv() if os.geteuid() == 0 else None)


@asynccontextmanager
async def subject(**settings: Any) -> AsyncIterator[Subject]:
    """Give a subject on a host in folders of its own, whose operator has these settings of `tavern-scripts`.

    Raises `RuntimeError` where no sandbox holds on this machine.
    """
    concurrent = settings.setdefault("concurrentRuns", 16)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        await asyncio.to_thread(root.chmod, 0o755)
        folders = Folders(root / "config", root / "state", root / "data")
        interpreter = await asyncio.to_thread(_interpreter, root / "python")
        settings["interpreters"] = {"python": interpreter}
        operator = {f"{PREFIX}{key}": value for key, value in settings.items()}
        async with Host(root / "project", settings=operator, folders=folders) as host:
            service = host.services.get(SCRIPT_EXECUTION)
            reports = await service.backends()
            if not any(report.chosen for report in reports):
                raise RuntimeError(f"no sandbox holds on this machine: {reports}")
            yield Subject(service, await _launch(service, root, interpreter), concurrent)


def _interpreter(folder: Path) -> str:
    """Return a Python without any packages: what a machine's own imports when it starts would count on both sides."""
    base = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([base, "-m", "venv", "--without-pip", str(folder)], check=True)
    return str(folder / "bin" / "python3")


async def _launch(service: ScriptExecution, root: Path, python: str) -> SandboxLaunch:
    """Return the launch that the service would start for a script that does nothing."""
    from tavern_scripts.policy.languages import Interpreters
    from tavern_scripts.policy.review import Granted, Reads
    from tavern_scripts.workers.launches import Places, Program, RunExtras, launch_of

    script, output = root / "script", root / "output"
    script.mkdir(mode=0o755)
    output.mkdir(mode=0o755)
    (script / "main.py").write_text(NOTHING, encoding="utf-8")
    limits = (await service.review(ScriptRequest(code=NOTHING, language="python"))).limits
    interpreter = await Interpreters().find("python", python)
    granted = Granted(reads=Reads(whole=True))
    return launch_of(
        Program("main.py", is_code=True), interpreter, Places(script, output), granted, limits, {}, RunExtras()
    )


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""
