"""The bodies of requests of the Agent2Agent protocol, as far as they are taken: its fields in both versions. Further
fields are ignored, as the protocol asks."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, JsonValue

from tavern_host.contracts.wire import Model


class _Lenient(Model):
    model_config = ConfigDict(extra="ignore")


class RpcBody(_Lenient):
    """`POST /a2a/AGENT`: a request as JSON-RPC 2.0 has it. `params` depend on the `method`."""

    jsonrpc: Literal["2.0"]
    id: str | int | None = None
    method: str = Field(min_length=1, max_length=100)
    params: dict[str, JsonValue] = Field(default_factory=dict)


class FileContent(_Lenient):
    """The file of a part in the form of 0.3: its bytes as base64, or its address."""

    bytes: str | None = None
    uri: str | None = None
    mime_type: str = ""


class Part(_Lenient):
    """A part of a message: a text, the bytes of a file as base64 (`raw`), its address (`url`), or JSON (`data`)."""

    text: str | None = None
    raw: str | None = None
    url: str | None = None
    data: JsonValue = None
    media_type: str = ""
    file: FileContent | None = None


class Message(_Lenient):
    """A message to an agent. `context_id` is the conversation that it continues, `task_id` the run that it adds to."""

    message_id: str = Field(min_length=1, max_length=300)
    role: Literal["ROLE_USER", "user"]
    parts: list[Part] = Field(min_length=1, max_length=100)
    context_id: str | None = Field(default=None, max_length=200)
    task_id: str | None = Field(default=None, max_length=200)


class Configuration(_Lenient):
    """How a message is answered. `return_immediately`, and `blocking` in 0.3, say whether to wait for the end."""

    accepted_output_modes: list[str] = Field(default_factory=list)
    history_length: int | None = Field(default=None, ge=0)
    return_immediately: bool = False
    blocking: bool = True
    push_notification_config: JsonValue = None
    task_push_notification_config: JsonValue = None


class SendParams(_Lenient):
    """`SendMessage`, `SendStreamingMessage`."""

    message: Message
    configuration: Configuration = Field(default_factory=Configuration)


class TaskParams(_Lenient):
    """`GetTask`, `CancelTask`, `SubscribeToTask`: which task, and how many of its last messages."""

    id: str = Field(min_length=1, max_length=200)
    history_length: int | None = Field(default=None, ge=0)
