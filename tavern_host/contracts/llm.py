"""Talking to a language model: requests, answers, and the `llm` service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import ClassVar, Literal, Protocol

from pydantic import Field, JsonValue

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.contributions import ContributionKind
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads
from tavern_host.contracts.wire import Model


class ChatMessage(Model):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    name: str | None = None


class LlmRequest(Model):
    """What is asked of a model. `model` names an entry of the `models` setting; None takes the default.

    `parameters` (`temperature`, `max_tokens` …) go to the adapter as they are.
    """

    messages: list[ChatMessage]
    model: str | None = None
    parameters: dict[str, JsonValue] = Field(default_factory=dict)


class LlmUsage(Model):
    """Tokens used, where the model says."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class LlmResponse(Model):
    """A whole answer. `finish_reason` is the model's own word."""

    text: str
    model: str
    finish_reason: str | None = None
    usage: LlmUsage = Field(default_factory=LlmUsage)


class LlmChunk(Model):
    """A piece of a streamed answer; the last one has `finish_reason` and, where known, `usage`."""

    text: str = ""
    finish_reason: str | None = None
    usage: LlmUsage | None = None


class LlmModelInfo(Model):
    """A model that is set up: its name here, its adapter, and whether it is the default."""

    name: str
    adapter: str
    is_default: bool = False


class LlmAdapter(Protocol):
    """One model behind an adapter."""

    async def complete(self, request: LlmRequest, call: CallContext) -> LlmResponse:
        """Return the whole answer."""

    def stream(self, request: LlmRequest, call: CallContext) -> AsyncIterator[LlmChunk]:
        """Yield the answer piece by piece."""

    async def close(self) -> None:
        """Release connections."""


class LlmAdapterInfo(Model):
    """A way to reach models. `handler` is `module:Class`; the class is opened as `Class(options, context)`.

    An adapter with `network` reaches out of this machine: only the operator may set up models for it.
    """

    KIND: ClassVar[ContributionKind] = ContributionKind(protocol=LlmAdapter)

    name: str
    handler: str
    description: str = ""
    network: bool = True


class Llm(ServiceInterface, name="llm"):
    """Sends requests to the models that are set up."""

    @reads
    async def models(self) -> list[LlmModelInfo]:
        """Return the models that are set up."""

    @acts("llm:complete", "Send prompts to the language models that are set up.")
    async def complete(self, request: LlmRequest, *, call: CallContext | None = None) -> LlmResponse:
        """Send a request to a language model and return its whole answer.

        Raises `NotFound` for a model that is not set up, `Vetoed`, and `PluginFailure` (retryable) where the
        model cannot be reached or answers with an error.
        """

    @acts("llm:complete", "Send prompts to the language models that are set up.")
    def stream(self, request: LlmRequest, *, call: CallContext | None = None) -> AsyncIterator[LlmChunk]:
        """Yield a model's answer piece by piece; errors as in `complete`."""


LLM = ServiceKey(Llm)
