"""The provider of `agentProfiles`: agents' profiles as the files that they are. Revisions are hashes of the content."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from pydantic import JsonValue

from tavern_agents import State
from tavern_agents.api.profilefiles import AgentProfiles, ProfileFile
from tavern_agents.profiles import MAX_PROFILE, ProfileFolder, Profiles, read_profile, said
from tavern_host import CallContext, PluginContext
from tavern_host.common.redaction import has_mask
from tavern_host.contracts.documents import read_document_file, revision_of
from tavern_host.contracts.errors import Conflict, InvalidInput, ServiceUnavailable, TavernError
from tavern_host.contracts.settings import SETTINGS
from tavern_host.storage.files import write_atomic

_NAME = "the profile"

Document = dict[str, JsonValue]


class ProfileFiles(AgentProfiles):
    """The profiles in the project's folder `agents`."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context

    async def get(self, profile_id: str) -> ProfileFile:
        """Return a profile; see the interface."""
        profiles = await self._context.own(State).profiles.now()
        profiles.get(profile_id)
        path = profiles.sources[profile_id].brought or place_of(profiles, profile_id, self._context)
        return _file(profile_id, await asyncio.to_thread(read_document_file, path))

    async def check(self, profile_id: str, document: Document) -> list[str]:
        """Return the mistakes of a document; see the interface."""
        return await asyncio.to_thread(_problems, profile_id, document)

    async def save(
        self,
        profile_id: str,
        document: Document,
        *,
        expected_revision: str | None = None,
        call: CallContext | None = None,
    ) -> ProfileFile:
        """Write a profile; see the interface."""
        if problems := await self.check(profile_id, document):
            raise InvalidInput(f"the profile cannot be used: {'; '.join(problems)}", problems=problems)
        async with self._context.own(State).writing:
            folder = self._context.own(State).profiles
            path, before = await present(folder, profile_id, self._context)
            if expected_revision not in (None, before):
                message = (
                    f"the agent {profile_id!r} is at revision {before or 'none'}, not {expected_revision or 'none'}"
                )
                raise Conflict(message, revision=before, expected=expected_revision)
            if has_mask(document):
                stored = [(await self.get(profile_id)).document] if before not in ("", "broken") else []
                document = await self._context.services.get(SETTINGS).restored(document, stored)
            await asyncio.to_thread(_write, path, document, self._context.project.root)
            await folder.now()
        return _file(profile_id, document)


def _problems(profile_id: str, document: Document) -> list[str]:
    if len(json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")) > MAX_PROFILE:
        return [f"the profile is larger than {MAX_PROFILE // 1024} KiB"]
    problems = [said(problem).removeprefix(f"{_NAME}: ") for problem in read_profile(document, _NAME)]
    if not problems and document.get("id") != profile_id:
        problems = [f"$.id: must be {profile_id!r}, as in the address"]
    return problems


def _file(profile_id: str, document: Document) -> ProfileFile:
    return ProfileFile(id=profile_id, revision=revision_of(document), document=document)


async def present(folder: ProfileFolder, profile_id: str, context: PluginContext) -> tuple[Path, str]:
    """Return where a profile is, or is to be, and its revision: empty where there is none."""
    profiles = await folder.now()
    path, source = place_of(profiles, profile_id, context), profiles.sources.get(profile_id)
    try:
        stands = path if source is None or source.brought is None else source.brought
        return path, revision_of(await asyncio.to_thread(read_document_file, stands))
    except TavernError:
        return path, "broken" if path.exists() else ""


def place_of(profiles: Profiles, profile_id: str, context: PluginContext) -> Path:
    """Return the file of the project for a profile: the one that it is in, else one of its name.

    Raises `Conflict` where that leads out of the project, `InvalidInput` for what can be no file.
    """
    root = context.project.root
    if profile_id in profiles.sources and profiles.sources[profile_id].brought is None:
        return root / profiles.sources[profile_id].file
    for broken in profiles.broken:
        if profile_id in broken.names:
            return root / broken.problems[0].file
    name = f"{profile_id}.json"
    if (
        profile_id.startswith(".")
        or len(name.encode()) > 200
        or any(c in '<>:"\\|' or not c.isprintable() for c in name)
    ):
        raise InvalidInput(f"{profile_id!r} cannot be the name of a file; give the agent another id")
    path = root / "agents" / name
    if path.parent.resolve() != root.resolve() / "agents":
        raise Conflict(f"{path.parent} leads out of the project; nothing is written there")
    return path


def _write(path: Path, document: Document, root: Path) -> None:
    try:
        path.parent.mkdir(exist_ok=True)
        real = path.resolve()
        if not real.is_relative_to(root.resolve()):
            raise Conflict(f"{path} leads out of the project; nothing is written there")
        write_atomic(real, (json.dumps(document, ensure_ascii=False, indent=2) + "\n").encode())
    except OSError as error:
        raise ServiceUnavailable(f"{path} cannot be written: {error.strerror or error}") from error
