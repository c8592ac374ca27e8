"""The project's workflows over HTTP.

ETags are revisions (RFC 9110 §8.8.3), and a change of what is there must say which one it is meant for, so that of two
editors none overwrites what the other saved.

The `id` of a document here is that of the workflow; one that stands in its file stays as it is.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from urllib.parse import quote

from pydantic import Field, JsonValue

from tavern_host import WORKFLOW_MANAGER, HttpRequest, HttpResponse, NotFound, PluginContext
from tavern_host.contracts.documents import merged, read_json_object, to_thread_if_large
from tavern_host.contracts.errors import Conflict, InvalidInput
from tavern_host.contracts.http import answer_with
from tavern_host.contracts.languages import say
from tavern_host.contracts.wire import Model
from tavern_host.contracts.workflows import Workflow
from tavern_host.sdk.conditions import conditional, expected
from tavern_workflows.api.redaction import masked_document
from tavern_workflows.api.workflows import LayoutSize, StoredWorkflow, WorkflowManager, WorkflowProblem
from tavern_workflows.store import MAX_ID, document_of


class Checked(Model):
    """What is wrong with a workflow; warnings alone do not keep it from running."""

    ok: bool
    problems: list[WorkflowProblem] = Field(default_factory=list)


class Unplaced(Model):
    """A workflow whose nodes are to be placed, but those to `keep`; `sizes` of nodes are by id, in pixels."""

    workflow: dict[str, JsonValue]
    sizes: dict[str, LayoutSize] = Field(default_factory=dict)
    keep: list[str] = Field(default_factory=list)


async def list_all(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/workflows`: the project's, and those of plugins."""
    found = await context.services.get(WORKFLOW_MANAGER).list_workflows()
    return HttpResponse(data=[workflow.to_json() for workflow in found])


