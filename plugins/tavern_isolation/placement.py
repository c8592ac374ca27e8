"""Places plugins in processes of their own; those of the host stay in its process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tavern_host.context import PluginContext, Project
from tavern_host.contracts.plugins import PluginProcess
from tavern_host.runtime.boundary import Boundary
from tavern_host.runtime.in_process import InProcessRuntime
from tavern_host.runtime.source import PluginSource
from tavern_isolation import status
from tavern_isolation.known import Catalogue
from tavern_isolation.runtime import IsolatedRuntime
from tavern_isolation.sandboxing import Sandboxing


class Isolated(Boundary):
    """The boundary of tests whose third-party plugins run in processes of their own, without a sandbox."""

    def __init__(self, catalogue: Catalogue) -> None:
        super().__init__(catalogue)
        self._known = catalogue

    def runtime(self, source: PluginSource, context: PluginContext) -> InProcessRuntime:
        """What reaches a plugin's code, there or here."""
        if source.is_lazy:  # one of the host's own
            return InProcessRuntime(source, context)
        return IsolatedRuntime(source, context, self._known)


def running_process(project: Project, plugin: str) -> PluginProcess | None:
    """The process that a plugin has in a host of this project that runs, or the last one that it had. Blocking."""
    return status.read(project, plugin)


def isolated(
    source: PluginSource, context: PluginContext, catalogue: Catalogue, setting: Callable[[str], Any]
) -> InProcessRuntime:
    """What reaches the code of a plugin that is placed in a process of its own; `setting` says what the operator says
    for the full key of a setting."""
    if source.placement == "process-without-sandbox":
        context.log.warning("it runs in a process of its own WITHOUT A SANDBOX: it may do what the host's user may")
        return IsolatedRuntime(source, context, catalogue)
    return IsolatedRuntime(source, context, catalogue, Sandboxing(source, context, setting))
