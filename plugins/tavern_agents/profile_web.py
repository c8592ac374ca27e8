"""Agents' profiles over HTTP: read, saved and deleted as the files that they are.

ETags are hashes of the content, and a change of a profile that is there must say which one it is meant for.
"""

from __future__ import annotations

import asyncio

from tavern_agents import State
from tavern_agents.api.profilefiles import AGENT_PROFILES, ProfileFile
from tavern_agents.profile_files import present
from tavern_agents.profiles import MAX_PROFILE
from tavern_host import HttpRequest, HttpResponse, PluginContext
from tavern_host.common.redaction import masked
from tavern_host.contracts.errors import Conflict, InvalidInput
from tavern_host.sdk.conditions import conditional, expected


async def get_profile(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/agents/{id}`: the profile as its file has it; who may not change it is shown no secrets in it."""
    profile = await context.services.get(AGENT_PROFILES).get(request.parameters["id"])
    if not request.may_create:
        profile = profile.model_copy(update={"document": masked(profile.document)})
    return _answer(profile)


async def save_profile(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`PUT /api/agents/{id}`: the whole profile; 201 where there was none. In the place of a plugin's it is a file of
    the project."""
    profile_id, profiles = request.parameters["id"], context.services.get(AGENT_PROFILES)
    if len(request.body) > MAX_PROFILE:
        raise InvalidInput(f"the profile is larger than {MAX_PROFILE // 1024} KiB")
    document = request.json_body()
    if not isinstance(document, dict):
        raise InvalidInput("the profile cannot be used: the body is no JSON object")
    if problems := await profiles.check(profile_id, document):
        raise InvalidInput(f"the profile cannot be used: {'; '.join(problems)}", problems=problems)
    _, before = await present(context.own(State).profiles, profile_id, context)
    expected(request, before, f"the agent {profile_id!r}")
    saving = profiles.save(profile_id, document, expected_revision=before, call=request.call)
    return _answer(await conditional(saving), status=200 if before else 201)


async def delete_profile(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`DELETE /api/agents/{id}`: its file; what it remembers and said stays."""
    profile_id = request.parameters["id"]
    async with context.own(State).writing:
        folder = context.own(State).profiles
        profiles = await folder.now()
        if not any(profile_id in broken.names for broken in profiles.broken):
            profiles.get(profile_id)
            source = profiles.sources[profile_id]
            if source.brought is not None:
                raise Conflict(f"the agent {profile_id!r} is of {source.file}, not of the project")
        path, before = await present(folder, profile_id, context)
        expected(request, before, f"the agent {profile_id!r}")
        await asyncio.to_thread(path.unlink, missing_ok=True)
        await folder.now()
    return HttpResponse(data={"success": True, "message": f"the agent {profile_id} is deleted"})


def _answer(profile: ProfileFile, *, status: int = 200) -> HttpResponse:
    return HttpResponse(status=status, data=profile.document, headers={"ETag": f'"{profile.revision}"'})
