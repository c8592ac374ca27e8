"""Empty folders of the host that something is mounted on inside of a sandbox, where its parent is a folder of the host
that is seen read-only."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tavern_scripts.api.scripts import SandboxMount


class MountPoints:
    """The folders that sandboxes need at the moment and that had to be made, with how many need each."""

    def __init__(self) -> None:
        self._made: Counter[Path] = Counter()

    def make(self, mounts: Sequence[SandboxMount]) -> list[Path]:
        """Make what is missing: the folders of the host that staged mounts stand for, and those they are mounted on.

        Returns what `remove` is to be given. Raises `OSError` where that is not possible.
        """
        held: list[Path] = []
        try:
            for mount in mounts:
                if mount.mode == "staged":
                    self._hold(Path(mount.source), held)
                    for outer in mounts:
                        if outer.mode == "read" and mount.target.startswith(f"{outer.target}/"):
                            self._hold(Path(outer.source, os.path.relpath(mount.target, outer.target)), held)
        except BaseException:
            self.remove(held)
            raise
        return held

    def remove(self, held: Sequence[Path]) -> None:
        """Remove those that nobody needs any more and that are still empty."""
        for folder in reversed(held):
            self._made[folder] -= 1
            if self._made[folder] <= 0:
                del self._made[folder]
                with contextlib.suppress(OSError):
                    folder.rmdir()

    def _hold(self, folder: Path, held: list[Path]) -> None:
        if folder.is_dir() and self._made.keys().isdisjoint((folder, *folder.parents)):
            return  # it was there before any sandbox
        for each in (*reversed(folder.parents), folder):
            if each not in self._made:
                try:
                    each.mkdir()
                except OSError:
                    if each.is_dir():
                        continue  # it was there before any sandbox
                    raise
            self._made[each] += 1
            held.append(each)
