"""A PostgreSQL server of the tests' own: an ordinary user's, in a temporary folder, reached over a socket there."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import pytest

FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=200")
"""Settings of a server that nobody keeps anything in."""


def programs() -> Path | None:
    """Return the folder with PostgreSQL's programs, or None where it is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    named = shutil.which("initdb")
    return found[-1].parent if found else Path(named).resolve().parent if named else None


@cache
def shared_server() -> str:
    """Return the address of a server that is there until the tests of this process end; skips where there is none."""
    if programs() is None:
        pytest.skip("PostgreSQL is not installed: apt install postgresql")
    server = ExitStack()
    atexit.register(server.close)
    return server.enter_context(postgres_server())


@contextmanager
def postgres_server(*, durable: bool = False) -> Iterator[str]:
    """Run a server; give the address of its database `postgres`. A `durable` one writes through to the disk."""
    bin = programs()
    assert bin is not None, "PostgreSQL is not installed: apt install postgresql"
    user = 65534 if os.geteuid() == 0 else None  # the server refuses to be root's
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    try:
        if user is not None:
            os.chown(folder, user, user)
        how = {"user": user, "group": user, "cwd": folder, "extra_groups": [] if user is not None else None}
        data = folder / "data"
        encoding = ["-E", "UTF8", "--locale=C.UTF-8"]
        made = [bin / "initdb", "-D", data, "-U", "tavern", "--auth=trust", "--no-sync", *encoding]
        subprocess.run(made, check=True, capture_output=True, **how)  # type: ignore[call-overload]
        options = [part for setting in (() if durable else FAST) for part in ("-c", setting)]
        started = [bin / "postgres", "-D", data, "-k", folder, "-c", "listen_addresses=", *options]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(started, stdout=log, stderr=log, **how)  # type: ignore[call-overload]
        try:
            url = f"postgresql://tavern@/postgres?host={folder}"
            ready = [bin / "pg_isready", "-h", folder, "-t", "1"]
            while subprocess.run(ready, check=False, capture_output=True).returncode != 0:
                assert server.poll() is None, (folder / "log").read_text()
            yield url
        finally:
            server.send_signal(signal.SIGINT)  # which does not wait for those who are connected
            server.wait(30)
    finally:
        shutil.rmtree(folder)
