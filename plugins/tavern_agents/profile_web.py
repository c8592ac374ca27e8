"""Agents' profiles over HTTP: read, saved and deleted as the files that they are.

ETags are hashes of the content, and a change of a profile that is there must say which one it is meant for.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from tavern_agents.profiles import MAX_PROFILE, ProfileFolder, Profiles, profiles_of, read_profile, said
from tavern_host import HttpRequest, HttpResponse, PluginContext
from tavern_host.contracts.conditions import expected
from tavern_host.contracts.documents import read_document_file, revision_of
from tavern_host.contracts.errors import Conflict, InvalidInput, ServiceUnavailable, TavernError
from tavern_host.storage.files import write_atomic

_LOCK = "agents.profiles.lock"


async def get_profile(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/agents/{id}`: the profile as its file has it."""
    profile_id = request.parameters["id"]
    profiles = await profiles_of(context).now()
    profiles.get(profile_id)
    path = profiles.sources[profile_id].brought or _place(profiles, profile_id, context)
    return _answer(await asyncio.to_thread(read_document_file, path))


async def save_profile(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`PUT /api/agents/{id}`: the whole profile; 201 where there was none. In the place of a plugin's it is a file of
    the project."""
    profile_id, document = request.parameters["id"], _document(request)
    async with _lock(context):
        folder = profiles_of(context)
        path, before = await _present(folder, profile_id, context)
        expected(request, before, f"the agent {profile_id!r}")
        await asyncio.to_thread(_write, path, document, context.project.root)
        await folder.now()
    return _answer(document, status=200 if before else 201)


async def delete_profile(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`DELETE /api/agents/{id}`: its file; what it remembers and said stays."""
    profile_id = request.parameters["id"]
    async with _lock(context):
        folder = profiles_of(context)
        profiles = await folder.now()
        if not any(profile_id in broken.names for broken in profiles.broken):
            profiles.get(profile_id)
            if profiles.sources[profile_id].brought is not None:
                raise Conflict(
                    f"the agent {profile_id!r} is of {profiles.sources[profile_id].file}, not of the project"
                )
        path, before = await _present(folder, profile_id, context)
        expected(request, before, f"the agent {profile_id!r}")
        await asyncio.to_thread(path.unlink, missing_ok=True)
        await folder.now()
    return HttpResponse(data={"success": True, "message": f"the agent {profile_id} is deleted"})


def _lock(context: PluginContext) -> asyncio.Lock:
    lock: asyncio.Lock = context.state.setdefault(_LOCK, asyncio.Lock())
    return lock


async def _present(folder: ProfileFolder, profile_id: str, context: PluginContext) -> tuple[Path, str]:
    """Return where a profile is, or is to be, and its revision: empty where there is none."""
    profiles = await folder.now()
    path, source = _place(profiles, profile_id, context), profiles.sources.get(profile_id)
    try:
        stands = path if source is None or source.brought is None else source.brought
        return path, revision_of(await asyncio.to_thread(read_document_file, stands))
    except TavernError:
        return path, "broken" if path.exists() else ""


def _place(profiles: Profiles, profile_id: str, context: PluginContext) -> Path:
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


def _document(request: HttpRequest) -> dict[str, Any]:
    """Return the profile in a body. Raises `InvalidInput` with every problem, as a file's are reported."""
    if len(request.body) > MAX_PROFILE:
        raise InvalidInput(f"the profile is larger than {MAX_PROFILE // 1024} KiB")
    body = request.json_body()
    document: dict[str, Any] = body if isinstance(body, dict) else {}
    problems = [] if isinstance(body, dict) else ["the body is no JSON object"]
    if not problems:
        problems = [said(problem).removeprefix("the body: ") for problem in read_profile(document, "the body")]
    if not problems and document.get("id") != request.parameters["id"]:
        problems = [f"$.id: must be {request.parameters['id']!r}, as in the address"]
    if problems:
        raise InvalidInput(f"the profile cannot be used: {'; '.join(problems)}", problems=problems)
    return document


def _write(path: Path, document: dict[str, Any], root: Path) -> None:
    try:
        path.parent.mkdir(exist_ok=True)
        real = path.resolve()
        if not real.is_relative_to(root.resolve()):
            raise Conflict(f"{path} leads out of the project; nothing is written there")
        write_atomic(real, (json.dumps(document, ensure_ascii=False, indent=2) + "\n").encode())
    except OSError as error:
        raise ServiceUnavailable(f"{path} cannot be written: {error.strerror or error}") from error


def _answer(document: dict[str, Any], *, status: int = 200) -> HttpResponse:
    return HttpResponse(status=status, data=document, headers={"ETag": f'"{revision_of(document)}"'})
