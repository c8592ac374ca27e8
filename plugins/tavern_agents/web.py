"""The HTTP routes of agents; each hands over to the service and shapes its answer."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from tavern_host import AGENT_RUNTIME, HttpRequest, HttpResponse, PluginContext
from tavern_host.contracts.agents import AgentLimits, AgentRequest
from tavern_host.contracts.documents import read_model
from tavern_host.contracts.llm import ChatMessage
from tavern_host.contracts.wire import Model


class RunBody(Model):
    """The body of `POST /api/agents/{id}/run`."""

    model_config = ConfigDict(str_max_length=1 << 20)

    message: str
    history: list[ChatMessage] = Field(default_factory=list)
    max_steps: int = Field(default=8, ge=1, le=100)


async def list_agents(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the agents that can be used."""
    agents = await context.services.get(AGENT_RUNTIME).list_agents()
    return HttpResponse(data=[agent.to_json() for agent in agents])


async def run_agent(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with an `AgentReply` when the agent is done."""
    body = read_model(RunBody, request.json_body(), "the body is not {message, history?, maxSteps?}")
    asked = AgentRequest(
        profile_id=request.parameters["id"],
        message=body.message,
        history=body.history,
        limits=AgentLimits(steps=body.max_steps),
    )
    reply = await context.services.get(AGENT_RUNTIME).run(asked, call=request.call)
    return HttpResponse(data=reply.to_json())
