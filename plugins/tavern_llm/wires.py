"""What differs between the wires of models: paths, headers, bodies and how answers are read. One client speaks them all
(`chat_client.py`), and one file each says what a wire is like."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

from pydantic import JsonValue

from tavern_llm.answers import AnswerReader, read_embeddings
from tavern_llm.api.llm import ChatMessage, LlmChunk, LlmEmbeddings, LlmRequest, LlmResponse
from tavern_llm.chat_body import Dialect, addresses, request_body
from tavern_llm.chat_wire import read_models
from tavern_llm.dialects import learned

CUT_REASON = "length"
"""The reason of an answer that was cut at its greatest length, in the words that all wires are read into."""

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w.=+-]+)*;base64,", re.ASCII)


class Reader(Protocol):
    """Reads one answer. `is_finished`: the model has said that it ends; `is_over`: nothing more will come."""

    @property
    def text(self) -> str:
        """The text of the answer so far."""

    @property
    def is_finished(self) -> bool: ...

    @property
    def is_over(self) -> bool: ...

    def add(self, data: dict[str, Any]) -> list[LlmChunk]:
        """Take an event of a stream; return what it adds. Raises `ServerError`, `TooLong`."""

    def end(self) -> list[LlmChunk]:
        """Say that the answer is whole; return what was held back."""

    def whole(self, data: dict[str, Any], notices: list[str]) -> LlmResponse:
        """Return an answer that came in one piece. Raises `WireError`, `ServerError`."""

    def response(self, notices: list[str]) -> LlmResponse:
        """Return the whole answer."""


class Wire(Protocol):
    """How a server is spoken to. Paths are below the base address."""

    name: str
    host: str
    """The address that is asked where none is set; empty where each server has its own."""
    version: str
    """The first part of paths, which addresses may end in or not; empty where addresses are taken as they are."""

    def headers(self, key: str) -> dict[str, str]:
        """Return the headers that carry a key, and what goes with each request."""

    def path(self, model: str, *, stream: bool) -> str:
        """Return where requests go."""

    def body(
        self,
        request: LlmRequest,
        model: str,
        parameters: Mapping[str, JsonValue],
        *,
        stream: bool,
        dialect: Dialect,
        images: Mapping[str, str],
    ) -> dict[str, Any]:
        """Return the body of a request; see `chat_body.request_body`. Raises `InvalidInput`."""

    def learned(self, dialect: Dialect, request: LlmRequest, body: dict[str, Any], said: str) -> Dialect | None:
        """Return the dialect in which a refused request may succeed; None where the refusal is about something else."""

    def notices(self, dialect: Dialect, request: LlmRequest, parameters: Mapping[str, JsonValue]) -> list[str]:
        """Return sentences on the differences from what was asked for."""

    def reader(self, model: str) -> Reader:
        """Return the reader of an answer."""

    def models_path(self) -> str:
        """Return where the list of models is."""

    def read_models(self, data: dict[str, Any]) -> list[str]:
        """Return the names in a list of models. Raises `WireError`, `ServerError`."""

    def embeddings(self, model: str, texts: list[str]) -> tuple[str, dict[str, Any]] | None:
        """Return the path and body that ask for vectors; None where the wire has none."""

    def read_embeddings(self, data: dict[str, Any], model: str, count: int) -> LlmEmbeddings:
        """Return the vectors of an answer. Raises `WireError`, `ServerError`."""

    def counting(self, model: str, body: dict[str, Any]) -> tuple[str, dict[str, Any], str] | None:
        """Return the path and body that ask how many tokens a request has, and the field of the answer that says so;
        None where the wire has no such thing."""


class ChatWire:
    """OpenAI's chat completions."""

    name = "openai"
    host = ""
    version = ""

    def headers(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}

    def path(self, model: str, *, stream: bool) -> str:
        return "chat/completions"

    def body(
        self,
        request: LlmRequest,
        model: str,
        parameters: Mapping[str, JsonValue],
        *,
        stream: bool,
        dialect: Dialect,
        images: Mapping[str, str],
    ) -> dict[str, Any]:
        return request_body(request, model, parameters, stream=stream, dialect=dialect, images=images)

    def learned(self, dialect: Dialect, request: LlmRequest, body: dict[str, Any], said: str) -> Dialect | None:
        return learned(dialect, request, body, said)

    def notices(self, dialect: Dialect, request: LlmRequest, parameters: Mapping[str, JsonValue]) -> list[str]:
        return dialect.notices(request, parameters)

    def reader(self, model: str) -> Reader:
        return AnswerReader(model)

    def models_path(self) -> str:
        return "models"

    def read_models(self, data: dict[str, Any]) -> list[str]:
        return read_models(data)

    def embeddings(self, model: str, texts: list[str]) -> tuple[str, dict[str, Any]] | None:
        return "embeddings", {"model": model, "input": texts}

    def read_embeddings(self, data: dict[str, Any], model: str, count: int) -> LlmEmbeddings:
        return read_embeddings(data, model, count)

    def counting(self, model: str, body: dict[str, Any]) -> tuple[str, dict[str, Any], str] | None:
        return None


CHAT = ChatWire()


def files_of(message: ChatMessage, images: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return the images and files of a message: the media type and the data in base64 of each, or its address."""
    found = []
    for url in addresses(message, images):
        head = _DATA_URL.match(url)
        found.append((head.group(1), url[head.end() :], "") if head else ("", "", url))
    return found


def left_out(asked: Mapping[str, JsonValue], taken: frozenset[str]) -> list[str]:
    """Return a sentence on parameters that a wire has nothing for."""
    names = sorted(name for name, value in asked.items() if name not in taken and value is not None)
    return [f"the server does not take {', '.join(names)}"] if names else []
