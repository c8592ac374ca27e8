"""A plugin for tests: a service and a node that do what is not to be done twice, so that it can be counted."""

from __future__ import annotations

from tavern_host import PluginContext, hookimpl, service_info
from tavern_host.contracts.services import ServiceInfo

from .interfaces import MARKS, Marks, mark


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    return [service_info(MARKS, MarksInProject)]


class MarksInProject(Marks):
    """Makes marks in the project's file `marks`."""

    def __init__(self, context: PluginContext) -> None:
        self._root = context.project.root

    async def make(self, name: str, seconds: float) -> str:
        return await mark(self._root, name, seconds)
