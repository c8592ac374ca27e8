"""Says to systemd how the server stands: ready, stopping, alive (sd_notify(3)); without systemd it says nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket


def notify(state: str, seconds: float = 1.0) -> None:
    """Send a state such as `READY=1` where systemd waits for it, in so many seconds: it may have more to read."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        address = f"\0{address[1:]}" if address.startswith("@") else address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to, contextlib.suppress(OSError):
            to.settimeout(seconds)
            to.sendto(state.encode(), address)


async def stay_watched() -> None:
    """Say that the event loop is alive twice in the time after which systemd ends the server, until cancelled."""
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    if microseconds.isdigit() and os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid()):
        while True:
            notify("WATCHDOG=1", 0)  # the event loop never waits: what systemd has not read yet says the same
            await asyncio.sleep(int(microseconds) / 2e6)
