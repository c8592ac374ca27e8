"""Which hosts run for a project, and what became of the operator's decisions in them, for the commands beside them.

Each keeps a file in the operator's state folder while it runs: what it has carried out, and its plugins since.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

from pydantic import ValidationError

from tavern_host import clock
from tavern_host.contracts.plugins import FileVersions, RunningHost
from tavern_host.storage.files import make_folder, write_atomic
from tavern_host.storage.process_locks import ProcessLocks

ANSWER_SECONDS = 60.0
"""How long a command waits for what running hosts make of a decision; a load has deadlines of its own."""
_POLL_SECONDS = 0.05


class RunningHosts:
    """The running hosts of one project, in a folder of the operator's. Blocking, but for `wait_for_hosts`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def registered(self) -> Iterator[Callable[[RunningHost], None]]:
        """Let a host be among them while the block runs; give what replaces its file."""
        make_folder(self._folder)
        name, locks = f"{os.getpid()}-{secrets.token_hex(4)}", ProcessLocks(self._folder)
        file = self._folder / f"{name}.json"

        def write(answer: RunningHost) -> None:
            write_atomic(file, answer.model_dump_json(by_alias=True).encode(), mode=0o600)

        locks.hold(name)
        try:
            write(RunningHost(process=os.getpid()))
            yield write
        finally:
            file.unlink(missing_ok=True)
            locks.close()

    def all(self) -> list[RunningHost]:
        """Return the hosts that run; the files of those that were killed are removed."""
        locks, found = ProcessLocks(self._folder), []
        for file in sorted(self._folder.glob("*.json")):
            if locks.is_gone(file.stem):
                file.unlink(missing_ok=True)
                continue
            with contextlib.suppress(OSError, ValidationError):  # it has just ended, or is of another version
                found.append(RunningHost.model_validate_json(file.read_bytes()))
        return found

    async def wait_for_hosts(self, stamps: Callable[[], FileVersions]) -> list[RunningHost]:
        """Return the hosts that run, once each has carried out what the files say now, or could not.

        One that does not answer within `ANSWER_SECONDS` says so as its problem.
        """
        deadline = clock.monotonic() + ANSWER_SECONDS
        while True:
            found, now = self.all(), stamps()
            late = [host for host in found if host.stamps != now and host.problem is None]
            if not late:
                return found
            if clock.monotonic() > deadline:
                problem = f"it has not answered within {ANSWER_SECONDS:g} s"
                return [h.model_copy(update={"problem": problem}) if h in late else h for h in found]
            await asyncio.sleep(_POLL_SECONDS)
