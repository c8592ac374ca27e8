"""The adapters `openai`, `openai-responses`, `anthropic` and `gemini`: a model of a server that speaks OpenAI's chat
completions or Responses, Anthropic's Messages or Gemini's generateContent."""

from __future__ import annotations

from typing import ClassVar

from pydantic import JsonValue, ValidationError

from tavern_host.context import PluginContext
from tavern_host.contracts.errors import Misconfigured
from tavern_llm.anthropic_wire import ANTHROPIC
from tavern_llm.chat_client import ChatClient
from tavern_llm.gemini_wire import GEMINI
from tavern_llm.openai_options import OpenAiOptions
from tavern_llm.options import options_problem
from tavern_llm.responses_wire import RESPONSES
from tavern_llm.wires import CHAT, Wire


class OpenAiAdapter(ChatClient):
    """One model of one server. Errors are `PluginFailure`, retryable where trying again may help."""

    WIRE: ClassVar[Wire] = CHAT

    def __init__(self, options: dict[str, JsonValue], context: PluginContext) -> None:
        try:
            checked = OpenAiOptions.model_validate({"base_url": self.WIRE.host, **options})
        except ValidationError as error:
            raise Misconfigured(options_problem(self.WIRE.name, error)) from None
        checked.key()
        super().__init__(checked, context.http, context.blobs.read, self.WIRE)

    async def close(self) -> None:
        """Hold nothing: the session is the plugin's."""


class ResponsesAdapter(OpenAiAdapter):
    """One model of one server that speaks OpenAI's Responses."""

    WIRE = RESPONSES


class AnthropicAdapter(OpenAiAdapter):
    """One model of one server that speaks Anthropic's Messages."""

    WIRE = ANTHROPIC


class GeminiAdapter(OpenAiAdapter):
    """One model of one server that speaks Gemini's generateContent."""

    WIRE = GEMINI