async def show(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/workflows/{workflowId}`: the document; the host answers 304 where the client has this revision."""
    return await _answer(request, await context.services.get(WORKFLOW_MANAGER).get(request.parameters["workflowId"]))


async def create(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/workflows`: a new workflow under its `id`, or under one made of its name."""
    manager = context.services.get(WORKFLOW_MANAGER)
    workflow = await manager.parse(await _document(request))
    if workflow.id is not None:
        saved = await manager.save(workflow.id, workflow, expected_revision="", call=request.call)
        del workflow  # large ones are not all freed in one step of the loop
        return await _answer(request, saved, is_new=True)
    async for candidate in free_ids(workflow.name, manager):
        try:
            saved = await manager.save(candidate, workflow, expected_revision="", call=request.call)
        except Conflict:  # somebody was quicker, or a file has the name that holds no workflow
            continue
        return await _answer(request, saved, is_new=True)
    raise Conflict("no id could be found for the workflow; give it one")


async def replace(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`PUT /api/workflows/{workflowId}`: the whole document; 201 where there was none."""
    manager, workflow_id = context.services.get(WORKFLOW_MANAGER), request.parameters["workflowId"]
    stored = await _stored(manager, workflow_id)
    is_new = stored is None
    revision = expected(request, stored.revision if stored is not None else "", f"the workflow {workflow_id!r}")
    document = keep_id(await _document(request), stored)
    del stored  # large ones are not all freed in one step of the loop
    workflow = await manager.parse(document)
    del document
    saved = await conditional(manager.save(workflow_id, workflow, expected_revision=revision, call=request.call))
    del workflow
    return await _answer(request, saved, is_new=is_new)


async def change(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`PATCH /api/workflows/{workflowId}`: a JSON merge patch (RFC 7396); another `id` moves the workflow."""
    manager, workflow_id = context.services.get(WORKFLOW_MANAGER), request.parameters["workflowId"]
    stored = await manager.get(workflow_id)
    revision = expected(request, stored.revision, f"the workflow {stored.id!r}")
    patch = await _document(request)
    new_id = patch.pop("id", stored.id)
    if not isinstance(new_id, str):
        raise InvalidInput("the body: $.id: Input should be a text")
    document = await asyncio.to_thread(document_of, stored.workflow)
    workflow = await manager.parse(_object(merged(document, patch)))
    del document  # large ones are not all freed in one step of the loop
    if new_id != stored.id:
        moving = manager.move(stored.id, new_id, expected_revision=revision, call=request.call)
        stored = await conditional(moving)
    if patch:
        saving = manager.save(stored.id, workflow, expected_revision=stored.revision, call=request.call)
        stored = await conditional(saving)
    del workflow
    return await _answer(request, stored)


async def delete(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`DELETE /api/workflows/{workflowId}`."""
    manager = context.services.get(WORKFLOW_MANAGER)
    stored = await manager.get(request.parameters["workflowId"])
    revision = expected(request, stored.revision, f"the workflow {stored.id!r}")
    await conditional(manager.delete(stored.id, expected_revision=revision, call=request.call))
    return HttpResponse(data={"success": True, "message": f"the workflow {stored.id} is deleted"})


async def check(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/workflows/check`: everything that is wrong with the document in the body."""
    problems = await context.services.get(WORKFLOW_MANAGER).check(await _document(request))
    ok = not any(problem.severity == "error" for problem in problems)
    problems = [problem.model_copy(update={"message": say(problem.message)}) for problem in problems]
    return HttpResponse(data=Checked(ok=ok, problems=problems).to_json())


async def layout(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/layout`: places for the nodes of the document in the body."""
    manager, asked = context.services.get(WORKFLOW_MANAGER), await request.body_as(Unplaced)
    found = await manager.layout(await manager.parse(asked.workflow), sizes=asked.sizes, keep=asked.keep)
    return HttpResponse(data=found.to_json())


async def _document(request: HttpRequest) -> dict[str, JsonValue]:
    return await to_thread_if_large(request.is_large, read_json_object, request.body, "the body")


def _object(value: JsonValue) -> dict[str, JsonValue]:
    assert isinstance(value, dict)
    return value


def keep_id(document: dict[str, JsonValue], stored: StoredWorkflow | None) -> dict[str, JsonValue]:
    """Return a document with the `id` that stands in the file in the place of the workflow's."""
    if stored is None or document.get("id") != stored.id:
        return document
    rest = {key: value for key, value in document.items() if key != "id"}
    return rest if stored.workflow.id is None else {**rest, "id": stored.workflow.id}


async def _stored(manager: WorkflowManager, workflow_id: str) -> StoredWorkflow | None:
    try:
        return await manager.get(workflow_id)
    except NotFound:
        return None


async def _answer(request: HttpRequest, stored: StoredWorkflow, *, is_new: bool = False) -> HttpResponse:
    headers = {"ETag": f'"{stored.revision}"'}
    if not is_new:
        return await answer_document(request, stored.workflow, stored.id, headers=headers)
    of_project = f"{request.base}/api/projects/{request.call.project}"
    headers["Location"] = f"{of_project}/workflows/{quote(stored.id, safe='')}"
    return await answer_document(request, stored.workflow, stored.id, status=201, headers=headers)


async def answer_document(
    request: HttpRequest, workflow: Workflow, workflow_id: str, *, status: int = 200, headers: dict[str, str]
) -> HttpResponse:
    """Return the answer with a workflow's document, as what has this id."""
    return await answer_with(
        lambda: shown(request, workflow, workflow_id), is_large=True, status=status, headers=headers
    )


def shown(request: HttpRequest, workflow: Workflow, workflow_id: str) -> dict[str, JsonValue]:
    """Return a document as who asks may see it: secrets that somebody wrote into it are for who may change it."""
    document = {**document_of(workflow), "id": workflow_id}
    return document if request.may_create else masked_document(document)


async def free_ids(name: str, manager: WorkflowManager) -> AsyncIterator[str]:
    """Yield ids made of a name that no workflow has."""
    taken = {workflow.id for workflow in await manager.list_workflows()}
    base = re.sub(r"[^\w-]+", "-", name).strip("-_").encode()[: MAX_ID - 8].decode(errors="ignore") or "workflow"
    for number in range(1, 1000):
        candidate = base if number == 1 else f"{base}-{number}"
        if candidate not in taken:
            yield candidate
