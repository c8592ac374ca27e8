"""Checks a plugin that is being written, as the host would, before it is installed.

The host that checks it has a project and an operator of its own, in a temporary folder, so nothing of the user's is
changed.
"""

from __future__ import annotations

import configparser
import contextlib
import logging
import os
import re
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import Field, JsonValue

from tavern_devtools.api.checks import PLUGIN_CHECKS
from tavern_devtools.api.findings import Finding
from tavern_devtools.checks import HOOK
from tavern_devtools.manifests import checked_plugin
from tavern_devtools.rules import FAULTS, OF_THE_HOST, RULES, findings
from tavern_devtools.rules.subject import Project, Subject
from tavern_host import (
    AGENT_RUNTIME,
    LLM,
    NODE_MANAGER,
    TOOL_MANAGER,
    WORKFLOW_MANAGER,
    Folders,
    Host,
    InvalidInput,
    TavernError,
)
from tavern_host.contracts.names import near_names
from tavern_host.contracts.plugins import GROUP, MANIFEST, PermissionInfo, PluginInfo, PluginState
from tavern_host.contracts.reviews import ReviewNote
from tavern_host.contracts.wire import Model

MAX_FILES = 20_000
MAX_BYTES = 200 << 20
"""How much of a wheel is looked at; what is larger is no plugin that anybody reviews."""


class Report(Model):
    """What the host would say of one plugin. `provides` are the names of what it registers, by kind."""

    name: str
    version: str
    path: str
    state: PluginState
    imported: bool
    problems: list[Finding] = Field(default_factory=list)
    warnings: list[Finding] = Field(default_factory=list)
    permissions: list[PermissionInfo] = Field(default_factory=list)
    provides: dict[str, list[str]] = Field(default_factory=dict)
    scripts: list[JsonValue] = Field(default_factory=list)
    notes: list[ReviewNote] = Field(default_factory=list, exclude=True)

    def with_notes(self, notes: list[ReviewNote]) -> Report:
        """Return the report with what plugins add to the review."""
        scripts = next((note.data for note in notes if note.key == "scripts"), [])
        return self.model_copy(update={"notes": notes, "scripts": scripts})


@dataclass(frozen=True)
class Candidate:
    """A plugin to look at: its folder, and how that is shown. `entry` is the name of its entry point, where it is
    in a project or a wheel; `unpacked` is where the files of a wheel are. What is wrong already stands in
    `problems`; then the folder may not be there."""

    folder: Path
    shown: str
    entry: str | None = None
    project: Project | None = None
    unpacked: Path | None = None
    problems: list[Finding] = field(default_factory=list)

    @property
    def is_wheel(self) -> bool:
        """Whether it comes out of a wheel."""
        return self.unpacked is not None


@contextlib.contextmanager
def candidates(path: Path) -> Iterator[list[Candidate]]:
    """Give the plugins at a path: a plugin's folder, a project with a `pyproject.toml`, or a wheel.

    Raises `InvalidInput` for anything else.
    """
    path = Path(os.path.abspath(path))  # noqa: PTH100 (links keep their names)
    if path.is_dir():
        yield _in_folder(path)
    elif path.suffix == ".whl" and path.is_file():
        with tempfile.TemporaryDirectory(prefix="tavern-check-") as unpacked:
            yield _in_wheel(path, Path(unpacked))
    elif path.exists():
        raise InvalidInput(f"{path} is no plugin: give a plugin's folder, its project's folder, or a wheel (.whl)")
    else:
        raise InvalidInput(f"there is no {path}")


