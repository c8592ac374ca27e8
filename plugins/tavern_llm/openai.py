"""The adapter `openai`: a model of a server that speaks OpenAI's chat completions."""

from __future__ import annotations

from collections.abc import AsyncIterator

from pydantic import JsonValue, ValidationError

from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import Misconfigured
from tavern_host.contracts.llm import LlmChunk, LlmEmbeddings, LlmRequest, LlmResponse
from tavern_llm.chat_client import ChatClient
from tavern_llm.openai_options import OpenAiOptions
from tavern_llm.options import options_problem


class OpenAiAdapter:
    """One model of one server. Errors are `PluginFailure`, retryable where trying again may help."""

    def __init__(self, options: dict[str, JsonValue], context: PluginContext) -> None:
        try:
            given = OpenAiOptions.model_validate(options)
        except ValidationError as error:
            raise Misconfigured(options_problem("openai", error)) from None
        given.key()
        self._client = ChatClient(given, context.http.session, context.blobs.read)

    async def complete(self, request: LlmRequest, call: CallContext) -> LlmResponse:
        """Return the whole answer."""
        return await self._client.complete(request)

    def stream(self, request: LlmRequest, call: CallContext) -> AsyncIterator[LlmChunk]:
        """Yield the answer piece by piece."""
        return self._client.stream(request)

    async def embed(self, texts: list[str], call: CallContext) -> LlmEmbeddings:
        """Return the vector of each text."""
        return await self._client.embed(texts)

    async def list_models(self, call: CallContext) -> list[str]:
        """Return the names of the models that the server has."""
        return await self._client.list_models()

    async def close(self) -> None:
        """Hold nothing: the session is the plugin's."""
