"""The HTTP routes of agents; each hands over to the service and shapes its answer."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from tavern_agents.api.agents import AgentLimits, AgentRequest, AgentRunFilter
from tavern_agents.api.answers import AfterQuery, MemoryQuery
from tavern_agents.api.memory import MemoryChange
from tavern_agents.api.recordings import ReplayOptions
from tavern_agents.profile_checks import profile_schema
from tavern_host import AGENT_RUNTIME, HttpRequest, HttpResponse, PluginContext
from tavern_host.contracts.documents import read_model, to_thread_if_large
from tavern_host.contracts.wire import Model
from tavern_llm.api.llm import ChatImage, ChatMessage


class RunBody(Model):
    """The body of `POST /api/agents/{id}/run`, and of `…/runs`, which answers at once."""

    model_config = ConfigDict(str_max_length=1 << 20)

    message: str
    images: list[ChatImage] = Field(default_factory=list)
    conversation_id: str | None = None
    branch: str | None = None
    parent_id: str | None = None
    head: str | None = None
    history: list[ChatMessage] = Field(default_factory=list)
    max_steps: int | None = Field(default=None, ge=1, le=1000)
    limits: AgentLimits | None = None


class MemoryBody(MemoryChange):
    """The body of `POST /api/agents/{id}/memory`."""

    conversation_id: str
    branch: str | None = None
    revision: int | None = None


class SayBody(Model):
    """The body of `POST /api/agent-runs/{run}/messages`."""

    message: str = Field(max_length=1 << 20)


async def list_agents(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the agents that can be used."""
    agents = await context.services.get(AGENT_RUNTIME).list_agents()
    return HttpResponse(data=[agent.to_json() for agent in agents])


async def get_schema(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the JSON Schema of profiles."""
    return HttpResponse(data=profile_schema())


async def check_agents(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with what is wrong with the profiles."""
    return _list(await context.services.get(AGENT_RUNTIME).check())


async def run_agent(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with an `AgentReply` when the agent is done."""
    asked = await to_thread_if_large(request.is_large, _asked, request)
    reply = await context.services.get(AGENT_RUNTIME).run(asked, call=request.call)
    return HttpResponse(data=reply.to_json())


async def start_run(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the `AgentRun` that has begun."""
    asked = await to_thread_if_large(request.is_large, _asked, request)
    run = await context.services.get(AGENT_RUNTIME).start(asked, call=request.call)
    return HttpResponse(status=202, data=run.to_json())


async def get_memory(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with what an agent remembers: `?conversationId=&branch=&leaf=`."""
    asked = request.read_query(MemoryQuery)
    found = await context.services.get(AGENT_RUNTIME).memory(
        request.parameters["id"], asked.conversation_id, branch=asked.branch or None, leaf=asked.leaf or None
    )
    return HttpResponse(data=found.to_json())


async def change_memory(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Change what an agent remembers."""
    body = request.read(MemoryBody)
    found = await context.services.get(AGENT_RUNTIME).change_memory(
        request.parameters["id"],
        body.conversation_id,
        MemoryChange(state=body.state, goals=body.goals, note=body.note),
        branch=body.branch,
        revision=body.revision,
        call=request.call,
    )
    return HttpResponse(data=found.to_json())


async def list_runs(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with runs, newest first: `?profileId=&conversationId=&statuses=&limit=&offset=`."""
    query: dict[str, Any] = {key: value for key, value in request.query.items() if key != "statuses"}
    if request.query.get("statuses"):
        query["statuses"] = request.query["statuses"].split(",")
    asked = read_model(AgentRunFilter, query, "the query")
    return _list(await context.services.get(AGENT_RUNTIME).runs(asked))


async def get_run(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with a run as it stands."""
    return HttpResponse(data=(await context.services.get(AGENT_RUNTIME).get_run(_run(request))).to_json())


async def get_trace(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the kept steps of a run, `?after=` a number."""
    after = request.read_query(AfterQuery).after
    return _list(await context.services.get(AGENT_RUNTIME).trace(_run(request), after=after))


async def get_recording(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the recording of a run."""
    recording = await context.services.get(AGENT_RUNTIME).recording(request.parameters["run"])
    return HttpResponse(data=recording.to_json())


async def replay_run(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with what came of playing a run again; the body are `ReplayOptions`."""
    runtime = context.services.get(AGENT_RUNTIME)
    options = read_model(ReplayOptions, request.json_body() if request.body else {}, "the body")
    played = await runtime.replay(await runtime.recording(request.parameters["run"]), options, call=request.call)
    return HttpResponse(data=played.to_json())


async def say(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Say something to an agent at work."""
    body = read_model(SayBody, request.json_body(), "the body is not {message}")
    run = await context.services.get(AGENT_RUNTIME).send(_run(request), body.message, call=request.call)
    return HttpResponse(status=202, data=run.to_json())


async def interrupt_run(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Stop a run."""
    run = await context.services.get(AGENT_RUNTIME).interrupt(_run(request), call=request.call)
    return HttpResponse(data=run.to_json())


async def pause_run(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Let a run stop before its next deliberation."""
    run = await context.services.get(AGENT_RUNTIME).pause(_run(request), call=request.call)
    return HttpResponse(data=run.to_json())


async def resume_run(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Let a run resume."""
    run = await context.services.get(AGENT_RUNTIME).resume(_run(request), call=request.call)
    return HttpResponse(data=run.to_json())


def _run(request: HttpRequest) -> str:
    return request.parameters["run"]


def _asked(request: HttpRequest) -> AgentRequest:
    body = read_model(
        RunBody, request.json_body(), "the body is not {message, images?, conversationId?, history?, maxSteps?}"
    )
    limits = body.limits
    if body.max_steps is not None:
        limits = (limits or AgentLimits()).model_copy(update={"steps": body.max_steps})
    fields = dict(body) | {"profile_id": request.parameters["id"], "limits": limits}
    del fields["max_steps"]
    return read_model(AgentRequest, fields, "the body")


def _list(found: list[Any]) -> HttpResponse:
    return HttpResponse(data=[one.to_json() for one in found])
