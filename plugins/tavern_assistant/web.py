"""Patches over HTTP; each route hands over to the service and shapes its answer. Those of settings have routes of their
own, since who may use them is somebody else."""

from __future__ import annotations

from tavern_assistant.patches.documents import documents_of
from tavern_host import HttpRequest, HttpResponse, PluginContext
from tavern_host.contracts.assistant import ASSISTANT, PatchProposal, PatchResult, PatchUndo
from tavern_host.contracts.errors import InvalidInput


async def propose(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/patches/check`: what a patch would do; nothing is saved."""
    asked = request.read(PatchProposal)
    result = await context.services.get(ASSISTANT).propose_patch(
        asked.operations,
        kind=asked.kind,
        id=asked.id,
        document=asked.document,
        revision=asked.revision,
        call=request.call,
    )
    return HttpResponse(data=result.to_json())


async def apply(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/patches`: the document with the patch applied, or 409 with what is wrong."""
    return await _apply(request, context, is_of_settings=False)


async def apply_settings(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/settings-patches`: the settings with the patch applied, or 409 with what is wrong."""
    return await _apply(request, context, is_of_settings=True)


async def undo(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/patches/undo`: the document as it was before a patch."""
    return await _undo(request, context, is_of_settings=False)


async def undo_settings(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/settings-patches/undo`: the settings as they were before a patch."""
    return await _undo(request, context, is_of_settings=True)


async def _apply(request: HttpRequest, context: PluginContext, *, is_of_settings: bool) -> HttpResponse:
    asked = request.read(PatchProposal)
    _check_kind(asked, is_of_settings)
    if asked.id is None or asked.document is not None:
        raise InvalidInput("a patch is applied to a document that is named by its `id`")
    if is_of_settings:  # the service leaves these to those who may use this route
        documents = documents_of(context)
        return _answer(await documents.apply("settings", asked.id, asked.operations, asked.revision, request.call))
    result = await context.services.get(ASSISTANT).apply_patch(
        asked.operations, asked.id, kind=asked.kind, revision=asked.revision, reason=asked.reason, call=request.call
    )
    return _answer(result)


async def _undo(request: HttpRequest, context: PluginContext, *, is_of_settings: bool) -> HttpResponse:
    asked = request.read(PatchUndo)
    _check_kind(asked, is_of_settings)
    if is_of_settings:
        undoing = documents_of(context).undo("settings", asked.id, asked.revision, asked.to, request.call)
        return _answer(await undoing)
    result = await context.services.get(ASSISTANT).undo_patch(
        asked.id, asked.revision, asked.to, kind=asked.kind, call=request.call
    )
    return _answer(result)


def _check_kind(asked: PatchProposal | PatchUndo, is_of_settings: bool) -> None:
    if (asked.kind == "settings") != is_of_settings:
        raise InvalidInput("patches of settings, and nothing else, go to /api/settings-patches")


def _answer(result: PatchResult) -> HttpResponse:
    headers = {"ETag": f'"{result.revision}"'} if result.applied else {}
    return HttpResponse(status=200 if result.applied else 409, data=result.to_json(), headers=headers)
