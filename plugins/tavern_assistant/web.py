"""Patches over HTTP, and requests to the assistant; each route hands over and shapes the answer. Patches of settings
have routes of their own, since who may use them is somebody else; the service leaves them to these."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from tavern_assistant.api.assistant import ASSISTANT, PatchProposal, PatchResult, PatchUndo
from tavern_assistant.deliberation.requests import AssistantRequest, start
from tavern_assistant.state import State
from tavern_host import HttpRequest, HttpResponse, PluginContext
from tavern_host.contracts.errors import Forbidden, InvalidInput
from tavern_host.contracts.http import answer_with

Asked = TypeVar("Asked", PatchProposal, PatchUndo)


async def propose(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/patches/check`: what a patch would do; nothing is saved. A patch can copy what is masked elsewhere, so
    who may not change the document gives it as it was shown."""
    asked = await asyncio.to_thread(request.read, PatchProposal)
    if asked.id and not request.may_create:
        raise Forbidden("who may only look checks a patch of a `document` that is given, not of one named by its `id`")
    fields = asked.model_dump(include={"kind", "id", "document", "revision"})
    proposing = context.services.get(ASSISTANT).propose_patch(asked.operations, **fields, call=request.call)
    return await answer_with((await proposing).to_json, is_large=True)


async def apply(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/patches`: the document with the patch applied, or 409 with what is wrong."""
    asked = await _asked(request, PatchProposal, is_of_settings=False)
    fields: dict[str, Any] = {"kind": asked.kind, "revision": asked.revision, "reason": asked.reason}
    applying = context.services.get(ASSISTANT).apply_patch(asked.operations, str(asked.id), **fields, call=request.call)
    return await _answer(await applying)


async def apply_settings(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/settings-patches`: the settings with the patch applied, or 409 with what is wrong."""
    asked = await _asked(request, PatchProposal, is_of_settings=True)
    return await _answer(await context.own(State).documents.apply(asked, request.call))


async def undo(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/patches/undo`: the document as it was before a patch."""
    asked = await _asked(request, PatchUndo, is_of_settings=False)
    undone = context.services.get(ASSISTANT).undo_patch
    return await _answer(await undone(asked.id, asked.revision, asked.to, kind=asked.kind, call=request.call))


async def undo_settings(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/settings-patches/undo`: the settings as they were before a patch."""
    asked = await _asked(request, PatchUndo, is_of_settings=True)
    return await _answer(
        await context.own(State).documents.undo("settings", asked.id, asked.revision, asked.to, request.call)
    )


async def ask(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/assistant/requests`: the `AgentRun` that has begun; its reply is in the conversation, a workflow in an
    event."""
    asked = await asyncio.to_thread(request.read, AssistantRequest)
    return HttpResponse(status=202, data=(await start(context, asked, request.call)).to_json())


async def _asked(request: HttpRequest, model: type[Asked], *, is_of_settings: bool) -> Asked:
    """Return the body of a request. Raises `InvalidInput` where it does not belong to the route."""
    asked = await asyncio.to_thread(request.read, model)
    if (asked.kind == "settings") != is_of_settings:
        raise InvalidInput("patches of settings, and nothing else, go to /api/settings-patches")
    if isinstance(asked, PatchProposal) and (asked.id is None or asked.document is not None):
        raise InvalidInput("a patch is applied to a document that is named by its `id`")
    return asked


async def _answer(result: PatchResult) -> HttpResponse:
    headers = {"ETag": f'"{result.revision}"'} if result.applied else {}
    return await answer_with(result.to_json, is_large=True, status=200 if result.applied else 409, headers=headers)
