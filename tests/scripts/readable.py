"""What an ordinary user may read, where the tests are run by root: an environment or a checkout may be in a folder that
is root's alone."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

_LEFT_OUT = shutil.ignore_patterns(".git", "__pycache__", "node_modules", ".mypy_cache", ".ruff_cache", ".pytest_cache")


def closed_at(path: Path) -> Path | None:
    """Return the outermost folder on the way to a path, or the path itself, that others may not enter; None where they
    may enter them all."""
    way = [*reversed(path.parents), path]
    return next((each for each in way if each.is_dir() and not each.stat().st_mode & stat.S_IXOTH), None)


def readable(path: str, copies: Path) -> str:
    """Return a path that others may read: itself, or a copy of what is there in the folder `copies`."""
    found = Path(path).resolve()
    if not found.exists() or closed_at(found) is None:
        return path
    copied = copies / f"{len(list(copies.iterdir()))}-{found.name}"
    if found.is_dir():
        shutil.copytree(found, copied, symlinks=True, ignore=_LEFT_OUT)
        copied.chmod(0o755)
    else:
        shutil.copy2(found, copied)
    return str(copied)
