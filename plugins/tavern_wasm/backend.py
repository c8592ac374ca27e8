"""The sandbox of modules of WebAssembly: wasmtime runs each in a process of its own, which this side feeds and kills.
The module sees the folders that its launch mounts and nothing else of this machine."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from tavern_host.contracts.errors import ServiceUnavailable
from tavern_scripts.api.piped_program import PipedProgram, to_the_end
from tavern_scripts.api.scripts import IsolationCheck, SandboxLaunch, SandboxOutput
from tavern_scripts.api.staged_folders import StagedFolders
from tavern_scripts.api.staging import StagingError
from tavern_wasm.folders import Seen, path_of, seen_by

MISSING = "the package wasmtime is not installed: pip install tavern-host[wasm]"

_RUNNER = Path(__file__).with_name("runner.py")
_SCRATCH = "/tmp"
_REPORT = 4096
_KILLED_FOR_CPU = -24


class Wasmtime:
    """Runs modules of WebAssembly; programs of this machine it cannot run."""

    weaker = (
        "the space that is written to is looked at ten times a second, so that more may be written for a moment",
        "memory that the host's kernel holds for a module, such as for open files, is bounded by their number alone",
    )
    """What it does not enforce that the best sandbox does."""

    async def prove(self) -> list[IsolationCheck]:
        """Try out what a module could reach. Raises `ServiceUnavailable` where there is no wasmtime."""
        from tavern_wasm.canary import prove

        if await asyncio.to_thread(_packages) is None:
            raise ServiceUnavailable(MISSING)
        return await prove(self)

    async def prepare(self, launch: SandboxLaunch) -> None:
        """Nothing has to be made ready."""

    async def run(self, launch: SandboxLaunch, stdin: AsyncIterator[bytes]) -> AsyncIterator[SandboxOutput]:
        """Run a module, feeding it from `stdin`, and yield what comes out; closing the iterator kills it."""
        staged = StagedFolders(launch, _SCRATCH)
        program: PipedProgram | None = None
        report, theirs = os.pipe()
        try:
            try:
                _check(launch)
                await staged.open()
                seen = await to_the_end(asyncio.to_thread(seen_by, launch, staged))
                job = json.dumps(_job(launch, seen, theirs)).encode()
                job = len(job).to_bytes(4, "big") + job
                command = [sys.executable, "-I", "-S", "-B", str(_RUNNER)]
                program = PipedProgram(command, {}, descriptors=[theirs], before=job)
                await program.start()
            except (StagingError, OSError) as error:
                yield SandboxOutput(kind="ended", data=str(error).encode(), reason="broken")
                return
            finally:
                os.close(theirs)
            async with aclosing(program.outputs(stdin, staged.overfull())) as outputs:  # type: ignore[type-var]
                async for output in outputs:
                    yield output
            yield await _ended(program, os.read(report, _REPORT), staged)
        finally:
            os.close(report)
            await to_the_end(_close(program, staged))


async def _ended(program: PipedProgram, report: bytes, staged: StagedFolders) -> SandboxOutput:
    """Return the end of a run by what its process reported; one that reported nothing was killed."""
    found: dict[str, Any] = json.loads(report) if report else {"code": program.status}
    reason, code, note = found.get("reason"), found["code"], ""
    if reason == "wall":  # whoever listens says so
        reason, code = None, -9
    elif not report and program.status == _KILLED_FOR_CPU:
        reason = "cpu"
    if await asyncio.to_thread(staged.is_overfull):
        reason = "files"
    elif (code, reason) == (0, None):
        note = await staged.copy_out()
    usage = program.usage(cpu_ms=found.get("cpu"), peak_memory=found.get("peak"))
    return SandboxOutput(kind="ended", data=note.encode(), exit_code=code, reason=reason, usage=usage)


async def _close(program: PipedProgram | None, staged: StagedFolders) -> None:
    if program is not None:
        await program.stop()
    await staged.close()


def _check(launch: SandboxLaunch) -> None:
    """Raise `StagingError` for what no module can have."""
    if launch.proxy is not None:
        raise StagingError("a module of WebAssembly has no network that could be granted: ask for no hosts")
    if launch.channel or launch.calls is not None:
        raise StagingError("a module of WebAssembly has its result on stdout, and calls no tools")
    for word in (*launch.argv, *launch.environment.values()):
        if "\0" in word:
            raise StagingError(f"a module cannot have {word!r:.100}, which has a zero byte in it")


def _job(launch: SandboxLaunch, seen: Sequence[Seen], report: int) -> dict[str, Any]:
    return {
        "module": str(path_of(seen, launch.argv[0])),
        "argv": launch.argv,
        "environment": launch.environment,
        "folders": [(str(one.place), one.target, one.changes) for one in seen],
        "packages": _packages(),
        "report": report,
        **launch.limits.model_dump(by_alias=False, include={"wall", "cpu", "memory", "files", "file_size"}),
    }


def _packages() -> str | None:
    """Return the folder in which wasmtime is installed, if it is."""
    found = importlib.util.find_spec("wasmtime")
    return str(Path(found.origin).parent.parent) if found is not None and found.origin else None
