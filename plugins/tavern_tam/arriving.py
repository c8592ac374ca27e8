"""A block whose text is still arriving: kept unread, for it is read most quickly when all of it is there."""

from __future__ import annotations

from tavern_tam.lexing import LONGEST, block_marker


class ArrivingBlock:
    """What came behind the request `marker` of a block: `parts`, in which there is no other block marker so far."""

    __slots__ = ("marker", "parts")

    def __init__(self, marker: str, text: str) -> None:
        self.marker = marker
        self.parts = [text]

    @property
    def text(self) -> str:
        """All that came behind the marker."""
        return "".join(self.parts)

    def completes(self, part: str) -> bool:
        """Return whether there is another block marker now that `part`, which holds `>`, is the last of the parts."""
        if not ("|" in part or part.lstrip().startswith(">")):
            return False  # a marker ends with a bar, blanks and >
        return block_marker(self._end(len(part) + LONGEST), 0) is not None

    def _end(self, length: int) -> str:
        near: list[str] = []
        for part in reversed(self.parts):
            if length <= 0:
                break
            near.append(part[-length:])
            length -= len(part)
        return "".join(reversed(near))
