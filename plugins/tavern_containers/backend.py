"""The sandbox of containers: each script runs in one that is made for it, and removed by its id in any case."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from tavern_containers import PROGRAMS, images
from tavern_containers.arguments import NOBODY, Engine, create_arguments, hidden_variables
from tavern_containers.engines import about, ask, find_engine, remove_orphans, variables
from tavern_host import PluginContext
from tavern_host.contracts.errors import ServiceUnavailable
from tavern_scripts.api.piped_program import PipedProgram, to_the_end
from tavern_scripts.api.scripts import IsolationCheck, SandboxLaunch, SandboxOutput
from tavern_scripts.api.staged_folders import StagedFolders
from tavern_scripts.api.staging import StagingError

_ID = re.compile(r"[0-9a-f]{12,64}")
_REASONS = {-9: "memory", -24: "cpu", -25: "files"}
"""Why the first process of a container was ended by a signal; it can send itself no -9, and others see it not."""


class Containers:
    """Runs scripts in containers of the images that the operator names."""

    weaker = (
        "the engine decides how well containers are kept apart, and who may use it has this machine",
        "the space that is written to is looked at ten times a second, so that more may be written for a moment",
    )
    """What it does not enforce that the best sandbox does."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._images = {PROGRAMS[language]: image for language, image in images(context).items()}
        self._engine: Engine | None = None
        self.made: list[str] = []
        """The ids of containers that are there."""

    async def prove(self) -> list[IsolationCheck]:
        """Try out the containers of each image. Raises `ServiceUnavailable` without an engine, or without an image."""
        from tavern_containers.canary import prove

        engine = await self.engine()
        for image in self._images.values():
            code, _, _ = await ask([engine.program, "image", "inspect", "--format", "{{.Id}}", image])
            if code != 0:
                raise ServiceUnavailable(f"the image is not on this machine: {engine.program} pull {image}")
        await remove_orphans(engine)
        checks = [await prove(self, program, engine, self.made) for program in self._images]
        return [check for found in checks for check in found]

    async def engine(self) -> Engine:
        """Return the maker of containers. Raises `ServiceUnavailable`."""
        if self._engine is None:
            settings = self._context.settings
            self._engine = await find_engine(str(settings.get("engine") or ""), float(settings.get("cpus") or 1))
        return self._engine

    async def prepare(self, launch: SandboxLaunch) -> None:
        """Nothing has to be made ready: images are there, or the sandbox is not usable."""

    async def run(self, launch: SandboxLaunch, stdin: AsyncIterator[bytes]) -> AsyncIterator[SandboxOutput]:
        """Run a program of an image, feeding it from `stdin`, and yield what comes out; closing the iterator removes
        its container."""
        staged = StagedFolders(launch)
        box = _Container(staged)
        try:
            try:
                engine = await self.engine()
                await staged.open()
                await to_the_end(self._create(engine, launch, box))
                command = [engine.program, "start", "--attach", "--interactive", box.id]
                box.program = PipedProgram(command, variables())
                await box.program.start()
            except (StagingError, ServiceUnavailable, OSError) as error:
                yield SandboxOutput(kind="ended", data=str(error).encode(), reason="broken")
                return
            async with aclosing(box.program.outputs(stdin, staged.overfull())) as outputs:  # type: ignore[type-var]
                async for output in outputs:
                    yield output
            yield await self._ended(engine, box)
        finally:
            await to_the_end(self._close(box))

    async def _create(self, engine: Engine, launch: SandboxLaunch, box: _Container) -> None:
        """Make the container. Raises `StagingError`, `ServiceUnavailable`."""
        image = self._images.get(launch.argv[0])
        if image is None:
            raise StagingError(f"{launch.argv[0]} is in no image: a container runs {' or '.join(self._images)}")
        if launch.channel or launch.calls is not None:
            raise StagingError("a container has no descriptors: leave out entryPoint, tools, sessions and the channel")
        owner = (os.getuid(), os.getgid()) if os.getuid() else (NOBODY, NOBODY)
        arguments = create_arguments(engine, image, launch, box.staged.places, owner)
        code, said, errors = await ask(arguments, hidden_variables(launch))
        found = said.strip().rpartition("\n")[2]
        if code != 0 or not _ID.fullmatch(found):
            raise StagingError(f"{engine.program} made no container: {(errors or said).strip()[:1000]}")
        box.id = found
        self.made.append(found)

    async def _ended(self, engine: Engine, box: _Container) -> SandboxOutput:
        """Return how a container ended, as its engine knows it."""
        state = await about(engine, box.id, "State")
        assert box.program is not None
        end: dict[str, Any] = {"usage": box.program.usage()}
        code = int(state.get("ExitCode", box.program.status or 0))
        code = 128 - code if 128 < code <= 192 else code
        if await asyncio.to_thread(box.staged.is_overfull):
            end |= {"exit_code": -9, "reason": "files"}
        elif state.get("Error"):
            end |= {"reason": "broken", "data": str(state["Error"]).encode()}
        else:
            end |= {"exit_code": code, "reason": "memory" if state.get("OOMKilled") else _REASONS.get(code)}
            end["data"] = (await box.staged.copy_out()).encode() if code == 0 else b""
        return SandboxOutput(kind="ended", **end)

    async def _close(self, box: _Container) -> None:
        """Leave nothing."""
        if box.id and self._engine is not None:
            try:
                code, _, errors = await ask([self._engine.program, "rm", "--force", "--volumes", box.id])
                if code == 0:
                    self.made.remove(box.id)
                else:
                    self._context.log.error("the container %s could not be removed: %s", box.id, errors.strip()[:500])
            except ServiceUnavailable as error:
                self._context.log.error("the container %s could not be removed: %s", box.id, error)
        if box.program is not None:
            await box.program.stop()
        await box.staged.close()


class _Container:
    """What there is of one run."""

    def __init__(self, staged: StagedFolders) -> None:
        self.staged = staged
        self.id = ""
        self.program: PipedProgram | None = None
