"""Ends the sandboxes of a host that was killed while it made one. Bubblewrap follows its parent only once it is set up;
a shell that is there while programs run sees to the time before, by the name that all makers of this host have."""

from __future__ import annotations

import os
import secrets

from tavern_scripts.sandbox.processes import Process
from tavern_scripts.sandbox.spawn import spawn

_SHELL = "/bin/sh"
_SCRIPT = """
read -r name || exit
read -r word && exit
rounds=3
while [ "$rounds" -gt 0 ]; do
    rounds=$((rounds - 1))
    for file in /proc/[0-9]*/cmdline; do
        line=
        read -r line < "$file"
        case "$line" in
        "$name"*)
            pid=${file#/proc/}
            kill -9 "${pid%/cmdline}" && rounds=3
            ;;
        esac
    done
    sleep 0.05
done
"""
_ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


class Guard:
    """The shell that watches over one host: it lives as long as it has a holder."""

    def __init__(self) -> None:
        self.name = f"tavern-sandbox-{secrets.token_hex(8)}"
        """What makers are called, in place of their path."""
        self._holders = 0
        self._shell: Process | None = None
        self._life = -1

    def hold(self) -> None:
        """Have it watch. Raises `OSError` where it cannot be started."""
        if self._holders == 0:
            self._start()
        self._holders += 1

    def let_go(self) -> Process | None:
        """Release it; the last holder ends it; returns the shell then, which ends in a moment."""
        self._holders -= 1
        if self._holders or self._shell is None:
            return None
        shell, self._shell = self._shell, None
        try:
            os.write(self._life, b"done\n")
        except BrokenPipeError:
            pass  # it has ended already
        finally:
            os.close(self._life)
        return shell

    def _start(self) -> None:
        reading, writing = os.pipe()
        nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(writing, f"{self.name}\n".encode())
            pid = spawn([_SHELL, "-c", _SCRIPT], _ENVIRONMENT, {0: reading, 1: nothing, 2: nothing})
            self._shell = Process(pid, child=True)
            self._life, writing = writing, -1
        finally:
            for number in (reading, nothing, *([writing] if writing >= 0 else [])):
                os.close(number)
