"""The bases that plugins bring, below those of the project: one that is written becomes the project's own."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path

from tavern_host.context import PluginContext
from tavern_host.contracts.errors import Conflict
from tavern_host.contracts.plugins import PLUGINS
from tavern_knowledge.files import BaseFolder


class LayeredFolder(BaseFolder):
    """The base files of a project, and below them those of the loaded plugins, which nobody writes."""

    def __init__(self, own: BaseFolder, context: PluginContext) -> None:
        self._own = own
        self._context = context
        self._revision = -1
        self._brought: dict[str, BaseFolder] = {}
        self._of: dict[str, str] = {}
        """The plugin of each base that one brings, as it was when somebody asked."""
        self.is_shared = own.is_shared

    async def look(self) -> None:
        """Look again which plugins bring bases, if plugins have changed."""
        hooks, services = self._context.hooks, self._context.services
        if self._revision == hooks.revision or not services.has(PLUGINS):
            return
        revision, assets = hooks.revision, await services.get(PLUGINS).assets("knowledge")
        self._revision, self._brought = revision, {one.plugin: BaseFolder(Path(one.path)) for one in assets}
        owners: dict[str, str] = {}
        for plugin, folder in self._brought.items():
            for base in folder.stamps():
                hooks.claim(owners, "knowledge base", base, plugin)

    def plugin_of(self, base: str) -> str | None:
        """Return the plugin that brings a base which the project has not, or None."""
        if base in self._own.stamps():
            return None
        return next((plugin for plugin, folder in self._brought.items() if base in folder.stamps()), None)

    def place(self, base: str) -> str | None:
        """Return the file of a base as people see it, or None where it lies in a database. `look` comes before."""
        if (plugin := self._of.get(base)) is not None:
            return f"plugin:{plugin}/{base}.json"
        return None if self.is_shared else f"knowledge/{base}.json"

    def exclusive(self) -> AbstractContextManager[None]:
        """Keep others from writing the project's files within the block."""
        return self._own.exclusive()

    def stamps(self) -> dict[str, str]:
        """Return how each base's file is now, by id; of two with one id the project's, else the earlier plugin's."""
        found, owners = self._own.stamps(), dict[str, str]()
        for plugin, folder in self._brought.items():
            for base, stamp in folder.stamps().items():
                if base not in found:
                    found[base], owners[base] = f"{plugin} {stamp}", plugin
        self._of = owners
        return dict(sorted(found.items()))

    def read(self, base: str) -> tuple[bytes, str]:
        """Return a file's content and its stamp."""
        plugin = self.plugin_of(base)
        if plugin is None:
            return self._own.read(base)
        data, stamp = self._brought[plugin].read(base)
        return data, f"{plugin} {stamp}"

    def write(self, base: str, header: str, bodies: Iterable[str]) -> tuple[str, str]:
        """Write the project's file of a base."""
        return self._own.write(base, header, bodies)

    def remove(self, base: str) -> None:
        """Remove the project's file of a base. Raises `Conflict` for one that a plugin brings."""
        if (plugin := self.plugin_of(base)) is not None:
            hint = f"`tavern plugins disable {plugin}` takes the plugin's away"
            raise Conflict(f"the base {base!r} comes with the plugin {plugin} and cannot be deleted ({hint})")
        self._own.remove(base)

    def picture(self, base: str) -> bytes | None:
        """Return the picture beside a base, or None."""
        plugin = self.plugin_of(base)
        return (self._own if plugin is None else self._brought[plugin]).picture(base)

    def write_picture(self, base: str, picture: bytes) -> None:
        """Replace the picture beside the project's file of a base."""
        self._own.write_picture(base, picture)