def _in_folder(path: Path) -> list[Candidate]:
    if (path / MANIFEST).exists():
        return [Candidate(path, str(path))]
    file = path / "pyproject.toml"
    if not file.is_file():
        raise InvalidInput(f"{path} is no plugin: it has neither a {MANIFEST} nor a pyproject.toml")
    try:
        project = Project(path, tomllib.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{file} cannot be read: {error}") from None
    groups = project.table("project", "entry-points")
    entries = project.table("project", "entry-points", GROUP) or project.table("tool", "poetry", "plugins", GROUP)
    if not entries:
        near = near_names(GROUP, groups)
        hint = f'add [project.entry-points."{GROUP}"] with a line: name = "package"'
        hint = f"{near[0]} must be called so" if near else hint
        raise InvalidInput(f"{file} has no entry point in the group {GROUP} ({hint})")
    return [_of_project(project, name, str(value)) for name, value in entries.items()]


def _of_project(project: Project, name: str, value: str) -> Candidate:
    root, package = project.root, _package(value)
    if package is None:
        return Candidate(root, str(root), name, project, problems=[_no_package(name, value)])
    listed = project.texts("tool", "hatch", "build", "targets", "wheel", "packages")
    parents = [(root / one).parent for one in listed if PurePosixPath(one).name == package[0]]
    folders = [parent.joinpath(*package) for parent in [*parents, root, root / "src"]]
    found = next((folder for folder in folders if folder.is_dir()), None)
    if found is not None:
        return Candidate(found, str(found), name, project)
    message = f"the entry point {name!r} names the package {value!r}, which is neither in {root} nor in {root / 'src'}"
    return Candidate(root, str(root), name, project, problems=[Finding(message=message, file="pyproject.toml")])


def _package(value: str) -> list[str] | None:
    """Return the parts of the package that an entry point names, or None where it names none."""
    parts = value.partition(":")[0].strip().split(".")
    return parts if all(part.isidentifier() for part in parts) else None


def _no_package(name: str, value: str) -> Finding:
    hint = 'write the name of the package that has the plugin.yaml: name = "package"'
    return Finding(message=f"the entry point {name!r} names {value!r:.80}, which is no package", hint=hint)


def _in_wheel(path: Path, unpacked: Path) -> list[Candidate]:
    try:
        with zipfile.ZipFile(path) as wheel:
            members = [member for member in wheel.infolist() if not member.is_dir()]
            if len(members) > MAX_FILES or sum(member.file_size for member in members) > MAX_BYTES:
                raise InvalidInput(f"{path} holds more than {MAX_FILES} files or {MAX_BYTES >> 20} MiB; no plugin does")
            entries = _entries(wheel, members)
            for member in members:
                wheel.extract(member, unpacked)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, ValueError) as error:
        raise InvalidInput(f"{path} is no wheel that can be read: {error}") from None
    if not entries:
        hint = f'the project\'s pyproject.toml needs [project.entry-points."{GROUP}"]'
        raise InvalidInput(f"{path} holds no plugin: it has no entry point in the group {GROUP} ({hint})")
    return [_of_wheel(path, unpacked, name, value) for name, value in entries.items()]


def _of_wheel(path: Path, unpacked: Path, name: str, value: str) -> Candidate:
    package = _package(value)
    if package is None:
        return Candidate(unpacked, str(path), name, unpacked=unpacked, problems=[_no_package(name, value)])
    folder, problems = unpacked.joinpath(*package), []
    if not (folder / MANIFEST).is_file():
        message = f"there is no {'/'.join(package)}/{MANIFEST} in the wheel"
        hint = "let the build put the package's data files into the wheel"
        problems = [Finding(message=message, hint=hint)]
    return Candidate(folder, f"{path} ({'.'.join(package)})", name, unpacked=unpacked, problems=problems)


def _entries(wheel: zipfile.ZipFile, members: list[zipfile.ZipInfo]) -> dict[str, str]:
    name = next((m for m in members if m.filename.endswith(".dist-info/entry_points.txt")), None)
    if name is None:
        return {}
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # names keep their case
    try:
        parser.read_string(wheel.read(name).decode("utf-8"))
    except (configparser.Error, UnicodeDecodeError) as error:
        raise ValueError(f"its entry_points.txt is damaged: {error}") from None
    return dict(parser[GROUP]) if parser.has_section(GROUP) else {}


