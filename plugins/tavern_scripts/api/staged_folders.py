"""Folders of this machine in the place of what a launch writes to, for sandboxes without file systems of their own."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

from tavern_scripts.api.piped_program import to_the_end
from tavern_scripts.api.scripts import SandboxLaunch
from tavern_scripts.api.staging import MAX_ENTRIES, Stage, copy_out, fill, open_plain_stage

_TICK = 0.1


class StagedFolders:
    """The folders of one launch, below `box`, which goes with them: `open` makes them, `close` takes them away."""

    def __init__(self, launch: SandboxLaunch, *scratch: str) -> None:
        """`scratch` are further places inside that may be written to, of which nothing is kept."""
        self._launch = launch
        self._scratch = scratch
        self._stages: list[Stage] = []
        self.box = Path(tempfile.mkdtemp(prefix="tavern-script-"))
        self.places: dict[str, Path] = {}
        """By their paths inside."""

    async def open(self) -> None:
        """Make and fill them. Raises `StagingError`, `OSError`."""
        await to_the_end(asyncio.to_thread(self._open))

    async def overfull(self) -> None:
        """Return when more is written to one of them than the launch allows; it is looked at ten times a second."""
        while not await asyncio.to_thread(self.is_overfull):  # noqa: ASYNC110
            await asyncio.sleep(_TICK)

    def is_overfull(self) -> bool:
        """Return whether there is more in one of them than the launch allows. Blocking."""
        return any(_used(place) > self._launch.limits.scratch for place in self.places.values())

    async def copy_out(self) -> str:
        """Keep what is to be kept; return what was left out and why, or ''."""
        notes = await to_the_end(asyncio.to_thread(lambda: [copy_out(stage) for stage in self._stages]))
        return "; ".join(filter(None, notes))

    async def close(self) -> None:
        """Leave nothing."""
        for stage in self._stages:
            stage.close()
        self._stages = []
        await to_the_end(asyncio.to_thread(shutil.rmtree, self.box, ignore_errors=True))

    def _open(self) -> None:
        for target in self._scratch:
            self._make(target)
        for mount in self._launch.mounts:
            if mount.mode == "staged":
                stage = open_plain_stage(mount, str(self._make(mount.target)), self._launch.limits.scratch)
                self._stages.append(stage)
                if mount.filled:
                    fill(stage)

    def _make(self, target: str) -> Path:
        place = self.places[target] = self.box / f"staged-{len(self.places)}"
        place.mkdir()
        place.chmod(0o777)  # the box keeps others out; inside it may be another user who writes
        return place


def _used(folder: Path) -> int:
    """Return how many bytes a folder takes on the disk; too many entries count as too much."""
    total = entries = 0
    for path, folders, names in os.walk(folder):
        for name in (*folders, *names):
            entries += 1
            try:
                total += Path(path, name).lstat().st_blocks * 512
            except OSError:  # it is gone already
                continue
            if entries > MAX_ENTRIES:
                return 1 << 62
    return total
