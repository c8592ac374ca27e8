"""What a broken plugin is in these tests: how it is written, what the host must say of it, how it is provoked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from base_project import HEAD, HERE, BaseProject

from tavern_host import Host
from tavern_host.contracts.plugins import PluginInfo, PluginState

INVALID, INCOMPATIBLE, NEEDS_REVIEW = PluginState.INVALID, PluginState.INCOMPATIBLE, PluginState.NEEDS_REVIEW
FAILED, STARTED = PluginState.FAILED, PluginState.STARTED
Moment = Literal["link", "load", "use", "stop"]
"""When the host can know: from the files alone, when it loads and starts, when it is used, when it stops."""
LATE = " did not end within"
"""How the reason ends where something hangs: before it stands what the host calls it."""
Use = Callable[[Host], Awaitable[None]]


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

    def of(self, plugins: Iterable[PluginInfo]) -> PluginInfo | None:
        """Return which of a host's plugins is meant, or None where there are none or several."""
        found = [p for p in plugins if p.name == self.plugin and self.source in p.source]
        return found[0] if len(found) == 1 else None


@dataclass(frozen=True)
class Broken:
    """One row of the corpus.

    `write` puts the plugins into an inn, `tamper` changes them after the operator reviewed what there was.
    `use` provokes what only shows in use, and fails where others than the plugin pay for it. `threads` and
    `tasks` begin the names of what the plugin leaves hanging for good. `real` needs a thread's own time, which no test
    can hold.
    """

    name: str
    write: Callable[[BaseProject], object]
    says: tuple[Says, ...]
    use: Use | None = None
    tamper: Callable[[BaseProject], object] | None = None
    unreviewed: bool = False
    real: bool = False
    threads: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()

    @property
    def running(self) -> tuple[str, ...]:
        """The names of its plugins that run, broken as they are."""
        return tuple(dict.fromkeys(s.plugin for s in self.says if s.state is STARTED))


class Corpus:
    """Rows, in the order in which they were written down."""

    def __init__(self) -> None:
        self.rows: list[Broken] = []

    def add(self, name: str, write: Callable[[BaseProject], object], *says: Says, **options: Any) -> None:
        """Write down a row; `options` are further fields of it."""
        self.rows.append(Broken(name, write, says, **options))

    def code(
        self,
        name: str,
        code: str,
        state: PluginState,
        reason: str = "",
        mend: str = "",
        *,
        file: str = "",
        at: Moment = "load",
        use: Use | None = None,
        tasks: tuple[str, ...] = (),
        real: bool = False,
        **plugin: Any,
    ) -> None:
        """Write down a plugin with this code; `plugin` is what else `BaseProject.code` takes.

        Where not told otherwise, the mend is to do without it, and the file is its module if that has the mark. A
        thread on which it hangs is called as the reason says.
        """
        file = file or ("__init__.py" if HERE in code else "")
        mend = mend or (f"tavern plugins disable {name}" if reason else "")
        threads = (reason.removesuffix(LATE),) if "sys.hang" in code and reason.endswith(LATE) else ()
        says = Says(name, state, reason, mend, file or None, at=at)
        options = {"use": use, "real": real, "threads": threads, "tasks": tasks}
        self.add(name, lambda inn: inn.code(name, HEAD + code, **plugin), says, **options)
