"""Where packages come from on a machine that says nothing of it: asked of pip and npm, which know."""

from __future__ import annotations

import functools
import shutil
import subprocess
from urllib.parse import urlsplit

_NOWHERE = "/nonexistent"
_SECONDS = 30.0


@functools.cache
def python_index() -> tuple[str | None, str | None]:
    """Return the index that pip uses unless configured otherwise, and the host of its files; None twice without pip."""
    try:
        from pip._internal.models.index import PyPI
    except ImportError:
        return None, None
    return PyPI.simple_url, PyPI.file_storage_domain


def file_host(index_host: str) -> str | None:
    """Return the host at which an index has its files, where that is another one and known."""
    index, files = python_index()
    return files if index is not None and urlsplit(index).hostname == index_host else None


@functools.cache
def node_registry() -> str | None:
    """Return the registry that npm uses unless configured otherwise; None without npm. Blocking."""
    npm = shutil.which("npm")
    if npm is None:
        return None
    files = [f"--userconfig={_NOWHERE}/user", f"--globalconfig={_NOWHERE}/global"]
    environment = {"PATH": f"{npm.rpartition('/')[0]}:/usr/local/bin:/usr/bin:/bin", "HOME": _NOWHERE}
    try:
        asked = subprocess.run(
            [npm, "config", "get", "registry", *files],
            capture_output=True,
            text=True,
            cwd="/",
            env=environment,
            timeout=_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    address = asked.stdout.strip()
    return address if urlsplit(address).hostname else None