class Inspection:
    """The plugins of one project, folder or wheel, in a host that was made to look at them."""

    def __init__(self, found: list[Candidate], root: Path) -> None:
        self._root = root
        self._host: Host | None = None
        self._found = found
        usable = [one for one in found if not one.problems]
        if not usable:
            return
        plain = self._new_host()
        plain.link()
        installed = {folder: info for info in plain.plugins() if (folder := plain.folder(info)) is not None}
        # With `pip install -e` a folder is what is installed.
        self._installed = {one.folder: installed.get(one.folder.resolve()) for one in usable}
        dev = [folder for folder, info in self._installed.items() if info is None]
        trust = [info.name for info in self._installed.values() if info is not None]
        self._host = self._new_host(dev=dev, trust=trust, placement="loopback")
        self._host.link()

    def _new_host(self, **options: Any) -> Host:
        """Return a host with a project and an operator of its own."""
        root = self._root
        folders = Folders(config=root / "config", state=root / "state", data=root / "data")
        return Host(root / "project", folders=folders, **options)

    def can_be_imported(self, candidate: Candidate) -> bool:
        """Whether the host would import a plugin, going by its manifest. The code of a wheel never is."""
        if candidate.problems or candidate.is_wheel:
            return False
        return self._info(candidate).state is PluginState.DISCOVERED

    def _info(self, candidate: Candidate) -> PluginInfo:
        assert self._host is not None
        installed = self._installed[candidate.folder]
        source = installed.source if installed is not None else f"dev:{candidate.folder.absolute()}"
        names = (None, installed.name) if installed is not None else (None,)
        found = (one for one in self._host.plugins() if one.source == source)
        return next(one for one in found if installed is None or one.name in names)

    async def reports(self, *, imports: bool) -> list[Report]:
        """Return a report of each plugin. With `imports` those are imported that the host would import,
        behind the loopback boundary, so that what they register is known; nothing of them is started."""
        host = self._host
        if host is None:
            return [_without_host(one) for one in self._found]
        imported = {one.folder for one in self._found if imports and self.can_be_imported(one)}
        judge = host if imported else self._new_host(third_party=False)
        with _warnings() as logged, contextlib.redirect_stdout(sys.stderr):  # plugins may print
            try:
                await judge.load()
                return [await self._report(one, judge, one.folder in imported, logged) for one in self._found]
            finally:
                await judge.stop()

    async def _report(self, candidate: Candidate, judge: Host, was_imported: bool, logged: _Warnings) -> Report:
        if candidate.problems:
            return _without_host(candidate)
        findings, notes = await self._judged(candidate, judge)
        provides = {}
        if was_imported and self._info(candidate).state is PluginState.LOADED:
            provides = await _provided(judge, self._info(candidate))
        info = self._info(candidate)
        report = _report(candidate, info, findings)
        known = {str(problem) for problem in [*report.problems, *report.warnings]}
        lines = logged.of(candidate.folder, info.name) if was_imported else []
        problems = [Finding(message=line) for line in lines if not any(line in one for one in known)]
        changes = {"imported": was_imported, "provides": provides, "problems": [*report.problems, *problems]}
        return report.model_copy(update=changes).with_notes(notes)

    async def _judged(self, candidate: Candidate, judge: Host) -> tuple[list[Finding], list[ReviewNote]]:
        """Return the faults that the plugins of a loaded host find with a plugin, and their notes on its review, where
        the policy of the host that it will be used in is not known."""
        assert self._host is not None
        info, folder = self._info(candidate), candidate.folder.absolute()
        is_loaded = judge is self._host and info.state is PluginState.LOADED
        checked = checked_plugin(folder, info.name, is_loaded=is_loaded)
        reviewed = self._host.reviewed(info)
        notes = [] if reviewed is None else await judge.review(reviewed.model_copy(update={"judged": False}))
        found = await judge.services.get(PLUGIN_CHECKS).check(checked)
        hint = "`tavern --verbose` shows why; report it to who makes that plugin"
        failed = [one.name for one in judge.plugins() if any(p.message.startswith(HOOK) for p in one.problems)]
        unknown = [Finding(rule="host", message=f"{name} could not check the plugin", hint=hint) for name in failed]
        return [*found, *unknown], notes


