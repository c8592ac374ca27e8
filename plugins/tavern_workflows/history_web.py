"""Drafts and histories of workflows over HTTP, what names a workflow, and words in all of them.

The ETag of a draft is its revision, that of the file where there is no draft, and changes are conditional on it as
those of workflows are.
"""

from __future__ import annotations

import asyncio

from pydantic import Field, JsonValue

from tavern_host import WORKFLOW_MANAGER, HttpRequest, HttpResponse, PluginContext
from tavern_host.contracts.errors import NotFound
from tavern_host.contracts.http import answer_with
from tavern_host.contracts.wire import Model
from tavern_host.sdk.conditions import conditional, expected
from tavern_workflows.api.workflows import WorkflowDraft
from tavern_workflows.web import answer_document, keep_id, shown


class NewDraft(Model):
    """A draft, and what was done to it. `rebase` says that it is to take the place of the present file, although it was
    begun with an earlier one."""

    workflow: dict[str, JsonValue]
    reason: str = Field(default="", max_length=500)
    rebase: bool = False


class Name(Model):
    """The name of a restore point; null takes it away."""

    name: str | None = Field(max_length=200)


class Page(Model):
    """Which revisions are asked for: `limit` of those whose number is less than `before`."""

    before: int | None = Field(default=None, ge=1, le=10**15)
    limit: int = Field(default=50, ge=1, le=500)


class Search(Model):
    """The words that are looked for, and how many places are wanted."""

    text: str = Field(max_length=500)
    limit: int = Field(default=100, ge=1, le=1000)


async def show_draft(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/workflows/{workflowId}/draft`: the draft; without one, what it would be made of."""
    return await _answer(request, await context.services.get(WORKFLOW_MANAGER).draft(request.parameters["workflowId"]))


async def save_draft(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`PUT /api/workflows/{workflowId}/draft`."""
    manager, workflow_id = context.services.get(WORKFLOW_MANAGER), request.parameters["workflowId"]
    new = await asyncio.to_thread(request.read, NewDraft)
    revision = expected(request, (await manager.draft(workflow_id)).revision, f"the draft of {workflow_id!r}")
    document = keep_id(new.workflow, await manager.get(workflow_id))
    saving = manager.save_draft(
        workflow_id,
        await manager.parse(document),
        expected_revision=revision,
        reason=new.reason,
        rebase=new.rebase,
        call=request.call,
    )
    return await _answer(request, await conditional(saving))


async def discard_draft(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`DELETE /api/workflows/{workflowId}/draft`."""
    manager, workflow_id = context.services.get(WORKFLOW_MANAGER), request.parameters["workflowId"]
    revision = expected(request, (await manager.draft(workflow_id)).revision, f"the draft of {workflow_id!r}")
    discarding = manager.discard_draft(workflow_id, expected_revision=revision, call=request.call)
    return await _answer(request, await conditional(discarding))


async def revisions(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/workflows/{workflowId}/history`: the newest first."""
    page, manager = request.read_query(Page), context.services.get(WORKFLOW_MANAGER)
    found = await manager.history(request.parameters["workflowId"], before=page.before, limit=page.limit)
    return HttpResponse(data=[one.to_json() for one in found])


async def newest(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/workflow-history`: the newest revision of each workflow, of deleted ones too."""
    page = request.read_query(Page)
    found = await context.services.get(WORKFLOW_MANAGER).history(limit=page.limit)
    return HttpResponse(data=[one.to_json() for one in found])


async def revision(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/workflows/{workflowId}/history/{number}`: the document as it was."""
    workflow_id = request.parameters["workflowId"]
    stored = await context.services.get(WORKFLOW_MANAGER).get(f"{workflow_id}@r{_number(request)}")
    return await answer_document(request, stored.workflow, workflow_id, headers={"ETag": f'"{stored.revision}"'})


async def name(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`PATCH /api/workflows/{workflowId}/history/{number}`."""
    manager, new = context.services.get(WORKFLOW_MANAGER), request.read(Name)
    workflow_id, number = request.parameters["workflowId"], _number(request)
    return HttpResponse(data=(await manager.name_revision(workflow_id, number, new.name, call=request.call)).to_json())


async def uses(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/workflows/{workflowId}/uses`."""
    found = await context.services.get(WORKFLOW_MANAGER).uses(request.parameters["workflowId"])
    return HttpResponse(data=[one.to_json() for one in found])


async def search(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/workflow-search`: places in which all words stand together."""
    wanted = request.read_query(Search)
    found = await context.services.get(WORKFLOW_MANAGER).search(wanted.text, limit=wanted.limit)
    return HttpResponse(data=[one.to_json() for one in found])


def _number(request: HttpRequest) -> int:
    number = request.parameters["number"]
    if not (number.isascii() and number.isdigit() and len(number) <= 15):
        raise NotFound(f"there is no revision {number!r}: they are numbers")
    return int(number)


async def _answer(request: HttpRequest, draft: WorkflowDraft) -> HttpResponse:
    def data() -> dict[str, JsonValue]:
        found = draft.model_copy(update={"workflow": None}).to_json()
        if draft.workflow is not None:
            found["workflow"] = shown(request, draft.workflow, draft.id)
        return found

    return await answer_with(data, is_large=True, headers={"ETag": f'"{draft.revision}"'})
