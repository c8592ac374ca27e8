"""Who answers a request: a language model, an agent or a workflow, each whole or piece by piece in the terms of a
language model's answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Protocol

from tavern_agents.api.agents import AGENT_RUNTIME, AgentReply, AgentRequest, AgentTrace
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.documents import LARGE_TEXT, to_thread_if_large
from tavern_host.contracts.errors import PluginFailure
from tavern_host.contracts.events import Event
from tavern_llm.api.llm import LLM, ChatImage, ChatMessage, LlmChunk, LlmRequest, LlmResponse, LlmUsage
from tavern_openai.offered import require_offered
from tavern_openai.reading import Asked, picture_of, refuse_tools, require_text
from tavern_openai.workflows import WorkflowTarget

_TRACES = "AGENT_TRACE"
_TOLD = frozenset({"fragment", "thinking", "thought", "awaiting_approval"})
"""The steps of an agent's work that a client hears of."""


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
        run_id = (await self._runtime.start(await self._request(), call=self._call)).id
        try:
            return self._answer(await self._runtime.wait(run_id))
        except asyncio.CancelledError:
            await self._left(run_id)
            raise

    async def stream(self) -> AsyncIterator[LlmChunk]:
        traces = self._context.events.subscribe(_TRACES)
        waiting: asyncio.Task[AgentReply] | None = None
        run_id = ""
        try:
            run_id = (await self._runtime.start(await self._request(), call=self._call)).id
            waiting = asyncio.create_task(self._runtime.wait(run_id), name=f"wait for {run_id}")
            waiting.add_done_callback(lambda _: asyncio.ensure_future(traces.close()))
            said = ""
            async for event in traces:
                if not isinstance(event, Event) or event.payload.get("agentRunId") != run_id:
                    continue
                if event.payload.get("kind") not in _TOLD:
                    continue
                step = AgentTrace.model_validate(event.payload)
                for chunk in _chunks(step, said):
                    yield chunk
                said = _said(step, said)
            answer = self._answer(await waiting)
            if not answer.text.startswith(said.strip()):  # pieces were lost, or are no part of the reply
                yield LlmChunk(text=f"\n\n{answer.text}")
            elif rest := answer.text.removeprefix(said.strip()):
                yield LlmChunk(text=rest)
            yield LlmChunk(response=answer)
        finally:
            await traces.close()
            if waiting is not None and not waiting.done():
                waiting.cancel()
                await asyncio.wait([waiting])
                await self._left(run_id)

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


def _chunks(step: AgentTrace, said: str) -> list[LlmChunk]:
    """Return what a client gets of a step: what the agent says, and as thoughts what it thinks and waits for."""
    if step.kind == "fragment":
        restarted = step.data.get("restarted")
        return [LlmChunk(restarted=str(restarted)) if restarted else LlmChunk(text=step.text)]
    if step.kind == "thinking" and said:
        return [LlmChunk(text="\n\n")]
    if _is_said(step, said):
        return [LlmChunk(text=step.text)]
    is_thought = step.kind == "awaiting_approval" or step.data.get("isReasoning")
    return [LlmChunk(reasoning=f"{step.text}\n")] if is_thought else []


def _said(step: AgentTrace, said: str) -> str:
    """Return what the agent has said since it began to deliberate, after a step."""
    if step.kind == "thinking" or step.data.get("restarted"):
        return ""
    return said + step.text if step.kind == "fragment" or _is_said(step, said) else said


def _is_said(step: AgentTrace, said: str) -> bool:
    """Return whether a step is what an agent says beside its calls, of which no piece came before."""
    return step.kind == "thought" and not step.data.get("isReasoning") and not said
