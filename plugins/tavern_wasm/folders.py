"""The folders that a module sees. WASI knows folders alone: single files that were granted are copied into one."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tavern_scripts.api.scripts import SandboxLaunch
from tavern_scripts.api.staged_folders import StagedFolders
from tavern_scripts.api.staging import StagingError


@dataclass(frozen=True)
class Seen:
    """A folder of the host, the path at which the module sees it, and whether it may change what is in there."""

    place: Path
    target: str
    changes: bool = False


def seen_by(launch: SandboxLaunch, staged: StagedFolders) -> list[Seen]:
    """Return the folders that a module sees; the folder that it starts in is `.` for it, too. Blocking. Raises
    `StagingError`, `OSError`."""
    seen = [Seen(place, target, changes=True) for target, place in staged.places.items()]
    files = staged.box / "files"
    left = launch.limits.scratch
    for mount in launch.mounts:
        source = Path(mount.source)
        if mount.mode != "staged" and source.is_dir():
            seen.append(Seen(source, mount.target, changes=mount.mode == "write"))
        elif mount.mode == "read":
            left -= source.stat().st_size
            if left < 0:
                raise StagingError("the files that were granted one by one hold more than fits: grant their folder")
            target = PurePosixPath(mount.target)
            copy = files.joinpath(*target.parts[1:])
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy)
            top = Seen(files / target.parts[1], f"/{target.parts[1]}")
            seen += [top] if top not in seen else []
        elif mount.mode == "write":
            raise StagingError(f"{mount.target} is a single file, which a module can only read")
    return seen + [Seen(one.place, ".", one.changes) for one in seen if one.target == launch.folder]


def path_of(seen: Sequence[Seen], inside: str) -> Path:
    """Return the file of the host that is seen at a path. Raises `StagingError`."""
    for one in sorted(seen, key=lambda one: len(one.target), reverse=True):
        if inside.startswith(f"{one.target}/") and ".." not in PurePosixPath(inside).parts:
            return one.place / inside[len(one.target) + 1 :]
    raise StagingError(f"{inside} is nothing that the module was granted")
