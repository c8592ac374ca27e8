"""The HTTP routes of scenes; each hands over to the service and shapes its answer."""

from __future__ import annotations

from typing import Any

from pydantic import Field, JsonValue

from tavern_host import HttpRequest, HttpResponse, PluginContext
from tavern_host.contracts.wire import Model
from tavern_worlds.api.scenes import SCENE_MANAGER, SceneManager


class SayBody(Model):
    """The body of `POST …/messages`."""

    message: str = Field(default="", max_length=1 << 20)
    name: str = Field(default="User", max_length=100)
    turns: int | None = Field(default=None, ge=0, le=1000)


class EventBody(Model):
    """The body of `POST …/events`."""

    event_type: str
    payload: dict[str, JsonValue] = Field(default_factory=dict)


class WorldBody(Model):
    """The body of `POST …/world`."""

    state: dict[str, JsonValue]
    revision: int | None = None


class NewScene(Model):
    """The body of `POST /api/scenes`: what a scene is called, and the agents that speak in it."""

    name: str = Field(min_length=1, max_length=200)
    agents: list[str] = Field(min_length=1, max_length=100)
    description: str = Field(default="", max_length=20_000)


async def create(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Write a scene of agents."""
    body = request.read(NewScene)
    making = _service(context).create(body.name, body.agents, description=body.description, call=request.call)
    return HttpResponse(status=201, data=(await making).to_json())


async def list_scenes(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the files of scenes."""
    return HttpResponse(data=[one.to_json() for one in await _service(context).list_scenes()])


async def start(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Start a scene."""
    run = await _service(context).start(request.parameters["id"], call=request.call)
    return HttpResponse(status=201, data=run.to_json())


async def list_runs(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the latest runs."""
    return HttpResponse(data=[run.to_json() for run in await _service(context).list_runs()])


async def get_run(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with a run as it stands, its world included."""
    return HttpResponse(data=(await _service(context).get_run(request.parameters["run"])).to_json())


async def say(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Say something to all agents."""
    run = await _service(context).say(request.parameters["run"], **_body(SayBody, request), call=request.call)
    return HttpResponse(status=202, data=run.to_json())


async def publish(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Publish an event."""
    body = _body(EventBody, request)
    woken = await _service(context).publish(**body, scene=request.parameters["run"], call=request.call)
    return HttpResponse(status=202, data={"woken": [*woken]})


async def change_world(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Merge keys into the world."""
    body = _body(WorldBody, request)
    world = await _service(context).update_world(**body, scene=request.parameters["run"], call=request.call)
    return HttpResponse(data=world.to_json())


async def stop(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """End a run."""
    return HttpResponse(data=(await _service(context).stop(request.parameters["run"], call=request.call)).to_json())


def _service(context: PluginContext) -> SceneManager:
    return context.services.get(SCENE_MANAGER)


def _body(model: type[Model], request: HttpRequest) -> dict[str, Any]:
    return dict(request.read(model))
