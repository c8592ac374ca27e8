"""What the host knows of one plugin, what one load of it consists of, and its failures as problems."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tavern_host import clock
from tavern_host.context import PluginContext
from tavern_host.contracts.commands import CommandInfo
from tavern_host.contracts.errors import PluginEnded, TavernError, describe, one_line
from tavern_host.contracts.http import MessageInfo, RouteInfo
from tavern_host.contracts.manifest import Manifest
from tavern_host.contracts.plugins import PermissionInfo, Placement, PluginState, Problem
from tavern_host.contracts.services import ServiceInfo
from tavern_host.contracts.ui import FrontendFiles, UiDeclaration
from tavern_host.hooks.catalogue import Published
from tavern_host.hooks.dispatch import Implementation
from tavern_host.runtime.in_flight import InFlight
from tavern_host.runtime.in_process import InProcessRuntime
from tavern_host.runtime.ledger import Ledger
from tavern_host.services.calls import Provider
from tavern_host.services.registry import Views
from tavern_host.settings.store import PluginSettings
from tavern_host.storage.yaml_file import NOWHERE, Places

MOST_PROBLEMS = 20
"""How many problems of a plugin are kept, the newest."""

_log = logging.getLogger("tavern.plugins")


@dataclass
class Record:
    """What the host knows of one plugin. `module` is None for a folder plugin, which is imported by path; `path` is the
    folder of its own that one was installed in with what it depends on.

    `places` is where everything stands in its manifest; `rest` is the readable part of one that has mistakes.
    `faults` are what is wrong with its files so that it cannot be loaded, `notes` what costs it no more than a
    part; `read_at` is when they were read (seconds since 1970), `fingerprint` what they were then. `since` is when
    it came: when it was first granted, else when its manifest was put there, 0 for what is handed over. `reviewed`
    is the hash of each file of a folder plugin by its path, `code_hash` that of all of them where there is code. Of
    an `undecided` one nobody has decided that its code be imported: it was installed with another, or for the host
    alone.
    """

    name: str
    source: str
    root: Path | None = None
    module: str | None = None
    path: Path | None = None
    first_party: bool = False
    pending_restart: bool = False
    is_dev: bool = False
    undecided: bool = False
    read_at: float = field(default_factory=clock.file_seconds)
    fingerprint: int = 0
    since: float = 0.0
    reviewed: Mapping[str, bytes] | None = None
    code_hash: str | None = None
    manifest: Manifest | None = None
    rest: Manifest | None = None
    places: Places = NOWHERE
    state: PluginState = PluginState.DISCOVERED
    faults: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    permissions: list[PermissionInfo] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)
    placement: Placement = "in-process"

    def refuse(self, state: PluginState, *problems: Problem) -> None:
        """Record that the plugin is not to be used, and why."""
        self.state = state
        self.problems.extend(problems)

    def add_problem(self, problem: Problem) -> bool:
        """Keep a problem unless it is there already; return whether it is new."""
        if problem in self.problems:
            return False
        self.problems = [*self.problems[1 - MOST_PROBLEMS :], problem]
        return True

    @property
    def required(self) -> Mapping[str, str]:
        """The plugins that it requires, each with the range of versions."""
        return self.manifest.requires.plugins if self.manifest is not None else {}

    @property
    def why_not_reloadable(self) -> str | None:
        """Why its code cannot be reloaded while the process runs, or None."""
        if self.first_party:
            return "is first-party"
        if self.source.startswith("embedded:"):
            return "was handed over by the program that the host is part of"
        return None


@dataclass
class Declarations:
    """What a plugin publishes, and what its declaration hooks returned."""

    published: Published = field(default_factory=Published)
    services: list[ServiceInfo] = field(default_factory=list)
    overrides: list[ServiceInfo] = field(default_factory=list)
    routes: list[RouteInfo | MessageInfo] = field(default_factory=list)
    commands: list[CommandInfo] = field(default_factory=list)
    ui: list[UiDeclaration] = field(default_factory=list)


@dataclass(eq=False)
class LoadedPlugin:
    """One load of a plugin: its record, its code, what it was given and what it owns.

    While a plugin is reloaded there are two of them, of which the older one finishes its work in flight. `providers`
    are what it put on the stacks of services; `is_provided` tells whether it has done so, overrides apart.
    """

    record: Record
    manifest: Manifest
    runtime: InProcessRuntime
    context: PluginContext
    in_flight: InFlight
    ledger: Ledger
    views: Views
    settings: PluginSettings
    granted: frozenset[str]
    implementations: list[Implementation] = field(default_factory=list)
    declarations: Declarations = field(default_factory=Declarations)
    providers: list[Provider] = field(default_factory=list)
    is_provided: bool = False
    started: bool = False
    frontend: FrontendFiles | None = None


def problem_of(error: BaseException, where: str, root: Path | None, plugin: str) -> Problem:
    """Return an exception as a problem that names the plugin's own file and line where its code was left, else where
    the hook is that failed, or none."""
    causes = [one for one in (error, error.__cause__) if one is not None]
    places = [place for one in causes for place in _places_in(one)] + [getattr(error, "at", ("", None))]
    own = [place for place in places if root is not None and Path(place[0] or "").is_relative_to(root)]
    file, line = own[0] if own else (None, None)
    mend = "mend it there" if own else "mend it"
    hint = f"{mend}, or keep it out with `tavern plugins disable {plugin}`"
    written = (one for one in causes if isinstance(one, SyntaxError))
    at = next((one for one in written if (one.filename, one.lineno) == (file, line)), None)
    said = error.message if isinstance(error, TavernError) else describe(error)
    if at is error and at.text is not None:  # its place is no part of what it says, but the line is
        said = f"{type(at).__name__}: {at.msg}, in `{at.text.strip()}`"
    message, column = one_line(f"{where}: {said}"), at.offset if at is not None else None
    return Problem(message=message, hint=hint, file=file, line=line, column=column or None)


def _places_in(error: BaseException) -> list[tuple[str, int | None]]:
    """Return the files and lines that an exception passed, the innermost first; a syntax error begins with its own."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    written = [(error.filename, error.lineno)] if isinstance(error, SyntaxError) and error.filename is not None else []
    return [*written, *reversed(frames)]


def log_failure(plugin: str, where: str, error: BaseException) -> None:
    """Write a plugin's failure into the log, with its traceback; that its process ended was written once already."""
    if not isinstance(error, PluginEnded):
        at = " ({}:{})".format(*error.at) if hasattr(error, "at") else ""
        _log.error("%s failed in %s%s: %s", plugin, where, at, describe(error), exc_info=error)
