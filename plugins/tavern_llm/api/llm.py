"""Talking to a language model: messages, requests, answers, and the `llm` service.

Messages and answers keep the keys of OpenAI's chat completions (`snake_case`), which workflows store and pass on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any, ClassVar, Literal, Protocol, Self

from pydantic import ConfigDict, Field, JsonValue

from tavern_host.contracts.blobs import Blob
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.contributions import ContributionKind, Handler
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads
from tavern_host.contracts.wire import ImmutableJson, Model, SharingModel


class _PublishedModel(Model):
    model_config = ConfigDict(alias_generator=None)


class LlmToolCall(_PublishedModel):
    """A call of a tool in the model's own form. `arguments` is the JSON text that the model wrote, which may be wrong;
    `extra` are fields of the server that it wants back as they were."""

    id: str
    name: str
    arguments: str = "{}"
    extra: dict[str, JsonValue] | None = None


MAX_IMAGE_BYTES = 32 << 20
"""The largest image of a message that is kept as a Blob."""


class ChatImage(_PublishedModel):
    """An image of a message: kept apart as a Blob, or at an address that the server fetches itself."""

    blob: Blob | None = None
    url: str | None = None


class ChatMessage(_PublishedModel):
    """One message of a conversation.

    An assistant's may have `tool_calls`, each answered by a message of the role `tool` with its `tool_call_id`.
    `reasoning` is what the model thought before it answered; `extra` are fields of the server, such as signatures of
    its thoughts, that it wants back as they were.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    name: str | None = None
    images: tuple[ChatImage, ...] = ()
    tool_calls: tuple[LlmToolCall, ...] = ()
    tool_call_id: str | None = None
    reasoning: str | None = None
    extra: dict[str, JsonValue] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the message as JSON-ready data: `role`, `content`, and what else it has."""
        return {"role": self.role, "content": self.content, **self.model_dump(mode="json", exclude_defaults=True)}


class Transcript(tuple[ChatMessage, ...], ImmutableJson):
    """The messages of a conversation, oldest first, as the host's own parts share them; in JSON a list of objects.

    `changeable` are the places of those that hold an object (`extra`), of which others get copies.
    """

    changeable: tuple[int, ...]

    def __new__(cls, messages: Iterable[ChatMessage] = (), changeable: Iterable[int] | None = None) -> Self:
        """Return messages; what is `changeable` is looked for where it is not known."""
        made = super().__new__(cls, messages)
        found = (at for at, one in enumerate(made) if holds_object(one)) if changeable is None else changeable
        made.changeable = tuple(found)
        return made

    def behind(self, first: ChatMessage) -> Self:
        """Return the messages behind another one, which holds no object."""
        return type(self)((first, *self), [at + 1 for at in self.changeable])

    def plain(self) -> list[dict[str, Any]]:
        """Return the messages as JSON, each as its `to_json`."""
        return [message.to_json() for message in self]


def holds_object(message: ChatMessage) -> bool:
    """Return whether something in a message could be changed."""
    return message.extra is not None or any(call.extra is not None for call in message.tool_calls)


class LlmRequest(SharingModel):
    """What is asked of a model. `model` names an entry of the `models` setting; None takes the default.

    `tools` are functions as `ToolManager.native_schemas` gives them; `tool_choice` is `auto`, `none`, `required` or
    the name of one. A server that takes no tools gets `tools_text`, their documentation in a text protocol, as a part
    of the system message instead, and the answer's `notices` say so. `response_schema` is the JSON Schema that
    the answer must follow. `parameters` (`temperature`, `max_tokens` …) go to the adapter as they are.
    """

    messages: list[ChatMessage]
    model: str | None = None
    tools: list[dict[str, JsonValue]] = Field(default_factory=list)
    tool_choice: str | None = None
    tools_text: str | None = None
    response_schema: dict[str, JsonValue] | None = None
    parameters: dict[str, JsonValue] = Field(default_factory=dict)

    def owned(self) -> Self:
        """Return the request with messages in which nothing is shared with the host."""
        if not isinstance(self.messages, Transcript):
            return self
        copies = list[ChatMessage](self.messages)
        for at in self.messages.changeable:
            copies[at] = copies[at].model_copy(deep=True)
        return self.model_copy(update={"messages": copies})


class LlmUsage(_PublishedModel):
    """Tokens used, where the model says. Of the prompt's, `cached_tokens` were read from the server's cache; of the
    answer's, `reasoning_tokens` were thought."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class LlmResponse(_PublishedModel):
    """A whole answer (the platform's `StandardResponse`).

    `model` is the name under which the model is set up; an alias is resolved. `finish_reason` is the model's own word.
    `choices` are the further answers, where several were asked for.
    `error` is why the answer broke off, in an answer that is kept as far as it came; its calls must not be carried
    out. `extra` are fields that the server wants back with the message. `notices` say what was done differently
    from what was asked, such as a request without tools for a server that takes none.
    """

    text: str
    model: str
    tool_calls: list[LlmToolCall] = Field(default_factory=list)
    reasoning: str | None = None
    finish_reason: str | None = None
    choices: list[ChatMessage] = Field(default_factory=list)
    usage: LlmUsage = Field(default_factory=LlmUsage)
    response_id: str | None = None
    error: str | None = None
    extra: dict[str, JsonValue] = Field(default_factory=dict)
    notices: list[str] = Field(default_factory=list)

    def message(self) -> ChatMessage:
        """Return the answer as the conversation's next message."""
        return ChatMessage(
            role="assistant",
            content=self.text,
            tool_calls=tuple(self.tool_calls),
            reasoning=self.reasoning,
            extra=self.extra or None,
        )


