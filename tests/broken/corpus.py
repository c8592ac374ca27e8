"""The corpus of broken plugins, and whether a host says of each what it must: state, reason, mend, file and line."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Iterable

import broken_hooks
import broken_imports
import broken_lives
import broken_manifests
import broken_places
import broken_services
from base_project import HERE, BaseProject, everything_else_works
from broken_plugins import Broken, Moment, Says

from tavern_host import Host
from tavern_host.contracts.plugins import PluginInfo, PluginState, Problem

CHAPTERS = (broken_manifests, broken_places, broken_imports, broken_hooks, broken_services, broken_lives)
EVERY: tuple[Broken, ...] = tuple(row for chapter in CHAPTERS for row in chapter.CORPUS.rows)
CORPUS = tuple(row for row in EVERY if not row.real)


async def prepare(inn: BaseProject, rows: Iterable[Broken]) -> Host:
    """Write broken plugins, let the operator review them, and change those that are changed after that; return a
    host that is not started yet."""
    rows = list(rows)
    for row in rows:
        row.write(inn)
    importlib.invalidate_caches()
    host = await inn.reviewed(but={says.plugin for row in rows if row.unreviewed for says in row.says})
    changes = [row.tamper for row in rows if row.tamper is not None]
    if not changes:
        return host
    await host.stop()
    for change in changes:
        change(inn)
    return inn.host()


def names(rows: Iterable[Broken]) -> set[str]:
    """Return the names of all plugins of these rows."""
    return {says.plugin for row in rows for says in row.says}


async def fails_alone(inn: BaseProject, row: Broken) -> None:
    """Fail where a host does not say of the plugins of a row what it must, or all else does not work beside them."""
    host = await prepare(inn, [row])
    async with asyncio.timeout(100):
        async with host:
            says_all(inn, host, [row], "link", "load")
            await everything_else_works(host, names([row]))
            if row.use is not None:
                await row.use(host)
                says_all(inn, host, [row], "use")
                await everything_else_works(host, names([row]))
    says_all(inn, host, [row], "stop", stopped=True)


def says_all(inn: BaseProject, host: Host, rows: Iterable[Broken], *moments: Moment, stopped: bool = False) -> None:
    """Fail with everything that a host should say at these moments and does not."""
    wanted = [says for row in rows for says in row.says if says.at in moments]
    plugins = host.plugins()
    unsaid = [line for says in wanted for line in _unsaid(inn, says, says.of(plugins), stopped)]
    assert not unsaid, "\n".join(unsaid)


def _unsaid(inn: BaseProject, says: Says, plugin: PluginInfo | None, stopped: bool) -> list[str]:
    if plugin is None:
        return [f"{says.plugin} is not listed, or not once"]
    state = PluginState.STOPPED if stopped and says.state is PluginState.STARTED else says.state
    told = "; ".join(str(problem)[:400] for problem in plugin.problems) or "nothing"
    found = []
    if plugin.state is not state:
        found.append(f"{says.plugin} is {plugin.state}, expected {state}; it is told: {told}")
    if not says.reason:
        return [*found, f"{says.plugin} has nothing to be told, it is told: {told}"] if plugin.problems else found
    problem = next((p for p in plugin.problems if says.reason in p.message), None)
    if problem is None:
        return [*found, f"{says.plugin}: {says.reason!r} is not said, it is told: {told}"]
    if not says.mend or says.mend not in str(problem):
        found.append(f"{says.plugin}: the mend {says.mend!r} is not said in: {str(problem)[:400]}")
    return found + _misplaced(inn, says, problem)


def _misplaced(inn: BaseProject, says: Says, problem: Problem) -> list[str]:
    """Return where a problem is said to be, if that is not where it is."""
    found = []
    if says.file is not None:
        if not (problem.file or "").endswith(says.file):
            found.append(f"{says.plugin}: {problem.file} is named, expected …{says.file}")
        line = _marked_line(inn, says)
        if line is not None and problem.line != line:
            found.append(f"{says.plugin}: line {problem.line} is named, expected {line}")
    if "\n" in problem.message or len(problem.message) > 2000:
        found.append(f"{says.plugin}: its problem is not one line that a person reads")
    return found


def _marked_line(inn: BaseProject, says: Says) -> int | None:
    assert says.file is not None
    file = inn.roots[says.plugin] / says.file
    text = file.read_text(errors="replace") if file.is_file() else ""
    return next((number for number, line in enumerate(text.splitlines(), 1) if HERE in line), None)
