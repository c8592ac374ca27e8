"""The sandbox of modules of WebAssembly: wasmtime runs each in a process of its own, which this side feeds and kills.
The module sees the folders that its launch mounts and nothing else of this machine."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

from tavern_host.contracts.errors import ServiceUnavailable
from tavern_scripts.api.piped_program import PipedProgram, to_the_end
from tavern_scripts.api.scripts import IsolationCheck, SandboxLaunch, SandboxOutput, ScriptUsage
from tavern_scripts.api.staging import StagingError, copy_out
from tavern_wasm.folders import Folders, lay_out

MISSING = "the package wasmtime is not installed: pip install tavern-host[wasm]"

_RUNNER = Path(__file__).with_name("runner.py")
_REPORT = 4096
_KILLED_FOR_CPU = -24


class Wasmtime:
    """Runs modules of WebAssembly; programs of this machine it cannot run."""

    weaker = (
        "the space that is written to is looked at 20 times a second, so that more may be written for a moment",
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
        box = Path(tempfile.mkdtemp(prefix="tavern-wasm-"))
        program: PipedProgram | None = None
        folders = Folders()
        report, theirs = os.pipe()
        try:
            try:
                _check(launch)
                folders = await to_the_end(asyncio.to_thread(lay_out, launch, box))
                job = json.dumps(_job(launch, folders, theirs)).encode()
                program = PipedProgram(_command(), {}, descriptors=[theirs])
                await program.start()
            except (StagingError, OSError) as error:
                yield SandboxOutput(kind="ended", data=str(error).encode(), reason="broken")
                return
            finally:
                os.close(theirs)
            counted = _Counted()
            async with aclosing(program.outputs(counted.with_job(job, stdin))) as outputs:  # type: ignore[type-var]
                async for output in outputs:
                    counted.add(output)
                    yield output
            ended = counted.ended(program.status, os.read(report, _REPORT))
            if ended.exit_code == 0 and ended.reason is None:
                notes = await to_the_end(asyncio.to_thread(lambda: [copy_out(stage) for stage in folders.stages]))
                ended = ended.model_copy(update={"data": "; ".join(filter(None, notes)).encode()})
            yield ended
        finally:
            os.close(report)
            await to_the_end(_clean(program, folders, box))


class _Counted:
    """What went in and came out, and how long it took."""

    def __init__(self) -> None:
        self._since = time.perf_counter()
        self._sizes = {"input": 0, "stdout": 0, "stderr": 0}

    async def with_job(self, job: bytes, stdin: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the job and then what the module reads."""
        yield len(job).to_bytes(4, "big") + job
        async for data in stdin:
            self._sizes["input"] += len(data)
            yield data

    def add(self, output: SandboxOutput) -> None:
        """Count what came out."""
        self._sizes[output.kind] += len(output.data)

    def ended(self, status: int | None, report: bytes) -> SandboxOutput:
        """Return the end of a run by what its process reported; where it did not, it was killed."""
        found: dict[str, Any] = json.loads(report) if report else {}
        reason, code = found.get("reason"), found.get("code", status)
        if reason == "wall":  # whoever listens says so
            reason, code = None, -9
        if not report:
            reason = "cpu" if status == _KILLED_FOR_CPU else None
        usage = ScriptUsage(
            wall_ms=(time.perf_counter() - self._since) * 1000,
            cpu_ms=found.get("cpu"),
            peak_memory=found.get("peak"),
            input=self._sizes["input"],
            output=self._sizes["stdout"],
            log=self._sizes["stderr"],
        )
        return SandboxOutput(kind="ended", exit_code=code, reason=reason, usage=usage)


def _check(launch: SandboxLaunch) -> None:
    """Raise `StagingError` for what no module can be given."""
    if launch.proxy is not None:
        raise StagingError("a module of WebAssembly has no network that could be granted: ask for no hosts")
    if launch.channel or launch.calls is not None:
        raise StagingError("a module of WebAssembly has its result on stdout, and calls no tools")
    for word in (*launch.argv, *launch.environment.values()):
        if "\0" in word:
            raise StagingError(f"a module cannot be given {word!r:.100}, which has a zero byte in it")


def _job(launch: SandboxLaunch, folders: Folders, report: int) -> dict[str, Any]:
    limits = launch.limits
    return {
        "module": str(folders.path(launch.argv[0])),
        "argv": launch.argv,
        "environment": launch.environment,
        "folders": folders.seen(launch.folder),
        "written": [str(folder) for folder in folders.written],
        "packages": _packages(),
        "report": report,
        "wall": limits.wall,
        "cpu": limits.cpu,
        "memory": limits.memory,
        "files": limits.files,
        "file_size": limits.file_size,
        "space": limits.scratch,
    }


def _command() -> list[str]:
    return [sys.executable, "-I", "-S", "-B", str(_RUNNER)]


def _packages() -> str | None:
    """Return the folder in which wasmtime is installed, if it is."""
    found = importlib.util.find_spec("wasmtime")
    return str(Path(found.origin).parent.parent) if found is not None and found.origin else None


async def _clean(program: PipedProgram | None, folders: Folders, box: Path) -> None:
    if program is not None:
        await program.stop()
    folders.close()
    await asyncio.to_thread(shutil.rmtree, box, ignore_errors=True)
