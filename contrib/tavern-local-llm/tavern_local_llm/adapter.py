"""The adapter: starts the model when it is first asked, and asks it as any OpenAI-compatible server.

It takes no part in the wire, which is the adapter `openai`'s; it only lets a model that is too small for native calls
choose a tool: by the schema that its answer must follow.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from pydantic import ConfigDict, Field, JsonValue, ValidationError

from tavern_host import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import Misconfigured
from tavern_host.contracts.wire import Model
from tavern_llm.api.llm import LlmCallFragment, LlmChunk, LlmRequest, LlmResponse
from tavern_llm.openai import OpenAiAdapter

from .choices import chosen, with_choice
from .process import NAME, ModelProcess

PARAMETERS: dict[str, JsonValue] = {"max_tokens": 256, "temperature": 0}


class LocalOptions(Model):
    """What a `local` model is set up with. `threads`: one is the fastest where cores are few and shared; `context` is
    how many tokens the model takes (at most 8,192); `parameters` are sent with each request."""

    model_config = ConfigDict(alias_generator=None)

    model: str = Field(default=NAME, pattern=f"^{NAME}$")
    threads: int = Field(default=1, ge=1, le=64)
    context: int = Field(default=4096, ge=256, le=8192)
    parameters: dict[str, JsonValue] = Field(default_factory=dict)


class LocalAdapter:
    """The model, whose process ends when the adapter is closed."""

    def __init__(self, options: dict[str, JsonValue], context: PluginContext) -> None:
        try:
            checked = LocalOptions.model_validate(options)
        except ValidationError as error:
            problem = error.errors(include_input=False, include_url=False)[0]
            raise Misconfigured(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None
        self._options = checked
        self._context = context
        self._process = ModelProcess(threads=checked.threads, context=checked.context)
        self._client: tuple[str, OpenAiAdapter] | None = None

    async def complete(self, request: LlmRequest, call: CallContext) -> LlmResponse:
        """Return the whole answer."""
        client = await self._running()
        if not request.tools or request.response_schema is not None:
            return await client.complete(request, call)
        return chosen(await client.complete(with_choice(request), call))

    async def stream(self, request: LlmRequest, call: CallContext) -> AsyncIterator[LlmChunk]:
        """Yield the answer piece by piece; where the model may choose a tool, at once."""
        if not request.tools:
            async for chunk in (await self._running()).stream(request, call):
                yield chunk
            return
        answer = await self.complete(request, call)
        if answer.text:
            yield LlmChunk(text=answer.text)
        for index, made in enumerate(answer.tool_calls):
            fragment = LlmCallFragment(index=index, id=made.id, name=made.name, arguments=made.arguments)
            yield LlmChunk(call=fragment)
        yield LlmChunk(response=answer)

    async def list_models(self, call: CallContext) -> list[str]:
        """Return the one model that there is."""
        return [NAME]

    async def close(self) -> None:
        """End the process."""
        await self._process.close()

    async def _running(self) -> OpenAiAdapter:
        """Return a client of the process, started if it does not run."""
        address, key = await self._process.running()
        if self._client is None or self._client[0] != address:
            options: dict[str, JsonValue] = {
                "base_url": f"{address}/v1",
                "model": NAME,
                "api_key": key,
                "takes_tools": False,
                "timeout": 600,
                "parameters": {**PARAMETERS, **self._options.parameters},
            }
            self._client = address, OpenAiAdapter(options, self._context)
        return self._client[1]
