"""A plugin for tests: a service whose methods do what no method should."""

from __future__ import annotations

import asyncio

from pydantic import JsonValue

from tavern_host import PluginContext, hookimpl, service_info
from tavern_host.contracts.services import ServiceInfo

from .interfaces import DESK, Desk


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    return [service_info(DESK, OddDesk)]


class OddDesk(Desk):
    """Gives odd results."""

    def __init__(self, context: PluginContext) -> None:
        pass

    async def number(self, filler: str = "") -> JsonValue:
        return {"filler": filler, "counts": [1, 2.5, {"share": float("nan")}]}

    async def bare(self) -> float:
        return float("inf")

    async def bytes_of_no_text(self) -> bytes:
        return b"\xff"

    async def give_up(self) -> str:
        lost = asyncio.ensure_future(asyncio.sleep(60))
        lost.cancel()
        await lost
        return "never"

    async def linger(self) -> str:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                continue
