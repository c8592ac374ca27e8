"""Panels in use, over HTTP: what people are shown, and what they run, stop and say."""

from __future__ import annotations

from collections.abc import AsyncIterator

from pydantic import Field, JsonValue

from tavern_host import HttpRequest, HttpResponse, PluginContext
from tavern_host.contracts.http import ServerEvent
from tavern_host.contracts.wire import Model
from tavern_panels.following import follow
from tavern_panels.questions import PanelAnswer
from tavern_panels.questions import answer as answer_question
from tavern_panels.running import PanelInUse
from tavern_panels.shown import shown_panel
from tavern_panels.web import visible


class PanelInputs(Model):
    """The body of `POST …/elements/{element}/runs`: values by input. What is left out has the panel's value, or the
    workflow's default."""

    inputs: dict[str, JsonValue] = Field(default_factory=dict)


class PanelSaid(Model):
    """The body of `POST …/elements/{element}/messages`. `conversation` is the number of one's own conversation."""

    message: str = Field(pattern=r"\S", max_length=1 << 20)
    conversation: int = Field(default=1, ge=1, le=1_000_000)


class ConversationQuery(Model):
    """The query of `GET …/elements/{element}/messages`."""

    conversation: int = Field(default=1, ge=1, le=1_000_000)


async def show_panel(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/panels/{id}/shown`."""
    panel_id, stored = await visible(request, context)
    shown = await shown_panel(panel_id, stored, context)
    return HttpResponse(data=shown.to_json())


async def start_run(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/panels/{id}/elements/{element}/runs`: the run that has begun."""
    panel, body = await _panel(request, context), await request.body_as(PanelInputs)
    run = await panel.start(request.parameters["element"], body.inputs)
    return HttpResponse(status=202, data=(await panel.run(run)).to_json())


async def get_run(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/panels/{id}/runs/{run}`: one's own run as it stands; large values are left out."""
    panel = await _panel(request, context)
    return HttpResponse(data=(await panel.run(request.parameters["run"])).to_json())


async def follow_run(request: HttpRequest, context: PluginContext) -> AsyncIterator[ServerEvent]:
    """`GET /api/panels/{id}/runs/{run}/events`: one's own run as it happens."""
    panel, run = await _panel(request, context), request.parameters["run"]
    await panel.run(run)
    return follow(panel, run, context)


async def get_output(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/panels/{id}/runs/{run}/outputs/{key}`: an output as a stream, or ranges of it."""
    panel = await _panel(request, context)
    return HttpResponse(blob=await panel.output(request.parameters["run"], request.parameters["key"]))


async def stop_run(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/panels/{id}/runs/{run}/stop`."""
    panel = await _panel(request, context)
    return HttpResponse(data=(await panel.stop(request.parameters["run"])).to_json())


async def answer(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/panels/{id}/runs/{run}/answers`: the run after what it asked was answered."""
    panel, body = await _panel(request, context), await request.body_as(PanelAnswer)
    run = await panel.run(request.parameters["run"])
    await answer_question(run.id, body, request.call, context)
    return HttpResponse(data=(await panel.run(run.id)).to_json())


async def get_messages(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`GET /api/panels/{id}/elements/{element}/messages`: what was said in one's own conversation."""
    panel, asked = await _panel(request, context), request.read_query(ConversationQuery)
    found = await panel.messages(request.parameters["element"], asked.conversation)
    return HttpResponse(data=[one.to_json() for one in found])


async def say(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """`POST /api/panels/{id}/elements/{element}/messages`: the run of the agent that has begun."""
    panel, body = await _panel(request, context), await request.body_as(PanelSaid)
    run = await panel.say(request.parameters["element"], body.message, body.conversation)
    return HttpResponse(status=202, data=(await panel.run(run)).to_json())


async def _panel(request: HttpRequest, context: PluginContext) -> PanelInUse:
    panel_id, stored = await visible(request, context)
    return PanelInUse(panel_id, stored, request.call, context)
