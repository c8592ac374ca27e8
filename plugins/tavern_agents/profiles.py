"""Reads the agent profiles of a project, `agents/*.json` and `agents/*/agent_profile.json`, and those of plugins.

A project's profile takes the place of a plugin's with the same id. Every problem of every file is reported with its
line and JSON path; a broken file hides no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tavern_agents.api.agents import AgentProblem, AgentProfile
from tavern_host.context import PluginContext
from tavern_host.contracts.documents import json_path, json_type, read_document, read_document_bytes
from tavern_host.contracts.errors import Misconfigured, NotFound, TavernError, describe
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.plugins import PLUGINS, PluginAsset
from tavern_host.contracts.wire import Path as Location
from tavern_host.contracts.wire import WireError, wire_value, without_surrogates
from tavern_host.storage.file_watch import WatchedFiles
from tavern_tools.api.json_positions import JsonText, nearest

PROFILE = "agent_profile.json"

CHANGED = "AGENTS_CHANGED"

MAX_PROFILE = 1 << 20
"""How many bytes a profile may have."""

_ID = "must have 1 to 200 characters, no blanks, and none of / @ * ?"
_TWICE = "stands here twice: keep one of them"


@dataclass(frozen=True)
class BrokenProfile:
    """A file that holds no usable profile. `names` are those by which it may be asked for: its id if that can be
    read, and its file's name."""

    names: tuple[str, ...]
    problems: tuple[AgentProblem, ...]


@dataclass(frozen=True)
class Source:
    """Where a profile stands: the file's path in the project, and its text; `brought` is the file of a plugin's."""

    file: str
    text: JsonText
    brought: Path | None = None

    def problem(self, place: Location, message: str, **more: Any) -> AgentProblem:
        """Return the problem of a profile at a place, with its line; `more` are other fields of the problem."""
        line, _ = nearest(self.text.marks([place]), place)
        values = {"file": self.file, "level": "error", "path": json_path(*place), "line": line, "message": message}
        return AgentProblem.model_validate({**values, **more})


@dataclass(frozen=True)
class Profiles:
    """What a project's `agents` folder holds. `taken` are ids that one plugin brings and another has brought before:
    the later, the id, the earlier. `owners` are the plugins of those that plugins bring, by id."""

    by_id: dict[str, AgentProfile] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    broken: tuple[BrokenProfile, ...] = ()
    taken: tuple[tuple[str, str, str], ...] = ()
    owners: dict[str, str] = field(default_factory=dict)

    @property
    def problems(self) -> list[str]:
        """Every problem of every file."""
        return [said(problem) for broken in self.broken for problem in broken.problems]

    def get(self, profile_id: str) -> AgentProfile:
        """Return a profile. Raises `Misconfigured` with all problems of a broken one, else `NotFound`."""
        profile = self.by_id.get(profile_id)
        if profile is not None:
            return profile
        for broken in self.broken:
            if profile_id in broken.names:
                problems = [said(problem) for problem in broken.problems]
                text = "; ".join(problems)
                raise Misconfigured(f"the agent {profile_id!r} cannot be used: {text}", problems=problems)
        hint = did_you_mean(profile_id, self.by_id) or f" (there is {', '.join(sorted(self.by_id)) or 'none'})"
        raise NotFound(f"there is no agent {profile_id!r}{hint}", agent=profile_id)


