"""Puts a backup in the place of a project, with what the operator's folder had for it.

All is unpacked and checked beside that place first. What was there before is renamed, and stays.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import zipfile
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from tavern_host import Folders, clock
from tavern_host.context import Project
from tavern_host.contracts.errors import Conflict, InvalidInput
from tavern_host.storage.files import locked, make_folder, write_atomic
from tavern_host.storage.open_folder import open_private
from tavern_host.storage.process_locks import ProcessLocks
from tavern_operations.archive import PROJECT, PROJECT_FILE, STATE, Contents, copy_out, opened, read_list
from tavern_operations.stores import refuse_newer

SERVED = "served"
"""The folder within an operator's folder that says which server serves the project."""


@dataclass
class Restored:
    """What became of a backup: `replaced` are the folders that were there before, by the names that they have now."""

    contents: Contents
    root: Path
    replaced: list[Path]


def check_backup(file: Path, folders: Folders, *, trust: bool) -> Generator[Contents]:
    """Read a whole backup file by file; yield its list after each. Raises `InvalidInput`, `OSError`."""
    with opened(file) as archive:
        contents = read_list(archive, folders.state, trust=trust)
        for name, about in contents.files.items():
            with Path(os.devnull).open("wb") as nowhere:
                copy_out(archive, name, about, nowhere)
            yield contents


def restore_backup(file: Path, folder: Path | None, folders: Folders, *, trust: bool) -> Generator[Restored]:
    """Restore a backup into a folder, or where it was made, step by step; yield after each what has become of it.

    Raises `InvalidInput` for what is no backup of this operator's and a folder that is something else, `Conflict` for
    a project that is served, `Misconfigured` for what a newer version wrote, `OSError`; then nothing was changed.
    """
    with opened(file) as archive:
        contents = read_list(archive, folders.state, trust=trust)
        if folder is None and trust:
            raise InvalidInput("say in which folder: it need not be you who wrote in the backup where it was made")
        root = (folder or Path(contents.root)).resolve()
        _check_target(root, folders.state, sum(about.size for about in contents.files.values()))
        root.parent.mkdir(parents=True, exist_ok=True)
        places = {PROJECT: root, STATE: folders.project_state(Project.of(root))}
        with locked(places[STATE].with_name(f".{places[STATE].name}.lock")), alone(places[STATE]):
            restored = Restored(contents, root, [])
            new = {name: place.with_name(f".{place.name}.restoring") for name, place in places.items()}
            try:
                for path in new.values():
                    shutil.rmtree(path, ignore_errors=True)  # of one that was killed
                make_folder(new[STATE])
                new[PROJECT].mkdir()
                for name in contents.folders:
                    _place(new, name).mkdir(parents=True, exist_ok=True)
                for name in contents.files:
                    _unpack(archive, new, name, contents)
                    yield restored
                for name, mode in contents.folders.items():
                    _place(new, name).chmod(mode & 0o777 | 0o700)
                for path in new.values():
                    refuse_newer(path)
                _move_grants(new[STATE] / "grants.json", Path(contents.root), root)
                being_restored = folders.being_restored(Project.of(root))
                being_restored.touch()  # nobody opens one folder of the backup beside the other of before
                os.sync()
                restored.replaced = _swap([(new[name], place) for name, place in places.items()])
                being_restored.unlink()
            finally:
                for path in new.values():
                    shutil.rmtree(path, ignore_errors=True)
    yield restored


def check_moved(old: Path, folders: Folders) -> None:
    """Raise `InvalidInput` for a folder that is still a project, or in which none was that something is known of."""
    if os.path.lexists(old / PROJECT_FILE):
        raise InvalidInput(f"{old} is still there: a copy of a project has to be reviewed, as one from anybody")
    if not folders.project_state(Project.of(old)).is_dir():
        raise InvalidInput(f"nothing is known of a project in {old}: give the folder in which it was")


