"""Checks a plugin that is being written, as the host would, before it is installed.

The host that checks it has a project and an operator of its own, in a temporary folder, so nothing of the user's is
changed.
"""

from __future__ import annotations

import configparser
import contextlib
import logging
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import Field, JsonValue

from tavern_devtools.api.checks import PLUGIN_CHECKS, CheckedPlugin, Finding
from tavern_devtools.rules import OF_THE_HOST, findings
from tavern_devtools.rules.subject import Project, Subject
from tavern_host import LLM, NODE_MANAGER, TOOL_MANAGER, WORKFLOW_MANAGER, Folders, Host, InvalidInput, TavernError
from tavern_host.contracts.names import near_names
from tavern_host.contracts.plugins import GROUP, MANIFEST, PermissionInfo, PluginInfo, PluginState
from tavern_host.contracts.reviews import ReviewNote
from tavern_host.contracts.wire import Model
from tavern_host.plugins.manifest import entry_folders, read_manifest
from tavern_host.storage.yaml_file import InvalidFile

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
    """A plugin to look at: its folder, and how that is shown. `entry` is the name of its entry point, where it is in
    a project or a wheel. What is wrong already stands in `problems`; then the folder may not be there."""

    folder: Path
    shown: str
    entry: str | None = None
    project: Project | None = None
    is_wheel: bool = False
    problems: list[Finding] = field(default_factory=list)


@contextlib.contextmanager
def candidates(path: Path) -> Iterator[list[Candidate]]:
    """Give the plugins at a path: a plugin's folder, a project with a `pyproject.toml`, or a wheel.

    Raises `InvalidInput` for anything else.
    """
    path = path.absolute()
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
        return Candidate(unpacked, str(path), name, is_wheel=True, problems=[_no_package(name, value)])
    folder, problems = unpacked.joinpath(*package), []
    if not (folder / MANIFEST).is_file():
        message = f"there is no {'/'.join(package)}/{MANIFEST} in the wheel"
        hint = "let the build put the package's data files into the wheel"
        problems = [Finding(message=message, hint=hint)]
    return Candidate(folder, f"{path} ({'.'.join(package)})", name, is_wheel=True, problems=problems)


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
    """One plugin in a host that was made to look at it."""

    def __init__(self, candidate: Candidate, root: Path) -> None:
        self._candidate = candidate
        self._host: Host | None = None
        self._source = f"dev:{candidate.folder.absolute()}"
        self._name: str | None = None
        self._root = root
        if candidate.problems:
            return
        installed = _installed_from(candidate.folder, self._new_host())
        if installed is None:
            self._host = self._new_host(dev=[candidate.folder], placement="loopback")
        else:  # with `pip install -e`: the folder is what is installed
            self._source, self._name = installed.source, installed.name
            self._host = self._new_host(trust=[installed.name], placement="loopback")
        self._host.link()

    def _new_host(self, **options: Any) -> Host:
        """Return a host with a project and an operator of its own."""
        root = self._root
        folders = Folders(config=root / "config", state=root / "state", data=root / "data")
        return Host(root / "project", folders=folders, **options)

    @property
    def can_be_imported(self) -> bool:
        """Whether the host would import the plugin, going by its manifest. The code of a wheel never is."""
        if self._host is None or self._candidate.is_wheel:
            return False
        return self._info(self._host).state is PluginState.DISCOVERED

    def _info(self, host: Host) -> PluginInfo:
        name, source = self._name, self._source
        return next(info for info in host.plugins() if info.source == source and name in (None, info.name))

    async def by_manifest(self) -> Report:
        """Return what plugins say of the plugin's files, and the host of its manifest, without an import."""
        if self._host is None:
            name = self._candidate.entry or self._candidate.folder.name
            problems, state = self._candidate.problems, PluginState.INVALID
            return Report(
                name=name, version="", path=self._candidate.shown, state=state, imported=False, problems=problems
            )
        info, judge = self._info(self._host), self._new_host(third_party=False)
        try:
            await judge.load()
            findings, notes = await self._judged(judge, info)
        finally:
            await judge.stop()
        return _report(self._candidate, info, findings).with_notes(notes)

    async def by_import(self) -> Report:
        """Return the host's report on the plugin once it has imported it and collected its registrations, behind the
        loopback boundary. Nothing of it is started."""
        host = self._host
        assert host is not None
        provides: dict[str, list[str]] = {}
        log = _warnings_of(self._candidate.folder, self._info(host).name)
        with log as logged, contextlib.redirect_stdout(sys.stderr):  # the plugin may print
            try:
                await host.load()
                findings, notes = await self._judged(host, self._info(host))
                if self._info(host).state is PluginState.LOADED:
                    provides = await _provided(host, self._info(host))
                info = self._info(host)
            finally:
                await host.stop()
        report = _report(self._candidate, info, findings)
        known = {str(problem) for problem in [*report.problems, *report.warnings]}
        problems = [Finding(message=line) for line in logged.lines if not any(line in one for one in known)]
        changes = {"imported": True, "provides": provides, "problems": [*report.problems, *problems]}
        return report.model_copy(update=changes).with_notes(notes)

    async def _judged(self, judge: Host, info: PluginInfo) -> tuple[list[Finding], list[ReviewNote]]:
        """Return what the plugins of a loaded host find wrong with the plugin, and their notes on its review, where the
        policy of the host that it will be used in is not known."""
        folder = self._candidate.folder.absolute()
        checked = CheckedPlugin(
            name=info.name,
            root=str(folder),
            folders=_entry_folders(folder),
            is_loaded=judge is self._host and info.state is PluginState.LOADED,
        )
        assert self._host is not None
        reviewed = self._host.reviewed(info)
        notes = [] if reviewed is None else await judge.review(reviewed.model_copy(update={"judged": False}))
        return await judge.services.get(PLUGIN_CHECKS).check(checked), notes


