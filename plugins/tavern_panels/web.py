"""The documents of panels over HTTP. ETags are hashes of the content, and a change must say which one it is meant for.

Who may not change panels is shown those that are published, and no others.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from tavern_host import HttpRequest, HttpResponse, PluginContext
from tavern_host.contracts.accounts import ACCOUNTS
from tavern_host.contracts.errors import InvalidInput, NotFound
from tavern_host.contracts.wire import Model
from tavern_host.sdk.conditions import conditional, expected
from tavern_panels import State
from tavern_panels.api.names import new_id
from tavern_panels.api.panels import MAX_PANEL, PANEL_MANAGER, Panel, PanelFile
from tavern_panels.api.redaction import masked_panel
from tavern_panels.drafting import drafted
from tavern_panels.files import StoredPanel
from tavern_panels.service import path_of, stored_revision

CHANGES = "/api/panels/{id}"
"""The route by which panels are changed: who may use it sees those too that are not published."""


class NewPanel(Model):
    """The body of `POST /api/panels`: what stands on a new panel. Without an `id` it is made of the name."""

    id: str = Field(default="", max_length=80)
    name: str = Field(default="", max_length=200)
    description: str = Field(default="", max_length=5000)
    workflows: list[str] = Field(default_factory=list, max_length=20)
    agents: list[str] = Field(default_factory=list, max_length=20)


async def may_change(request: HttpRequest, context: PluginContext) -> bool:
    """Return whether who asks may change panels."""
    admission = request.call.admission
    if admission is None:  # the operator
        return True
    identity = await context.services.get(ACCOUNTS).identity(admission.user)
    return identity.may("create", CHANGES, context.project.id)


async def visible(request: HttpRequest, context: PluginContext) -> tuple[str, StoredPanel]:
    """Return the id of a request's panel, and the panel. Raises `NotFound`, also for one that is not published where
    who asks may not change it."""
    panel_id = request.parameters["id"]
    files = await context.own(State).folder.now()
    if await may_change(request, context):
        return panel_id, files.get(panel_id)
    stored = files.panels.get(panel_id)
    if stored is None or not stored.panel.published:
        raise NotFound(f"there is no panel {panel_id!r:.100} for you; ask somebody who makes panels to publish it")
    return panel_id, stored


async def list_panels(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/panels`."""
    panels = await context.services.get(PANEL_MANAGER).list_panels()
    sees_all = await may_change(request, context)
    return HttpResponse(data=[one.to_json() for one in panels if sees_all or one.published])


async def create_panel(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/panels`: a new panel with an element for each workflow and agent that is named."""
    body, manager = request.read(NewPanel), context.services.get(PANEL_MANAGER)
    document = await drafted(context, body.name, body.workflows, body.agents, body.description)
    known = [one.id for one in await manager.list_panels()]
    panel_id = body.id or new_id(str(document["name"]), known)
    saving = manager.save(panel_id, document, expected_revision="", call=request.call)
    return _answer(await saving, status=201, headers={"Location": f"{request.base}/api/panels/{panel_id}"})


async def get_schema(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/panels/schema`: the JSON Schema of panels."""
    return HttpResponse(data=panel_schema())


async def check_panels(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/panels-check`: what is wrong with the panels."""
    found = await context.services.get(PANEL_MANAGER).check()
    return HttpResponse(data=[problem.to_json() for problem in found])


async def preview_panel(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/panels-preview`: a document as people would be shown it; nothing is saved."""
    document: Any = request.json_body()
    if not isinstance(document, dict):
        raise InvalidInput("the panel cannot be used: the body is no JSON object")
    return HttpResponse(data=(await context.services.get(PANEL_MANAGER).preview(document)).to_json())


async def get_panel(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/panels/{id}`: the panel as its file has it; who may not change it is shown no secrets in it."""
    panel_id, stored = await visible(request, context)
    document = stored.document if request.may_create else masked_panel(stored.document)
    return _answer(PanelFile(id=panel_id, revision=stored.revision, document=document))


async def save_panel(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`PUT /api/panels/{id}`: the whole panel; 201 where there was none."""
    panel_id, manager = request.parameters["id"], context.services.get(PANEL_MANAGER)
    if len(request.body) > 2 * MAX_PANEL:
        raise InvalidInput(f"the panel is larger than {MAX_PANEL // 1024} KiB")
    document: Any = request.json_body()
    if not isinstance(document, dict):
        raise InvalidInput("the panel cannot be used: the body is no JSON object")
    if problems := await manager.validate(document):
        raise InvalidInput(f"the panel cannot be used: {'; '.join(problems)}", problems=problems)
    before = stored_revision(path_of(panel_id, context.project.root))
    expected(request, before, f"the panel {panel_id!r}")
    saving = manager.save(panel_id, document, expected_revision=before, call=request.call)
    return _answer(await conditional(saving), status=200 if before else 201)


async def delete_panel(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`DELETE /api/panels/{id}`: its file; the runs that were begun in it stay."""
    panel_id, manager = request.parameters["id"], context.services.get(PANEL_MANAGER)
    before = stored_revision(path_of(panel_id, context.project.root))
    expected(request, before, f"the panel {panel_id!r}")
    await conditional(manager.delete(panel_id, expected_revision=before, call=request.call))
    return HttpResponse(data={"success": True, "message": f"the panel {panel_id} is deleted"})


def panel_schema() -> dict[str, Any]:
    """Return the JSON Schema of panels, for editors."""
    schema = Panel.model_json_schema()
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Panel"}
    return {**head, "properties": {"$schema": {"type": "string"}, **schema["properties"]}}


def _answer(panel: PanelFile, *, status: int = 200, headers: dict[str, str] | None = None) -> HttpResponse:
    tag = {"ETag": f'"{panel.revision}"', "X-Panel-Id": panel.id} | (headers or {})
    return HttpResponse(status=status, data=panel.document, headers=tag)
