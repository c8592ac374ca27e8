"""An incremental parser of server-sent events (WHATWG HTML §9.2.6): bytes in, events out, cut anywhere.

Does no input or output and never raises on bad text; how much may arrive is the caller's limit.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass


@dataclass(frozen=True)
class SseEvent:
    """One event: its type (`message` where none was given) and its data lines, joined by line feeds."""

    type: str
    data: str


class SseParser:
    """Parses one stream. Lines may end in LF, CR or CRLF, and be split anywhere, even within a character."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
        self._line: list[str] = []
        self._after_cr = False
        self._type = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[SseEvent]:
        """Take more bytes; return the events that are complete by now."""
        return self._parse(self._decoder.decode(data))

    def finish(self) -> list[SseEvent]:
        """Say that the stream has ended; return a last event that no empty line followed, if any.

        The standard would drop it; servers that forget the last line feed are common.
        """
        return self._parse(self._decoder.decode(b"", final=True) + "\n\n")

    def _parse(self, text: str) -> list[SseEvent]:
        if self._after_cr and text:
            text = text.removeprefix("\n")
            self._after_cr = False
        if text.endswith("\r"):
            self._after_cr = True
        events: list[SseEvent] = []
        first, *rest = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._line.append(first)
        for part in rest:
            event, self._line = self._take("".join(self._line)), [part]
            if event is not None:
                events.append(event)
        return events

    def _take(self, line: str) -> SseEvent | None:
        if not line:
            kind, data = self._type or "message", self._data
            self._type, self._data = "", []
            return SseEvent(kind, "\n".join(data)) if data else None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._type = value
        return None
