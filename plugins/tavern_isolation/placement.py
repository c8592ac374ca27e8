"""Places plugins in processes of their own; those of the host stay in its process."""

from __future__ import annotations

from tavern_host.context import PluginContext
from tavern_host.runtime.boundary import Boundary
from tavern_host.runtime.in_process import InProcessRuntime
from tavern_host.runtime.source import PluginSource
from tavern_isolation.known import Catalogue
from tavern_isolation.runtime import IsolatedRuntime


class Isolated(Boundary):
    """The boundary of a host whose third-party plugins run in processes of their own."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def runtime(self, source: PluginSource, context: PluginContext) -> InProcessRuntime:
        """Return what reaches a plugin's code, there or here."""
        if source.is_lazy:  # one of the host's own
            return InProcessRuntime(source, context)
        return IsolatedRuntime(source, context, self._catalogue)
