"""The `llm` service with its adapters (`openai`, `openai-responses`, `anthropic`, `gemini`, `scripted`), the node
`core:LlmApiRequest`, and `tavern models`.

Which models there are is a setting; this plugin holds no prompts and no conversation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tavern_host import CommandInfo, PluginContext, RouteInfo, ServiceInfo, Veto, hookimpl
from tavern_host.contracts.metrics import Figure, Tally
from tavern_host.contracts.settings import SettingsChange

if TYPE_CHECKING:
    from tavern_llm.api.llm import LlmAdapterInfo


class State:
    """What the parts of this plugin share: what it counts."""

    def __init__(self, context: PluginContext) -> None:
        self.requests = Tally("llm_requests", "Requests to models.", "model", "status")
        self.tokens = Tally("llm_tokens", "Tokens of prompts and of answers.", "model", "kind")


@hookimpl
def tavern_register_services() -> list[ServiceInfo]:
    """Return the `llm` service."""
    return [ServiceInfo(service="llm", handler="tavern_llm.service:LlmService")]


@hookimpl
def tavern_register_llm_adapters() -> list[LlmAdapterInfo]:
    """Return the adapters that come with the host."""
    from tavern_llm.api.llm import LlmAdapterInfo

    return [
        LlmAdapterInfo(
            name="openai",
            handler="tavern_llm.openai:OpenAiAdapter",
            description="Any server that speaks OpenAI's chat completions over HTTP.",
            network=True,
        ),
        LlmAdapterInfo(
            name="openai-responses",
            handler="tavern_llm.openai:ResponsesAdapter",
            description="Any server that speaks OpenAI's Responses over HTTP.",
            network=True,
        ),
        LlmAdapterInfo(
            name="anthropic",
            handler="tavern_llm.openai:AnthropicAdapter",
            description="Any server that speaks Anthropic's Messages over HTTP.",
            network=True,
        ),
        LlmAdapterInfo(
            name="gemini",
            handler="tavern_llm.openai:GeminiAdapter",
            description="Any server that speaks Gemini's generateContent over HTTP.",
            network=True,
        ),
        LlmAdapterInfo(
            name="scripted",
            handler="tavern_llm.scripted:ScriptedAdapter",
            description="Replies from a YAML file of the project, chosen by what was said.",
            network=False,
        ),
    ]


@hookimpl
async def tavern_collect_figures(context: PluginContext) -> list[Figure]:
    """Return how often models were asked, and the tokens that they used."""
    state = context.own(State)
    return [*state.requests.figures(), *state.tokens.figures()]


@hookimpl
def tavern_register_routes() -> list[RouteInfo]:
    """Return the routes of the models."""
    rows = (
        ("GET", "/api/models", "list_models", "The language models."),
        ("POST", "/api/models", "add", "Set up a language model: find it at its server, try it, save it."),
        ("POST", "/api/models/test", "test", "Ask a model a short question."),
        ("PUT", "/api/models/default", "set_default", "Choose the model that is asked where none is named."),
        ("DELETE", "/api/models/{name}", "remove", "Forget a model that was set up here, with its key."),
    )
    types = {
        "list_models": {"answer": "api.answers:Models"},
        "add": {"body": "NewModel", "answer": "ModelAnswer", "access": "operate"},
        "test": {"body": "ModelName", "answer": "ModelAnswer"},
        "set_default": {"body": "ModelName", "answer": "ModelName", "access": "operate"},
        "remove": {"answer": "ModelName", "access": "operate"},
    }
    return [RouteInfo.of_module("tavern_llm.web", *row, types[row[2]]) for row in rows]


@hookimpl
def tavern_register_commands() -> list[CommandInfo]:
    """Return `tavern models …`."""
    from tavern_llm.descriptors import commands

    return commands()


@hookimpl
async def tavern_before_save_settings(change: SettingsChange, context: PluginContext) -> Veto | None:
    """Refuse models of adapters that are not there, and a default model that is not set up."""
    if change.plugin != context.plugin:
        return None
    from tavern_llm.service import LlmService

    reason = await LlmService(context).why_not(change.values)
    return Veto(reason=reason) if reason is not None else None