@contextlib.contextmanager
def inspected(found: list[Candidate]) -> Iterator[Inspection]:
    """Give a look at plugins; what it needs of the disk is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="tavern-check-") as temporary:
        yield Inspection(found, Path(temporary))


def _without_host(candidate: Candidate) -> Report:
    """Return the report on what no host can look at."""
    name, state = candidate.entry or candidate.folder.name, PluginState.INVALID
    return Report(name=name, version="", path=candidate.shown, state=state, imported=False, problems=candidate.problems)


async def _provided(host: Host, info: PluginInfo) -> dict[str, list[str]]:
    """Return the names of what a loaded plugin registers, by kind.

    Asking for them makes the registries read the plugin's files.
    """
    provides = {kind: sorted(names) for kind, names in info.contributions.items()}
    with contextlib.suppress(TavernError):
        nodes = await host.services.get(NODE_MANAGER).list_nodes()
        own = {node.full_type for node in nodes if node.namespace == info.name}
        provides["node"] = sorted({*provides.get("node", ()), *own})
    with contextlib.suppress(TavernError):
        tools = await host.services.get(TOOL_MANAGER).list_tools()
        provides["tool"] = [tool.id for tool in tools if tool.plugin == info.name]
    asked = host.services.get(TOOL_MANAGER)
    for collecting in (asked.protocols(), asked.expand("{{{}}}", call=host.call()), host.services.get(LLM).models()):
        with contextlib.suppress(TavernError):
            await collecting  # what is wrong with what a plugin contributes there is reported with it
    with contextlib.suppress(TavernError):
        workflows = await host.services.get(WORKFLOW_MANAGER).list_workflows()
        provides["workflow"] = [w.id for w in workflows if w.source == f"plugin:{info.name}"]
    with contextlib.suppress(TavernError):
        provides["agent"] = [
            a.id for a in await host.services.get(AGENT_RUNTIME).list_agents() if a.plugin == info.name
        ]
    return {kind: names for kind, names in provides.items() if names}


def _within(finding: Finding, root: Path) -> Finding:
    """Return a finding with the path of its file within a folder."""
    path = Path(finding.file or "")
    return finding.model_copy(update={"file": str(path.relative_to(root))}) if path.is_relative_to(root) else finding


def _report(candidate: Candidate, info: PluginInfo, found: list[Finding]) -> Report:
    permissions = [p.model_copy(update={"granted": p.level == "add"}) for p in info.permissions]
    if candidate.entry is not None:  # installed code is not reviewed file by file
        permissions = [p for p in permissions if not p.name.startswith("code:")]
    subject = Subject(candidate.folder, info, candidate.project)
    said = {one.file for one in found if one.level == "error"}  # what its owner has checked, it has said
    host = [one for one in findings(subject, OF_THE_HOST) if one.file is None or one.file not in said]
    found = [*host, *found]
    if info.version:  # the manifest could be read: each says the version
        found += findings(subject, (*FAULTS, *RULES))
    if candidate.unpacked is not None:  # a folder that is gone afterwards
        found = [_within(one, candidate.unpacked) for one in found]
    problems = [one for one in found if one.level == "error"]
    warnings = [one for one in found if one.level == "warning"]
    if info.version and candidate.entry not in (None, info.name):
        message = f"the entry point is called {candidate.entry!r}, the manifest {info.name!r}"
        problems.append(Finding(rule="wheel", message=message, hint="give both the same name"))
    return Report(
        name=info.name,
        version=info.version,
        path=candidate.shown,
        state=info.state,
        imported=False,
        problems=problems,
        warnings=warnings,
        permissions=permissions,
    )


class _Warnings(logging.Handler):
    """Keeps the lines of warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what may be about a plugin; its failures are in its record already."""
        if record.exc_info or record.name == "tavern.plugins":
            return
        lines = [line.strip() for line in record.getMessage().splitlines()]
        self.lines += [line for line in lines if line not in self.lines]

    def of(self, folder: Path, name: str) -> list[str]:
        """Return the lines that name a plugin or its folder."""
        named = re.compile(rf"{re.escape(str(folder))}/|(?<![\w-]){re.escape(name)}(?![\w-])")
        return [line for line in self.lines if named.search(line)]


@contextlib.contextmanager
def _warnings() -> Iterator[_Warnings]:
    """Give the warnings that are written into the log, whether the log is shown or not."""
    logged, logger = _Warnings(), logging.getLogger("tavern")
    before = logger.handlers, logger.level, logger.propagate
    is_shown = before[1] <= logging.WARNING  # as with `tavern --verbose`
    logger.handlers, logger.propagate = [logged, *(before[0] if is_shown else [])], is_shown and before[2]
    logger.setLevel(min(before[1], logging.WARNING))
    try:
        yield logged
    finally:
        logger.handlers, logger.propagate = before[0], before[2]
        logger.setLevel(before[1])
