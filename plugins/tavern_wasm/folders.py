"""The folders that a module sees. WASI knows folders alone: single files that were granted are copied into one."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tavern_scripts.api.scripts import SandboxLaunch, SandboxMount
from tavern_scripts.api.staging import Stage, StagingError, fill, open_plain_stage

SCRATCH = "/tmp"


@dataclass
class Folders:
    """Folders of the host by the path at which the module sees them, which of them it may change, and the stages that
    are copied out in the end."""

    places: dict[str, Path] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    written: list[Path] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)

    def seen(self, folder: str) -> list[tuple[str, str, bool]]:
        """Return each with its path inside; the one that the module starts in is `.` there, too."""
        found = [(str(place), target, target in self.changed) for target, place in self.places.items()]
        return found + [(place, ".", changes) for place, target, changes in found if target == folder]

    def path(self, inside: str) -> Path:
        """Return the file of the host that is seen at a path. Raises `StagingError`."""
        for target in sorted(self.places, key=len, reverse=True):
            if inside.startswith(f"{target}/") and ".." not in PurePosixPath(inside).parts:
                return self.places[target] / inside[len(target) + 1 :]
        raise StagingError(f"{inside} is nothing that the module was granted")

    def close(self) -> None:
        """Give up what is open."""
        for stage in self.stages:
            stage.close()


def lay_out(launch: SandboxLaunch, box: Path) -> Folders:
    """Make the folders of a launch in the empty folder `box`. Blocking. Raises `StagingError`, `OSError`."""
    folders = Folders()
    try:
        _writable(folders, SCRATCH, box / "tmp")
        left = launch.limits.scratch
        for number, mount in enumerate(launch.mounts):
            if mount.mode == "staged":
                place = _writable(folders, mount.target, box / f"staged-{number}")
                stage = open_plain_stage(mount, str(place), launch.limits.scratch)
                folders.stages.append(stage)
                if mount.filled:
                    fill(stage)
            elif Path(mount.source).is_dir():
                folders.places[mount.target] = Path(mount.source)
                if mount.mode == "write":
                    folders.changed.add(mount.target)
            else:
                left = _copied(folders, mount, box / "files", left)
    except BaseException:
        folders.close()
        raise
    return folders


def _writable(folders: Folders, target: str, place: Path) -> Path:
    place.mkdir()
    folders.places[target] = place
    folders.changed.add(target)
    folders.written.append(place)
    return place


def _copied(folders: Folders, mount: SandboxMount, place: Path, left: int) -> int:
    """Copy a single file to where the module sees it, and return how many bytes may still be copied."""
    if mount.mode != "read":
        raise StagingError(f"{mount.target} is a single file, which a module can only read")
    left -= Path(mount.source).stat().st_size
    if left < 0:
        raise StagingError("the files that were granted one by one hold more than fits: grant their folder")
    target = PurePosixPath(mount.target)
    copy = place.joinpath(*target.parts[1:])
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(mount.source, copy)
    top = f"/{target.parts[1]}"
    folders.places.setdefault(top, place / target.parts[1])
    return left
