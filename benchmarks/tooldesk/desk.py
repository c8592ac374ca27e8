"""The service that is called."""

from __future__ import annotations

from tavern_host import ServiceInterface, reads


class Desk(ServiceInterface, name="tool-desk.desk"):
    """Answers."""

    @reads
    async def answer(self, text: str, count: int, loud: bool, share: float) -> str:
        """Return the text."""


class Answers(Desk):
    """Gives back what it is given."""

    async def answer(self, text: str, count: int, loud: bool, share: float) -> str:
        """Return the text."""
        return text
