"""The importers of what this host itself gives out: profiles of agents, and conversations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from tavern_agents.api.histories import CHAT_HISTORY, HistoryExport
from tavern_agents.api.profilefiles import AGENT_PROFILES
from tavern_host import PluginContext
from tavern_host.contracts.documents import read_model
from tavern_host.contracts.errors import InvalidInput, NotFound
from tavern_importers.api.importers import ImportedThing, ImporterInfo, ImportReport, ImportRequest


def importers() -> list[ImporterInfo]:
    """Return the kinds of files."""
    return [
        ImporterInfo(
            name="conversation",
            title="exported conversation",
            handler="tavern_agents.importing:import_conversation",
            marks={
                "type": "object",
                "required": ["format"],
                "properties": {"format": {"const": "tavern-chat-history"}},
            },
        ),
        ImporterInfo(
            name="agent",
            title="profile of an agent",
            handler="tavern_agents.importing:import_profile",
            marks={"type": "object", "required": ["core_deliberation_workflow_id"]},
        ),
    ]


async def import_conversation(request: ImportRequest, context: PluginContext) -> ImportReport:
    """Keep a conversation, under an id that none has."""
    document = request.object()
    exported = await asyncio.to_thread(read_model, HistoryExport, document, request.file.name)
    service = context.services.get(CHAT_HISTORY)
    history = await _free(request.options.name or exported.id, service.get_history)
    if not request.options.dry_run:
        await service.import_history(exported, history_id=history, call=request.call)
    thing = ImportedThing(kind="conversation", id=history, name=exported.title or "", page=f"/chat/{history}")
    return ImportReport(things=[thing])


async def import_profile(request: ImportRequest, context: PluginContext) -> ImportReport:
    """Keep an agent's profile, under an id that none has."""
    document = request.object()
    wanted = request.options.name or document.get("id")
    if not isinstance(wanted, str) or not wanted:
        raise InvalidInput(f"{request.file.name}: $.id: the profile needs an id; give one with --name")
    profiles = context.services.get(AGENT_PROFILES)
    agent = await _free(wanted, profiles.get)
    document = {**document, "id": agent}
    if not request.options.dry_run:
        await profiles.save(agent, document, expected_revision="", call=request.call)
    elif problems := await profiles.check(agent, document):
        raise InvalidInput(f"{request.file.name}: {'; '.join(problems)}")
    name = document.get("name")
    thing = ImportedThing(kind="agent", id=agent, name=name if isinstance(name, str) else "", page=f"/agents/{agent}")
    return ImportReport(things=[thing])


async def _free(wanted: str, get: Callable[[str], Awaitable[object]]) -> str:
    """Return an id like the wanted one that nothing has; `get` raises `NotFound` for it."""
    found, number = wanted, 2
    with suppress(NotFound):
        while await get(found):
            found, number = f"{wanted}-{number}", number + 1
    return found
