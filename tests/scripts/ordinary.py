"""Runs programs as an ordinary user where the tests are run by root: the interpreter, its environment and the checkout
may be in folders that are root's alone, so the program gets a mount namespace in which others may enter these."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

NOBODY = 65534
ROOT = Path(__file__).resolve().parents[2]

_OPENED = """
import json, os, subprocess, sys
from pathlib import Path

def mount(*arguments):
    subprocess.run(["mount", *map(str, arguments)], check=True)

def bind(source, target):
    if source.is_symlink():
        target.symlink_to(os.readlink(source))
    elif source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        mount("--rbind", source, target)
    else:
        target.touch()
        mount("--bind", source, target)

places, spare = json.loads(sys.argv[1]), Path(sys.argv[2])
mount("--make-rprivate", "/")
for number, place in enumerate(places):
    bind(Path(place["path"]), spare / str(number))
for closed in dict.fromkeys(place["closed"] for place in places):
    mount("-t", "tmpfs", "-o", "mode=0755", "none", closed)
for number, place in enumerate(places):
    path, kept = Path(place["path"]), spare / str(number)
    path.mkdir(parents=True, exist_ok=True)  # not bound itself: it may be closed, too
    for part in kept.iterdir():
        bind(part, path / part.name)
os.chdir(sys.argv[3])  # anew: the folder may be another now
user = sys.argv[4]
os.execvp("setpriv", ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--", *sys.argv[5:]])
"""


def why_not() -> str | None:
    """Return why it is not possible here, if it is not."""
    if os.geteuid() != 0:
        return "the tests are run by an ordinary user already"
    missing = [name for name in ("unshare", "setpriv", "mount") if shutil.which(name) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


def as_ordinary_user(command: Sequence[str], *, user: int, spare: Path, cwd: Path) -> list[str]:
    """Return the command that runs another in a folder as another user; `spare` is an empty folder, for mounts."""
    needed = dict.fromkeys(Path(each).resolve() for each in (sys.base_prefix, sys.prefix, ROOT))
    closed = [{"path": str(path), "closed": str(at)} for path in needed if (at := _closed_at(path)) is not None]
    opening = [sys.executable, "-I", "-c", _OPENED, json.dumps(closed), str(spare), str(cwd), str(user)]
    return ["unshare", "--mount", *opening, *command]


def run_as_ordinary_user(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command as the user nobody, with a home and a folder for temporary files of that user's own."""
    with tempfile.TemporaryDirectory(prefix="tavern-ordinary-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        spare, home = Path(folder, "spare"), Path(folder, "home")
        spare.mkdir()
        home.mkdir()
        os.chown(home, NOBODY, NOBODY)
        environment = {**os.environ, "HOME": str(home), "TMPDIR": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
        argv = as_ordinary_user(command, user=NOBODY, spare=spare, cwd=ROOT)
        return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=600, check=False)


def _closed_at(path: Path) -> Path | None:
    """Return the outermost folder on the way to a path, or the path itself, that others may not enter."""
    way = [*reversed(path.parents), path]
    return next((each for each in way if each.is_dir() and not each.stat().st_mode & stat.S_IXOTH), None)