@contextlib.contextmanager
def inspected(candidate: Candidate) -> Iterator[Inspection]:
    """Give a look at a plugin; what it needs of the disk is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="tavern-check-") as temporary:
        yield Inspection(candidate, Path(temporary))


def _entry_folders(folder: Path) -> dict[str, str]:
    """Return the folders of files that a plugin's manifest names, as far as it can be read, by field."""
    try:
        manifest = read_manifest(folder)[0]
    except InvalidFile as error:
        manifest = error.rest
    except OSError:
        return {}
    return {key: str(path) for key, path in entry_folders(manifest, folder).items()} if manifest is not None else {}


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
    return {kind: names for kind, names in provides.items() if names}


def _installed_from(folder: Path, host: Host) -> PluginInfo | None:
    """Return the installed plugin whose code lies in this folder, or None."""
    folder = folder.resolve()
    return next((info for info in host.link() if host.folder(info) == folder), None)


def _report(candidate: Candidate, info: PluginInfo, found: list[Finding]) -> Report:
    permissions = [p.model_copy(update={"granted": p.level == "add"}) for p in info.permissions]
    if candidate.entry is not None:  # installed code is not reviewed file by file
        permissions = [p for p in permissions if not p.name.startswith("code:")]
    subject = Subject(candidate.folder, info, candidate.project)
    said = {(one.message, _shown(one.file)) for one in found}
    host = [one for one in findings(subject, OF_THE_HOST) if (one.message, _shown(one.file)) not in said]
    found = [*host, *found]
    if info.version:  # the manifest could be read: each says the version
        found += findings(subject)
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


def _shown(file: str | None) -> str | None:
    return file and Path(file).name


class _Warnings(logging.Handler):
    """Keeps the lines of warnings that are about one plugin: those that name it or its folder."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(logging.WARNING)
        self._marks = [f"{folder}/", name]
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what is about the plugin; its failures are in its record already."""
        if record.exc_info or record.name == "tavern.plugins":
            return
        lines = [line.strip() for line in record.getMessage().splitlines()]
        self.lines += [line for line in lines if line not in self.lines and any(mark in line for mark in self._marks)]


@contextlib.contextmanager
def _warnings_of(folder: Path, name: str) -> Iterator[_Warnings]:
    """Give the warnings about a plugin that are written into the log, whether the log is shown or not."""
    logged, logger = _Warnings(folder, name), logging.getLogger("tavern")
    before = logger.handlers, logger.level, logger.propagate
    is_shown = before[1] <= logging.WARNING  # as with `tavern --verbose`
    logger.handlers, logger.propagate = [logged, *(before[0] if is_shown else [])], is_shown and before[2]
    logger.setLevel(min(before[1], logging.WARNING))
    try:
        yield logged
    finally:
        logger.handlers, logger.propagate = before[0], before[2]
        logger.setLevel(before[1])
