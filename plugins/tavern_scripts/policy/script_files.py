"""Finds script files: in the operator's folders, or in the folder of the plugin whose they are, and nowhere else."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.names import did_you_mean
from tavern_scripts.api.scripts import LANGUAGE_SUFFIXES, ScriptErrorType
from tavern_scripts.results.refusal import Refused

MAX_PATH = 1000
"""How many characters the path of a script has at most."""

MAX_FOLDER = 64 << 20
MAX_FOLDER_FILES = 2_000
"""How much may lie in the folder of a script that is copied, since it has to be approved or is not open to all."""

COMPILED = "__pycache__"
"""Where Python keeps bytecode, which is no part of what is reviewed or approved, and which is not copied."""

_MOST_NAMES = 200


@dataclass(frozen=True)
class ScriptFolder:
    """A folder in which scripts may lie, what it is called in messages, and the folder that no link may lead it out of
    where there is one."""

    folder: Path
    called: str
    home: Path | None = None


@dataclass(frozen=True)
class Script:
    """A script file: the folder that it lies in, without links, its name there, and how it is called: by its path in
    the folder of its owner."""

    folder: Path
    name: str
    called: str

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / self.name


def find_script(path: str, bases: Sequence[ScriptFolder], *, from_home: bool = False) -> Script:
    """Return the script at a path in the first of these folders that has it; `from_home`, also at one from its home.

    Raises `Refused`: a `SecurityError` for a path that leads, or is led by a link, out of its folder, a `ScriptError`
    where there is no such file. Blocking.
    """
    steps = _steps(path)
    for base in bases:
        script = _within(base, steps)
        if script is not None:
            return script
    for base in bases if from_home else ():
        own = base.folder.relative_to(base.home).parts if base.home is not None else ()
        script = _within(base, steps[len(own) :]) if own and steps[: len(own)] == own else None
        if script is not None:
            return script
    where = " or ".join(base.called for base in bases) or "any folder: the operator has named none"
    hint = did_you_mean(path, _scripts_in(bases))
    raise Refused(ScriptErrorType.SCRIPT, f"there is no script {path!r:.200} in {where}{hint}")


def _steps(path: str) -> tuple[str, ...]:
    if not path.strip() or len(path) > MAX_PATH:
        raise InvalidInput(f"a script's path must have 1 to {MAX_PATH:,} characters, it has {len(path):,}")
    if not path.isprintable() or "\\" in path:
        raise _outside(path, "it has a character that does not belong into a path")
    steps = PurePosixPath(path).parts
    if path.startswith(("/", "~")):
        raise _outside(path, "it must be relative to the folder for scripts")
    if ".." in steps:
        raise _outside(path, "it leads upwards with ..")
    if COMPILED in steps:
        raise _outside(path, f"{COMPILED} is for what Python keeps there")
    return steps


def _within(base: ScriptFolder, steps: tuple[str, ...]) -> Script | None:
    called, root = "/".join(steps), Path(os.path.realpath(base.folder))
    if base.home is not None and not root.is_relative_to(os.path.realpath(base.home)):
        raise _outside(called, f"a link leads {base.called} out of it")
    try:
        found = Path(os.path.realpath(root.joinpath(*steps), strict=True))
    except OSError:
        return None
    if not found.is_relative_to(root):
        raise _outside(called, f"a link leads out of {base.called}")
    if COMPILED in found.relative_to(root).parts:
        raise _outside(called, f"a link leads into {COMPILED}")
    if not found.is_file():
        return None
    return Script(found.parent, found.name, called)


def _outside(path: str, why: str) -> Refused:
    return Refused(ScriptErrorType.SECURITY, f"the script {path!r:.200} may not be run: {why}")


def _scripts_in(bases: Sequence[ScriptFolder]) -> list[str]:
    """Return the names of some scripts, to guess which one was meant."""
    found: list[str] = []
    for base in bases:
        for folder, folders, names in os.walk(base.folder):
            folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
            inner = PurePosixPath(os.path.relpath(folder, base.folder))
            found += [str(inner / name) for name in names if PurePosixPath(name).suffix in LANGUAGE_SUFFIXES]
            if len(found) > _MOST_NAMES:
                return found[:_MOST_NAMES]
    return found


def code_hash(code: str) -> str:
    """Return by which hash a piece of code is approved."""
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()


def folder_hash(folder: Path, name: str) -> str:
    """Return by which hash a script is approved: over its name and all files of its folder, for it may use any of them.

    Raises `Refused` where there are too many. Blocking.
    """
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape") + b"\0\0")
    for path, file in _files(folder):
        with file.open("rb") as opened:
            content = hashlib.file_digest(opened, "sha256").digest()
        digest.update(path.encode("utf-8", "surrogateescape") + b"\0" + content)
    return digest.hexdigest()


def approved_copy(script: Script, approved: str, target: Path) -> Path:
    """Copy a script's folder as `open_copy` does and return the copy, so that what was approved is what runs.

    Raises `Refused` where it is something else by now. Blocking.
    """
    open_copy(script, target)
    if folder_hash(target, script.name) != approved:
        raise Refused(ScriptErrorType.SECURITY, f"{script.called} changed while it was looked at, and is not run")
    return target


def is_open(script: Script) -> bool:
    """Return whether a user without any rights can read a script in its folder: as that user it runs where the host is
    root's. Blocking."""
    return (script.folder.stat().st_mode & 0o005) == 0o005 and bool(script.path.stat().st_mode & 0o004)


def has_compiled(script: Script) -> bool:
    """Return whether there is bytecode in the folder of a script, which a run would read in place of its source.
    Blocking."""
    return any(COMPILED in folders for _, folders, _ in os.walk(script.folder))


def open_copy(script: Script, target: Path) -> Path:
    """Copy the regular files of a script's folder into the new folder `target`, so that every user can read them.

    Raises `Refused` where there are too many. Blocking.
    """
    found = list(_files(script.folder))  # all of them first: the copy may lie in the folder that is copied
    target.mkdir()
    for path, file in found:
        copy = target / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
        copy.chmod(0o755 if file.stat().st_mode & 0o111 else 0o644)
    for folder in (target, *(path for path in target.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    return target


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the regular files of a folder by path; links are not followed, and nothing else is seen of a script.

    Raises `Refused` where there are too many.
    """
    left, count = MAX_FOLDER, 0
    for inner, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != COMPILED)
        for name in sorted(names):
            file = Path(inner, name)
            about = file.lstat()
            if not stat.S_ISREG(about.st_mode):
                continue
            left, count = left - about.st_size, count + 1
            if left < 0 or count > MAX_FOLDER_FILES:
                raise Refused(
                    ScriptErrorType.SECURITY,
                    f"the script's folder holds more than the {MAX_FOLDER_FILES:,} files or {MAX_FOLDER >> 20} MB that "
                    "are copied for a script; put it into a folder of its own",
                )
            yield os.path.relpath(file, folder), file
