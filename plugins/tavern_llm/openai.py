"""The adapter `openai`: a model of a server that speaks OpenAI's chat completions."""

from __future__ import annotations

from pydantic import JsonValue, ValidationError

from tavern_host.context import PluginContext
from tavern_host.contracts.errors import Misconfigured
from tavern_llm.chat_client import ChatClient
from tavern_llm.openai_options import OpenAiOptions
from tavern_llm.options import options_problem


class OpenAiAdapter(ChatClient):
    """One model of one server. Errors are `PluginFailure`, retryable where trying again may help."""

    def __init__(self, options: dict[str, JsonValue], context: PluginContext) -> None:
        try:
            checked = OpenAiOptions.model_validate(options)
        except ValidationError as error:
            raise Misconfigured(options_problem("openai", error)) from None
        checked.key()
        super().__init__(checked, context.http, context.blobs.read)

    async def close(self) -> None:
        """Hold nothing: the session is the plugin's."""