def adopt(project: Project, old: Path, folders: Folders) -> list[Path]:
    """Let what the operator decided about the project that was in a folder be about this one; return what was decided
    about this one before, as the folder that keeps it. Raises `Conflict` where a server has the project, `OSError`."""
    state, place = folders.project_state(Project.of(old)), folders.project_state(project)
    with alone(place), alone(state):
        _move_grants(state / "grants.json", old.resolve(), project.root)
        return _swap([(state, place)])


def _check_target(root: Path, state: Path, size: int) -> None:
    """Raise `InvalidInput` unless a project may be put there, and there is room for it; `state` is the operator's."""
    if os.path.lexists(root) and not (root / PROJECT_FILE).is_file() and (not root.is_dir() or any(root.iterdir())):
        raise InvalidInput(f"{root} is there and is no project: give another folder")
    if state.resolve().is_relative_to(root) or root.is_relative_to(state.resolve()):
        raise InvalidInput(f"{root} and your folder {state} are within each other: give another folder")
    parent = next(path for path in root.parents if path.exists())
    if (free := shutil.disk_usage(parent).free) < size:
        raise InvalidInput(f"it takes {size:,} bytes, and there are {free:,} free in {parent}")


@contextlib.contextmanager
def alone(state: Path) -> Iterator[None]:
    """Keep servers from the project with this folder of the operator's. Raises `Conflict` where one has it."""
    locks = ProcessLocks(state / SERVED)
    try:
        locks.hold("server")
    except Conflict:
        by = "another process"
        with contextlib.suppress(OSError, ValueError, LookupError):  # it has just begun, or is no server
            server = json.loads((state / SERVED / "server.json").read_bytes())
            by = f"process {server['process']} at {server['address']}"
        raise Conflict(f"{by} has the project: stop that first") from None
    try:
        yield
    finally:
        locks.close()


def _place(new: dict[str, Path], name: str) -> Path:
    part, _, inner = name.partition("/")
    return new[part] / inner


def _unpack(archive: zipfile.ZipFile, new: dict[str, Path], name: str, contents: Contents) -> None:
    path, about = _place(new, name), contents.files[name]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "xb", opener=open_private) as target:
            copy_out(archive, name, about, target)
    except (FileExistsError, NotADirectoryError):
        raise InvalidInput(f"{name} is twice in it") from None
    path.chmod(about.mode)
    os.utime(path, ns=(about.changed, about.changed))


def _move_grants(path: Path, old: Path, new: Path) -> None:
    """Let grants of plugins in the project's folder be of those in its new one: a grant names the code's place."""
    if old == new or not path.exists():
        return
    try:
        saved = json.loads(path.read_bytes())
        for grant in saved["grants"].values():
            kind, _, place = grant["source"].partition(":")
            if Path(place).is_relative_to(old):
                grant["source"] = f"{kind}:{new / Path(place).relative_to(old)}"
    except (ValueError, LookupError, TypeError, AttributeError):
        raise InvalidInput("the grants in it are damaged") from None
    write_atomic(path, json.dumps(saved, indent=2).encode(), mode=0o600)


def _swap(pairs: list[tuple[Path, Path]]) -> list[Path]:
    """Put new folders in their places; return what the old ones are called now. Where one fails, none has changed."""
    moment = clock.now().strftime("%Y%m%dT%H%M%S%fZ")
    with contextlib.ExitStack() as undo:
        replaced = []
        for new, place in pairs:
            if os.path.lexists(place):
                aside = place.with_name(f"{place.name}.before-restore-{moment}")
                place.rename(aside)
                undo.callback(aside.rename, place)
                replaced.append(aside)
            new.rename(place)
            undo.callback(place.rename, new)
        undo.pop_all()
    os.sync()
    for path in replaced[:]:
        if {inner.name for inner in path.iterdir()} <= {SERVED}:  # nothing was there before
            shutil.rmtree(path)
            replaced.remove(path)
    return replaced
