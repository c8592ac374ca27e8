"""The handlers of the routes under `/v1`."""

from __future__ import annotations

import base64
import struct
from collections.abc import AsyncIterator
from typing import Any

from tavern_host.context import PluginContext
from tavern_host.contracts.documents import to_thread_if_large
from tavern_host.contracts.errors import NotFound, PluginFailure
from tavern_host.contracts.http import HttpRequest, HttpResponse, ServerEvent, answer_with
from tavern_llm.api.llm import LLM
from tavern_openai.api.requests import ChatBody, EmbeddingsBody, ResponsesBody
from tavern_openai.chat import chat_answer, chat_events
from tavern_openai.errors import wrong
from tavern_openai.offered import naming, offered, require_offered
from tavern_openai.reading import read_chat
from tavern_openai.responses import read_responses, response_answer, response_events
from tavern_openai.streaming import begun
from tavern_openai.targets import target_of

_MOST_TEXTS = 2048

Answer = HttpResponse | AsyncIterator[ServerEvent]


async def list_models(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the models that are offered."""
    return HttpResponse(data={"object": "list", "data": [_model(name) for name in await offered(context)]})


async def get_model(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with one of them."""
    parts = request.parameters
    name = "/".join([parts["kind"], parts["model"]] if "kind" in parts else [parts["model"]])
    if name not in await offered(context):
        raise NotFound(f"no model {name!r:.300} is offered; GET /v1/models lists those that are", model=name)
    return HttpResponse(data=_model(name))


async def chat(request: HttpRequest, context: PluginContext) -> Answer:
    """Answer with a chat completion."""
    body = await request.body_as(ChatBody)
    asked = await to_thread_if_large(request.is_large, read_chat, body)
    target = await target_of(asked, context, request.call)
    if not body.stream:
        with naming(body.model):
            answer = await target.whole()
        return await answer_with(lambda: chat_answer(answer, body.model), is_large=len(answer.text) > 1 << 16)
    if asked.parameters.get("n") not in (None, 1):
        raise wrong("n: a stream has one choice", "n")
    with naming(body.model):
        chunks = await begun(target.stream(), context)
    usage = body.stream_options is not None and body.stream_options.include_usage
    return _closing(chat_events(chunks, body.model, include_usage=usage), chunks)


async def respond(request: HttpRequest, context: PluginContext) -> Answer:
    """Answer with a response."""
    body = await request.body_as(ResponsesBody)
    asked = await to_thread_if_large(request.is_large, read_responses, body)
    target = await target_of(asked, context, request.call)
    if not body.stream:
        with naming(body.model):
            answer = await target.whole()
        return await answer_with(lambda: response_answer(answer, body), is_large=len(answer.text) > 1 << 16)
    with naming(body.model):
        chunks = await begun(target.stream(), context)
    return _closing(response_events(chunks, body), chunks)


async def embed(request: HttpRequest, context: PluginContext) -> HttpResponse:
    """Answer with the vectors of texts."""
    body = await request.body_as(EmbeddingsBody)
    texts = [body.input] if isinstance(body.input, str) else [one for one in body.input if isinstance(one, str)]
    if not texts or len(texts) != (1 if isinstance(body.input, str) else len(body.input)):
        raise wrong("input: expected a text or a list of texts; tokens are not taken", "input")
    if len(texts) > _MOST_TEXTS:
        raise wrong(f"input: {len(texts)} texts, of which there may be {_MOST_TEXTS}", "input")
    for name in [*body.further(), *(["dimensions"] if body.dimensions is not None else [])]:
        raise wrong(f"{name} is not supported here", name)
    kind, name = await require_offered(context, body.model)
    if kind != "model":
        raise wrong(f"{body.model} gives texts and no embeddings", "model")
    try:
        found = await context.services.get(LLM).embed(texts, model=name, call=request.call)
    except PluginFailure as error:
        if error.info.details.get("missing") == "embed":
            raise wrong(f"the model {body.model!r} gives no embeddings", "model") from None
        raise
    is_packed = body.encoding_format == "base64"
    used = found.usage.prompt_tokens or 0

    def make() -> dict[str, Any]:
        data = [
            {"object": "embedding", "index": index, "embedding": _packed(vector) if is_packed else vector}
            for index, vector in enumerate(found.vectors)
        ]
        usage = {"prompt_tokens": used, "total_tokens": used}
        return {"object": "list", "data": data, "model": body.model, "usage": usage}

    return await answer_with(make, is_large=len(texts) > 8)


def _packed(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "tavern"}


async def _closing(events: AsyncIterator[ServerEvent], chunks: Any) -> AsyncIterator[ServerEvent]:
    """Yield events, and end the work on the answer when nobody takes more of them."""
    try:
        async for event in events:
            yield event
    finally:
        await chunks.aclose()
