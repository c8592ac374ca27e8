"""Who answers a request: a language model, an agent or a workflow, each whole or piece by piece in the terms of a
language model's answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Protocol

from tavern_agents.api.agents import AGENT_RUNTIME, AgentReply, AgentRequest, AgentRun
from tavern_agents.api.listening import answered
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.documents import LARGE_TEXT, to_thread_if_large
from tavern_host.contracts.errors import PluginFailure
from tavern_llm.api.llm import LLM, ChatImage, ChatMessage, LlmChunk, LlmRequest, LlmResponse, LlmUsage
from tavern_openai.offered import require_offered
from tavern_openai.reading import Asked, picture_of, refuse_tools, require_text
from tavern_openai.workflows import WorkflowTarget


class Target(Protocol):
    """Answers one request."""

    async def whole(self) -> LlmResponse:
        """Return the answer; cancelling ends the work on it."""

    def stream(self) -> AsyncIterator[LlmChunk]:
        """Yield the answer as it comes, the whole of it last; closing ends the work on it."""


async def target_of(asked: Asked, context: PluginContext, call: CallContext) -> Target:
    """Return who answers a request. Raises `NotFound`, and `InvalidInput` for what it does not take."""
    kind, name = await require_offered(context, asked.model)
    if kind == "agent":
        return AgentTarget(asked, name, context, call)
    if kind == "workflow":
        return WorkflowTarget(asked, name, context, call)
    return ModelTarget(asked, name, context, call)


class ModelTarget:
    """A language model, with the tools of the client."""

    def __init__(self, asked: Asked, name: str, context: PluginContext, call: CallContext) -> None:
        self._llm, self._call = context.services.get(LLM), call
        self._request = LlmRequest(
            messages=asked.messages,
            model=name,
            tools=asked.tools,
            tool_choice=asked.tool_choice,
            response_schema=asked.schema,
            parameters=asked.parameters,
        )

    async def whole(self) -> LlmResponse:
        return await self._llm.complete(self._request, call=self._call)

    async def stream(self) -> AsyncIterator[LlmChunk]:
        chunks = self._llm.stream(self._request, call=self._call)
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            if (close := getattr(chunks, "aclose", None)) is not None:
                await close()


class AgentTarget:
    """An agent, with its own tools. It continues the conversation that the request names; else what was said before
    comes with the request."""

    def __init__(self, asked: Asked, profile: str, context: PluginContext, call: CallContext) -> None:
        what = f"the agent {profile!r}"
        refuse_tools(asked, what)
        self._context, self._call, self._profile = context, call, profile
        self._runtime = context.services.get(AGENT_RUNTIME)
        *self._before, self._last = asked.messages
        self._text = require_text(self._last, with_images=True)
        conversation = asked.conversation
        if conversation is None and asked.user is not None and all(one.role != "assistant" for one in self._before):
            whose = json.dumps([str(call.principal), profile, asked.user])
            conversation = f"openai-{sha256(whose.encode()).hexdigest()[:32]}"
        self._conversation = conversation

    async def _request(self) -> AgentRequest:
        """Return the request; images that came with it are Blobs, which the conversation holds."""
        return AgentRequest(
            profile_id=self._profile,
            message=self._text,
            images=list(await self._kept(self._last)),
            conversation_id=self._conversation,
            history=[one.model_copy(update={"images": await self._kept(one)}) for one in self._before],
        )

    async def _kept(self, message: ChatMessage) -> tuple[ChatImage, ...]:
        found = []
        for image in message.images:
            picture = await to_thread_if_large(len(image.url or "") > LARGE_TEXT, picture_of, image)
            kept = None if picture is None else await self._context.blobs.put(picture[1], picture[0])
            found.append(image if kept is None else ChatImage(blob=kept))
        return tuple(found)

    async def whole(self) -> LlmResponse:
        run_id = (await self._started()).id
        try:
            return self._answer(await self._runtime.wait(run_id))
        except asyncio.CancelledError:
            await self._left(run_id)
            raise

    async def stream(self) -> AsyncIterator[LlmChunk]:
        run_id, is_over = "", False
        pieces = answered(self._context, self._started)
        try:
            async for piece in pieces:
                if isinstance(piece, AgentRun):
                    run_id = piece.id
                elif isinstance(piece, AgentReply):
                    is_over = True
                    yield LlmChunk(response=self._answer(piece))
                else:
                    yield piece
        finally:
            await pieces.aclose()
            if run_id and not is_over:
                await self._left(run_id)

    async def _started(self) -> AgentRun:
        return await self._runtime.start(await self._request(), call=self._call)

    async def _left(self, run_id: str) -> None:
        """End a run that nobody waits for any more; one that the end of the host cuts off is left to the next."""
        if not self._context.is_draining():
            await self._runtime.interrupt(run_id, call=self._call)

    def _answer(self, reply: AgentReply) -> LlmResponse:
        """Return a reply as an answer. Raises `PluginFailure` where there is none."""
        if reply.outcome not in ("reply", "limit"):
            raise PluginFailure(f"the agent {self._profile!r} ended without a reply: {reply.error or reply.outcome}")
        used = reply.usage
        return LlmResponse(
            text=reply.text,
            model=self._profile,
            finish_reason="stop" if reply.outcome == "reply" else "length",
            usage=LlmUsage(prompt_tokens=used.prompt_tokens, completion_tokens=used.completion_tokens),
            response_id=reply.agent_run_id,
        )
