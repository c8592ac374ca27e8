"""Which server serves a project: one at a time, since two would decide over the same runs and tasks."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from tavern_host.contracts.errors import Conflict
from tavern_host.storage.files import write_atomic
from tavern_host.storage.process_locks import ProcessLocks

_FOLDER, _NAME = "served", "server"


@contextlib.contextmanager
def held(state: Path, address: str) -> Iterator[None]:
    """Be the server of the project with this folder of the operator's within the block; `address` is told to others.

    Raises `Conflict` that says which process has it.
    """
    locks, file = ProcessLocks(state / _FOLDER), state / _FOLDER / "server.json"
    try:
        locks.hold(_NAME)
    except Conflict:
        raise Conflict(f"the project is served already{_by(file)}; use that server, or stop it first") from None
    try:
        write_atomic(file, json.dumps({"process": os.getpid(), "address": address}).encode(), mode=0o600)
        yield
    finally:
        file.unlink(missing_ok=True)
        locks.close()


def _by(file: Path) -> str:
    try:
        found = json.loads(file.read_bytes())
        return f" by process {found['process']} at {found['address']}"
    except (OSError, ValueError, TypeError, KeyError):  # it has just begun, or ended
        return ""
