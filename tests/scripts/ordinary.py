"""Runs the tests of sandboxes once more as an ordinary user, where they are run by root: the interpreter may be in a
folder that is root's alone, so it is put where that user finds it, in a mount namespace of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

NOBODY = 65534

_AS_NOBODY = """
set -e
mount --make-rprivate /
if [ -n "$CLOSED" ]; then
    mount --bind "$BASE" "$SPARE"
    mount -t tmpfs -o mode=0755 none "$CLOSED"
    mkdir -p "$BASE"
    mount --bind "$SPARE" "$BASE"
fi
exec setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"
"""


def why_not() -> str | None:
    """Return why it is not possible here, if it is not."""
    if os.geteuid() != 0:
        return "the tests are run by an ordinary user already"
    missing = [name for name in ("unshare", "setpriv", "mount") if shutil.which(name) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


def run_as_ordinary_user(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command as the user nobody, with a home and a folder for temporary files of that user's own."""
    base = Path(sys.base_prefix).resolve()
    closed = next((str(each) for each in reversed(base.parents) if not each.stat().st_mode & 0o001), "")
    with tempfile.TemporaryDirectory(prefix="tavern-ordinary-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        spare, home = Path(folder, "spare"), Path(folder, "home")
        spare.mkdir()
        home.mkdir()
        os.chown(home, NOBODY, NOBODY)
        environment = {
            **os.environ,
            "CLOSED": closed,
            "BASE": str(base),
            "SPARE": str(spare),
            "HOME": str(home),
            "TMPDIR": str(home),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        return subprocess.run(
            ["unshare", "--mount", "sh", "-c", _AS_NOBODY, "sh", *command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