class ProfileFolder:
    """The profiles of a project as they are now; `AGENTS_CHANGED` is published when a look finds others."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._files = WatchedFiles(".json")
        self._brought: list[PluginAsset] = []
        self._profiles = Profiles()
        self._read_at: tuple[int, int] | None = None
        self._lock = asyncio.Lock()

    async def now(self) -> Profiles:
        """Return the profiles of the folder. Files are read again when one of them has changed."""
        if await self._revision() != self._read_at:
            async with self._lock:
                if await self._revision() != self._read_at:
                    await self._read()
        return self._profiles

    async def _revision(self) -> tuple[int, int]:
        """Return a stamp that differs once plugins or files do."""
        folders = [asset.path for asset in self._brought]
        agents = str(self._context.project.root / "agents")
        return self._context.hooks.revision, await self._files.revision(agents, *folders)

    async def _read(self) -> None:
        services = self._context.services
        self._brought = await services.get(PLUGINS).assets("agents") if services.has(PLUGINS) else []
        revision, root = await self._revision(), self._context.project.root
        profiles = await asyncio.to_thread(read_profiles, root, self._brought)
        before, self._profiles, is_first = self._profiles, profiles, self._read_at is None
        self._read_at = revision
        for plugin, profile_id, first in profiles.taken:
            self._context.hooks.claim({profile_id: first}, "agent", profile_id, plugin)
        if not is_first:
            self._publish(before, profiles)

    async def follow(self, every: float) -> None:
        """Look every so many seconds, until cancelled."""
        while True:
            await self.now()
            await asyncio.sleep(every)

    def _publish(self, before: Profiles, now: Profiles) -> None:
        changed = [id for id in {**before.by_id, **now.by_id} if before.by_id.get(id) != now.by_id.get(id)]
        if changed or before.problems != now.problems:
            message = f"Agents: {', '.join(sorted(changed)) or 'none'} changed"
            payload: dict[str, Any] = {"success": not now.broken, "message": message, "count": len(now.by_id)}
            self._context.events.publish("TOOLS_CHANGED", {})  # agents are tools
            self._context.events.publish(CHANGED, {**payload, "changed": sorted(changed), "problems": now.problems})


def said(problem: AgentProblem) -> str:
    """Return a problem as one line: file, line, path, and what is wrong."""
    line = "" if problem.line is None else f":{problem.line}"
    path = "" if problem.path == "$" else f"{problem.path}: "
    return f"{problem.file}{line}: {path}{problem.message}"


def read_profiles(project: Path, brought: Sequence[PluginAsset] = ()) -> Profiles:
    """Return the profiles under a project's folder, and of the folders that plugins have brought those whose ids it
    does not have. Never raises for what a file says."""
    by_id: dict[str, AgentProfile] = {}
    sources: dict[str, Source] = {}
    broken: list[BrokenProfile] = []
    for path in _files(project / "agents"):
        found = _read(project, path)
        if isinstance(found, BrokenProfile):
            broken.append(found)
            continue
        profile, source = found
        if profile.id in by_id:
            message = f"{profile.id!r} is the id of {sources[profile.id].file} already; give it another"
            broken.append(BrokenProfile((_stem(path),), (source.problem(("id",), message),)))
        else:
            by_id[profile.id], sources[profile.id] = profile, source
    own = dict(sorted(by_id.items()))
    owners: dict[str, str] = {}
    taken = []
    for asset in brought:
        for path in _files(Path(asset.path)):
            found = _read(Path(asset.path), path)
            if isinstance(found, BrokenProfile):
                broken.append(found)
            elif found[0].id not in own:
                source = replace(found[1], file=f"plugin:{asset.plugin}/{found[1].file}", brought=path)
                own[found[0].id], sources[found[0].id] = found[0], source
                owners[found[0].id] = asset.plugin
            elif found[0].id in owners:
                taken.append((asset.plugin, found[0].id, owners[found[0].id]))
    return Profiles(own, sources, tuple(broken), tuple(taken), owners)


def _files(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from sorted([*folder.glob("*.json"), *folder.glob(f"*/{PROFILE}")])


def _stem(path: Path) -> str:
    return path.parent.name if path.name == PROFILE else path.stem


def _read(project: Path, path: Path) -> tuple[AgentProfile, Source] | BrokenProfile:
    file, names = without_surrogates(path.relative_to(project).as_posix()), [_stem(path)]

    def broken(message: str, line: int | None = None) -> BrokenProfile:
        return BrokenProfile(tuple(names), (AgentProblem(file=file, level="error", line=line, message=message),))

    try:
        real = path.resolve(strict=True)
        if not real.is_relative_to(project.resolve()):
            return broken("leads out of the project; only files of the project are read")
        data = read_document_bytes(real)
        if len(data) > MAX_PROFILE:
            return broken(f"is larger than {MAX_PROFILE // 1024} KiB")
        document = read_document(data, name=str(real))
    except TavernError as error:
        line, column, reason = (error.info.details.get(key) for key in ("line", "column", "reason"))
        if isinstance(line, int):
            return broken(f"is not JSON: {reason} (column {column})", line)
        return broken(error.message.removeprefix(f"{real} "))
    except (OSError, RuntimeError) as error:
        return broken(f"cannot be read: {describe(error)}")
    if isinstance(document.get("id"), str):
        names.insert(0, document["id"])
    source = Source(file, JsonText.of(data))
    profile, found = _validated(document, source)
    found += [source.problem(at, _TWICE, line=mark[0]) for at, mark in source.text.repeated_keys()]
    return BrokenProfile(tuple(names), tuple(found)) if found or profile is None else (profile, source)


def read_profile(document: dict[str, Any], name: str) -> list[AgentProblem]:
    """Return the problems of a document as a profile; `name` stands for that of its file."""
    return _validated(document, Source(name, JsonText.of(b"")))[1]


def _validated(document: dict[str, Any], source: Source) -> tuple[AgentProfile | None, list[AgentProblem]]:
    try:
        return AgentProfile.model_validate(wire_value(document), strict=True), []
    except WireError as error:
        return None, [source.problem(error.path, error.reason)]
    except ValidationError as error:
        return None, [source.problem(*_problem(one)) for one in error.errors(include_url=False)]


def _problem(error: Any) -> tuple[Location, str]:
    if error["type"] == "missing":
        return error["loc"], "is missing"
    if error["type"] == "string_pattern_mismatch":
        return error["loc"], _ID if error["loc"] == ("id",) else "must not be empty"
    return error["loc"], f"{error['msg'][:1].lower()}{error['msg'][1:]}, found {json_type(error.get('input'))}"
