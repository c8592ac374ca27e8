"""What a broken plugin is in these tests: how it is written, what the host must say of it, how it is provoked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

from inn import Inn

from tavern_host import Host
from tavern_host.contracts.plugins import PluginInfo, PluginState

Moment = Literal["link", "load", "use", "stop"]
"""When the host can know: from the files alone, when it loads and starts, when it is used, when it stops."""


@dataclass(frozen=True)
class Says:
    """What the host must say of one plugin.

    `reason` and `mend` are parts of the text of one problem; without a `reason` there is nothing to say, and
    no problem may be told. `file` is the file of the plugin that is named; its line is the one that holds
    `HERE`, where one does. `source` is a part of the plugin's source, for namesakes.
    """

    plugin: str
    state: PluginState
    reason: str = ""
    mend: str = ""
    file: str | None = None
    source: str = ""
    at: Moment = "load"

    def of(self, host: Host) -> PluginInfo | None:
        """Return the plugin that is meant, or None where there are none or several."""
        found = [p for p in host.plugins() if p.name == self.plugin and self.source in p.source]
        return found[0] if len(found) == 1 else None


@dataclass(frozen=True)
class Broken:
    """One row of the corpus.

    `write` puts the plugins into an inn, `tamper` changes them after the operator reviewed what there was.
    `use` provokes what only shows in use, and fails where others than the plugin pay for it. `threads` and
    `tasks` begin the names of what the plugin leaves hanging for good.
    """

    name: str
    write: Callable[[Inn], object]
    says: tuple[Says, ...]
    use: Callable[[Host], Awaitable[None]] | None = None
    tamper: Callable[[Inn], object] | None = None
    unreviewed: bool = False
    threads: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()

    @property
    def running(self) -> tuple[str, ...]:
        """The names of its plugins that run, broken as they are."""
        return tuple(dict.fromkeys(s.plugin for s in self.says if s.state is PluginState.STARTED))


@dataclass
class Corpus:
    """Rows, in the order in which they were written down."""

    rows: list[Broken] = field(default_factory=list)

    def add(
        self,
        name: str,
        write: Callable[[Inn], object],
        *says: Says,
        use: Callable[[Host], Awaitable[None]] | None = None,
        tamper: Callable[[Inn], object] | None = None,
        unreviewed: bool = False,
        threads: tuple[str, ...] = (),
        tasks: tuple[str, ...] = (),
    ) -> None:
        """Write down a row."""
        self.rows.append(Broken(name, write, says, use, tamper, unreviewed, threads, tasks))
