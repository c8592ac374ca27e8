"""What the plugin publishes."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tavern_host.contracts.services import ServiceInterface, ServiceKey, reads


class Marks(ServiceInterface, name="acme-marks.marks"):
    """Does something that is not to be done twice."""

    @reads  # so that it needs no permission
    async def make(self, name: str, seconds: float) -> str:
        """Make a mark."""


MARKS = ServiceKey(Marks)


async def mark(root: Path, name: str, seconds: float) -> str:
    """Write a line that survives the end of the process, and take a while: below 0, until there is the file `go`."""
    file = os.open(root / "marks", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, f"{name}\n".encode())
    os.close(file)
    while seconds < 0 and not (root / "scripts" / "go").exists():
        await asyncio.sleep(0.01)
    await asyncio.sleep(seconds)
    return name