class LlmCallFragment(Model):
    """What a chunk adds to the call `index` (from 0): the first fragment of a call has its `id` and `name`;
    `arguments` is the next part of the JSON text."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class LlmChunk(Model):
    """A piece of a streamed answer. The last one has the whole answer as `response`.

    `restarted` says why the answer restarted, for instance at another server: what came before is void.
    """

    text: str = ""
    reasoning: str = ""
    call: LlmCallFragment | None = None
    restarted: str | None = None
    response: LlmResponse | None = None


class LlmEmbeddings(Model):
    """One vector for each text, in order."""

    vectors: list[list[float]]
    model: str
    usage: LlmUsage = Field(default_factory=LlmUsage)


class LlmModelInfo(Model):
    """A model that is set up: its name here, its adapter (of the first channel), and whether it is the default.

    `alias_of` is the model that the name stands for. `context_tokens` is how much the model takes, where that was
    set up; `price_input` and `price_output` are what a million tokens cost. `is_scripted`: it plays replies from a
    file and thinks nothing.
    """

    name: str
    adapter: str
    is_default: bool = False
    alias_of: str | None = None
    context_tokens: int | None = None
    price_input: float | None = None
    price_output: float | None = None
    is_scripted: bool = False


class LlmAdapter(Protocol):
    """One model behind an adapter.

    Failures are `PluginFailure`, with `retryable` where the same request may succeed later, and in `details`:
    `status` (of HTTP), `retry_after` (seconds), `overflow` (True: the prompt is longer than the model takes),
    `partial_text` (what had come of the answer).
    """

    async def complete(self, request: LlmRequest, call: CallContext) -> LlmResponse:
        """Return the whole answer."""

    def stream(self, request: LlmRequest, call: CallContext) -> AsyncIterator[LlmChunk]:
        """Yield the answer piece by piece; leaving early ends the request."""

    async def close(self) -> None:
        """Release connections."""


class LlmFurtherAdapter(LlmAdapter, Protocol):
    """What an adapter may do besides."""

    async def embed(self, texts: list[str], call: CallContext) -> LlmEmbeddings:
        """Return the vector of each text."""

    async def list_models(self, call: CallContext) -> list[str]:
        """Return the names of the models that the server has."""

    async def count_tokens(self, request: LlmRequest, call: CallContext) -> int:
        """Return how many tokens the prompt of a request has. Raises `PluginFailure` with `missing` in its details
        where the server counts none."""


class LlmAdapterInfo(Model):
    """A way to reach models. `handler` is `module:Class`; the class is opened as `Class(options, context)`.

    An adapter with `network` reaches out of this machine: only the operator may set up models for it. Adapters that
    have the methods of `LlmFurtherAdapter` are asked for these too.
    """

    KIND: ClassVar[ContributionKind] = ContributionKind(protocol=LlmFurtherAdapter)

    name: str
    handler: Handler
    description: str = ""
    network: bool = True


class Llm(ServiceInterface, name="llm", version=3):
    """Sends requests to the models that are set up."""

    @reads
    async def models(self) -> list[LlmModelInfo]:
        """Return the models that are set up."""

    @acts("llm:complete", "Send prompts to the language models that are set up.")
    async def complete(self, request: LlmRequest, *, call: CallContext | None = None) -> LlmResponse:
        """Send a request to a language model and return its whole answer.

        Raises `NotFound` for a model that is not set up, `Vetoed`, `PluginFailure` (retryable) where the model cannot
        be reached or answers with an error, and `LimitReached` where the principal's budget is used up; `details` as
        `LlmAdapter` says.
        """

    @acts("llm:complete", "Send prompts to the language models that are set up.")
    def stream(self, request: LlmRequest, *, call: CallContext | None = None) -> AsyncIterator[LlmChunk]:
        """Yield a model's answer piece by piece; errors as in `complete`."""

    @acts("llm:complete", "Send prompts to the language models that are set up.", since=2)
    async def embed(
        self, texts: list[str], *, model: str | None = None, call: CallContext | None = None
    ) -> LlmEmbeddings:
        """Return the vector of each text; errors as in `complete`."""

    @acts("llm:complete", "Send prompts to the language models that are set up.", since=3)
    async def count_tokens(self, request: LlmRequest, *, call: CallContext | None = None) -> int | None:
        """Return how many tokens the prompt of a request has, as its model's server counts them; None where it counts
        none before it answers. Errors as in `complete`."""


LLM = ServiceKey(Llm)
