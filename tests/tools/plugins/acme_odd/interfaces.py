"""The interface of a service whose methods do what no method should."""

from __future__ import annotations

from pydantic import JsonValue

from tavern_host.contracts.services import ServiceInterface, ServiceKey, reads


class Desk(ServiceInterface, name="acme-odd.desk"):
    """Gives odd results."""

    @reads
    async def number(self, filler: str = "") -> JsonValue:
        """Return numbers of which one is none in JSON."""

    @reads
    async def bare(self) -> float:
        """Return a number that is none in JSON."""

    @reads
    async def bytes_of_no_text(self) -> bytes:
        """Return bytes that are no UTF-8."""

    @reads
    async def give_up(self) -> str:
        """Be cancelled though nobody cancels the call."""

    @reads
    async def linger(self) -> str:
        """Wait, and ignore being cancelled."""


DESK = ServiceKey(Desk)
