"""An HTTP server that answers with whatever bytes a test puts into it, for answers that no real server gives."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field


@dataclass
class WireServer:
    """Answers every connection with the same bytes, in the given pieces; a piece of None waits until the
    client has gone. `requests` are what clients sent; `asked` is set when one has asked, `closed` when one has gone."""

    pieces: list[bytes | None] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def body(self) -> dict[str, object]:
        """Return the JSON of the last request."""
        data: dict[str, object] = json.loads(self.requests[-1].partition(b"\r\n\r\n")[2])
        return data

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (
                    int(line.split(b":")[1])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length")
                ),
                0,
            )
            self.requests.append(head + await reader.readexactly(length))
            self.asked.set()
            for piece in self.pieces:
                if piece is None:
                    await reader.read()
                    self.closed.set()
                    return
                writer.write(piece)
                await writer.drain()
                for _ in range(2):  # the turns of the loop in which what was written reaches its reader
                    await asyncio.sleep(0)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.closed.set()
        finally:
            writer.close()
