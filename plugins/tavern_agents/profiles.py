"""Reads the agent profiles of a project: `agents/*.json` and `agents/*/agent_profile.json`.

Every problem of every file is reported with its JSON path; a broken file hides no other.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tavern_host.contracts.agents import AgentProfile
from tavern_host.contracts.documents import json_path, json_type, read_document_file
from tavern_host.contracts.errors import Misconfigured, NotFound, TavernError, describe

PROFILE = "agent_profile.json"

REQUIRED = ("id", "name", "version", "schema_version", "core_deliberation_workflow_id")


@dataclass(frozen=True)
class BrokenProfile:
    """A file that holds no usable profile. `names` are those by which it may be asked for: its id if that can be
    read, and its file's name. `problems` begin with the file and the JSON path."""

    file: str
    names: tuple[str, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Profiles:
    """What a project's `agents` folder holds."""

    by_id: dict[str, AgentProfile] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    broken: tuple[BrokenProfile, ...] = ()

    @property
    def problems(self) -> list[str]:
        """Every problem of every file."""
        return [problem for broken in self.broken for problem in broken.problems]

    def get(self, profile_id: str) -> AgentProfile:
        """Return a profile. Raises `Misconfigured` with all problems of a broken one, else `NotFound`."""
        profile = self.by_id.get(profile_id)
        if profile is not None:
            return profile
        for broken in self.broken:
            if profile_id in broken.names:
                text = "; ".join(broken.problems)
                raise Misconfigured(f"the agent {profile_id!r} cannot be used: {text}", problems=list(broken.problems))
        near = difflib.get_close_matches(profile_id, self.by_id, n=3)
        known = ", ".join(sorted(self.by_id)) or "none"
        hint = f"did you mean {' or '.join(near)}?" if near else f"there is {known}"
        raise NotFound(f"there is no agent {profile_id!r} ({hint})", agent=profile_id)


def read_profiles(project: Path) -> Profiles:
    """Return the profiles under a project's folder, by id. Never raises for what a file says."""
    by_id: dict[str, AgentProfile] = {}
    places: dict[str, str] = {}
    broken: list[BrokenProfile] = []
    for path in _files(project / "agents"):
        file = path.relative_to(project).as_posix()
        found = _read(project, path, file)
        if isinstance(found, BrokenProfile):
            broken.append(found)
        elif found.id in by_id:
            problem = f"{file}: $.id: {found.id!r} is the id of {places[found.id]} already; give it another"
            broken.append(BrokenProfile(file, (_stem(path),), (problem,)))
        else:
            by_id[found.id] = found
            places[found.id] = file
    return Profiles(dict(sorted(by_id.items())), places, tuple(broken))


def _files(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from sorted([*folder.glob("*.json"), *folder.glob(f"*/{PROFILE}")])


def _stem(path: Path) -> str:
    return path.parent.name if path.name == PROFILE else path.stem


def _read(project: Path, path: Path, file: str) -> AgentProfile | BrokenProfile:
    names = [_stem(path)]

    def broken(*problems: str) -> BrokenProfile:
        return BrokenProfile(file, tuple(names), tuple(f"{file}: {problem}" for problem in problems))

    try:
        real = path.resolve(strict=True)
        if not real.is_relative_to(project.resolve()):
            return broken("leads out of the project; only files of the project are read")
        data = read_document_file(real)
    except TavernError as error:
        return broken(error.message.removeprefix(f"{real} "))
    except (OSError, RuntimeError) as error:
        return broken(f"cannot be read: {describe(error)}")
    if isinstance(data.get("id"), str):
        names.insert(0, data["id"])
    try:
        profile = AgentProfile.model_validate(data)
    except ValidationError as error:
        return broken(*(_problem(e) for e in error.errors(include_url=False)))
    empty = [key for key in REQUIRED if not getattr(profile, key).strip()]
    if empty:
        return broken(*(f"$.{key}: must not be empty" for key in empty))
    return profile


def _problem(error: Any) -> str:
    path = json_path(*error["loc"])
    if error["type"] == "missing":
        return f"{path}: is missing"
    expected = error["msg"][:1].lower() + error["msg"][1:]
    return f"{path}: {expected}, found {json_type(error.get('input'))}"
