"""The bodies of requests of OpenAI's API, as far as they are taken."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field, JsonValue

from tavern_host.contracts.wire import Model


class _Body(Model):
    model_config = ConfigDict(alias_generator=None, extra="allow", protected_namespaces=())

    def further(self) -> dict[str, Any]:
        """Return the fields that the body has besides those that are named here, without those that are null."""
        return {key: value for key, value in (self.model_extra or {}).items() if value is not None}


class StreamOptions(_Body):
    """How a stream is sent: with `include_usage`, its last event has the tokens that were used."""

    include_usage: bool = False


class ChatBody(_Body):
    """`POST /v1/chat/completions`. Further fields are parameters of the model, such as `temperature`.

    `model` is `agent/ID`, `workflow/ID` or the name of a language model. `metadata.conversation`, or `user`, names the
    conversation with an agent that the request continues.
    """

    model: str = Field(min_length=1, max_length=300)
    messages: list[dict[str, JsonValue]] = Field(min_length=1)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[dict[str, JsonValue]] | None = None
    tool_choice: str | dict[str, JsonValue] | None = None
    response_format: dict[str, JsonValue] | None = None
    user: str | None = Field(default=None, max_length=1000)
    metadata: dict[str, str] | None = None


class ResponsesBody(_Body):
    """`POST /v1/responses`: `input` is a text, or a list of messages, calls of functions and their results. Nothing is
    kept: each request holds the whole conversation. Further fields as in `ChatBody`."""

    model: str = Field(min_length=1, max_length=300)
    input: str | list[dict[str, JsonValue]]
    instructions: str | None = None
    stream: bool | None = None
    tools: list[dict[str, JsonValue]] | None = None
    tool_choice: str | dict[str, JsonValue] | None = None
    text: dict[str, JsonValue] | None = None
    reasoning: dict[str, JsonValue] | None = None
    max_output_tokens: int | None = None
    user: str | None = Field(default=None, max_length=1000)
    metadata: dict[str, str] | None = None


class EmbeddingsBody(_Body):
    """`POST /v1/embeddings`: one text or several; `encoding_format` says how each vector is written, `base64` as
    32-bit floats in little-endian order."""

    model: str = Field(min_length=1, max_length=300)
    input: str | list[str] | list[int] | list[list[int]]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    user: str | None = None
