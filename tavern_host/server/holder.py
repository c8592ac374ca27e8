"""Which server serves a project: one at a time, since two would decide over the same runs and tasks."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tavern_host.context import Project
from tavern_host.contracts.errors import Conflict
from tavern_host.projects import Folders
from tavern_host.server.operator_token import OperatorToken
from tavern_host.storage.files import write_atomic
from tavern_host.storage.process_locks import ProcessLocks

_FOLDER, _NAME, _FILE = "served", "server", "server.json"


class Server(NamedTuple):
    """The server of a project: its process, its address, and the operator's token for it. As it is written down, it has
    no token but that of `TAVERN_TOKEN`: the operator's may be another one at any time."""

    process: int
    address: str
    token: str


def server_of(folders: Folders, project: Project) -> Server | None:
    """Return the server of a project; None where nobody serves it. Raises `Misconfigured` where its token cannot be
    used."""
    found = _written(folders.project_state(project))
    return found and found._replace(token=OperatorToken(folders.state, found.token)())


def _written(state: Path) -> Server | None:
    if ProcessLocks(state / _FOLDER).is_gone(_NAME):
        return None
    try:
        return Server(**json.loads((state / _FOLDER / _FILE).read_bytes()))
    except (OSError, ValueError, TypeError):  # it has just begun, or ended
        return None


@contextlib.contextmanager
def held(state: Path, server: Server) -> Iterator[None]:
    """Be the server of the project with this folder of the operator's within the block.

    Raises `Conflict` that says which process has it.
    """
    locks, file = ProcessLocks(state / _FOLDER), state / _FOLDER / _FILE
    try:
        locks.hold(_NAME)
    except Conflict:
        other = _written(state)
        by = f" by process {other.process} at {other.address}" if other is not None else ""
        raise Conflict(f"the project is served already{by}; use that server, or stop it first") from None
    try:
        write_atomic(file, json.dumps(server._asdict()).encode(), mode=0o600)
        yield
    finally:
        file.unlink(missing_ok=True)
        locks.close()
