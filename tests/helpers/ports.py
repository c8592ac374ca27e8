"""Finds ports for processes that have to be told one."""

from __future__ import annotations

import errno
import random
import socket


def free_port() -> int:
    """Return a port of 127.0.0.1 that nothing listens on, from below those that the system gives out: no process that
    runs beside the tests is given it before it is used."""
    while True:
        port = random.SystemRandom().randrange(12_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return port
