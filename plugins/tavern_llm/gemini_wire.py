"""The adapter `gemini`: a model of a server that speaks Gemini's generateContent."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from pydantic import JsonValue

from tavern_llm.anthropic_wire import arguments_of, check_parameters
from tavern_llm.api.llm import ChatMessage, LlmChunk, LlmEmbeddings, LlmRequest, LlmResponse
from tavern_llm.chat_body import Dialect
from tavern_llm.chat_wire import ServerError, WireError, raise_error
from tavern_llm.part_answers import PartsReader, counted
from tavern_llm.plain_schemas import plain_schema
from tavern_llm.wires import Reader, files_of, left_out

SIGNATURE = "thoughtSignature"
"""Where a call or a message keeps the signature of its thoughts, which the server wants back as it was."""

_CONFIG = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "max_tokens": "maxOutputTokens",
    "max_completion_tokens": "maxOutputTokens",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "thinkingConfig": "thinkingConfig",
}
_SAME = ("safetySettings", "cachedContent")
_TAKEN = frozenset({*_CONFIG, *_SAME, "stop", "response_format"})
_REASONS = {"STOP": "stop", "MAX_TOKENS": "length", "OTHER": "stop"}
_BROKEN = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"})
_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


class GeminiWire:
    """Gemini's generateContent (v1beta)."""

    name = "gemini"
    host = "https://generativelanguage.googleapis.com"
    version = "v1beta"

    def headers(self, key: str) -> dict[str, str]:
        return {"x-goog-api-key": key} if key else {}

    def path(self, model: str, *, stream: bool) -> str:
        return f"{_path(model)}:{'streamGenerateContent?alt=sse' if stream else 'generateContent'}"

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
        asked: dict[str, Any] = {**parameters, **request.parameters}
        check_parameters(asked)
        is_plain = "plain_schemas" in dialect.shapes
        config = {_CONFIG[key]: value for key, value in asked.items() if key in _CONFIG and value is not None}
        if stop := asked.get("stop"):
            config["stopSequences"] = [stop] if isinstance(stop, str) else stop
        if request.response_schema is not None:
            schema = plain_schema(request.response_schema) if is_plain else request.response_schema
            config |= {
                "responseMimeType": "application/json",
                "responseSchema" if is_plain else "responseJsonSchema": schema,
            }
        elif asked.get("response_format"):
            config["responseMimeType"] = "application/json"
        body: dict[str, Any] = {key: asked[key] for key in _SAME if asked.get(key) is not None}
        body |= {"generationConfig": config} if config else {}
        system = "\n\n".join(one.content for one in request.messages if one.role == "system" and one.content)
        if system:
            body["systemInstruction"] = {"parts": [{"text": system}]}
        if request.tools:
            body["tools"] = [{"functionDeclarations": [_tool(tool, is_plain) for tool in request.tools]}]
            if choice := request.tool_choice:
                named = {} if choice in _MODES else {"allowedFunctionNames": [choice]}
                body["toolConfig"] = {"functionCallingConfig": {"mode": _MODES.get(choice, "ANY"), **named}}
        body["contents"] = _contents(list(request.messages), images)
        return body

    def learned(self, dialect: Dialect, request: LlmRequest, body: dict[str, Any], said: str) -> Dialect | None:
        has_schemas = bool(request.tools) or request.response_schema is not None
        about = re.search(r"schema|parameters|function.?declaration|unknown name", said, re.IGNORECASE)
        if has_schemas and about and "plain_schemas" not in dialect.shapes:
            return Dialect(dialect.omitted, dialect.shapes | {"plain_schemas"})
        return None

    def notices(self, dialect: Dialect, request: LlmRequest, parameters: Mapping[str, JsonValue]) -> list[str]:
        return left_out({**parameters, **request.parameters}, _TAKEN)

    def reader(self, model: str) -> Reader:
        return GeminiReader(model)

    def models_path(self) -> str:
        return "models?pageSize=1000"

    def read_models(self, data: dict[str, Any]) -> list[str]:
        raise_error(data)
        if not isinstance(items := data.get("models"), list):
            raise WireError("answered without a list of models")
        names = [item.get("name") for item in items if isinstance(item, dict)]
        return sorted({name.removeprefix("models/") for name in names if isinstance(name, str) and name})

    def embeddings(self, model: str, texts: list[str]) -> tuple[str, dict[str, Any]] | None:
        about = {"model": model if model.startswith("models/") else f"models/{model}"}
        asked = [{**about, "content": {"parts": [{"text": text}]}} for text in texts]
        return f"{_path(model)}:batchEmbedContents", {"requests": asked}

    def read_embeddings(self, data: dict[str, Any], model: str, count: int) -> LlmEmbeddings:
        raise_error(data)
        items = data.get("embeddings")
        try:
            vectors = [[float(number) for number in item["values"]] for item in items or ()]
            if len(vectors) != count or not all(math.isfinite(number) for vector in vectors for number in vector):
                raise ValueError
        except (KeyError, TypeError, ValueError, OverflowError):
            raise WireError(f"answered without the vectors of all {count} texts") from None
        return LlmEmbeddings(vectors=vectors, model=model)

    def counting(self, model: str, body: dict[str, Any]) -> tuple[str, dict[str, Any], str] | None:
        name = model if model.startswith("models/") else f"models/{model}"
        return f"{_path(model)}:countTokens", {"generateContentRequest": {"model": name, **body}}, "totalTokens"


GEMINI = GeminiWire()


def _path(model: str) -> str:
    name = model if model.startswith(("models/", "tunedModels/")) else f"models/{model}"
    return quote(name, safe="/-._~")


def _tool(tool: dict[str, Any], is_plain: bool) -> dict[str, Any]:
    function = tool["function"]
    made = {key: function[key] for key in ("name", "description") if function.get(key)}
    schema = function.get("parameters")
    if isinstance(schema, dict) and schema.get("properties"):
        made["parameters" if is_plain else "parametersJsonSchema"] = plain_schema(schema) if is_plain else schema
    return made


def _contents(messages: list[ChatMessage], images: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the messages without the system's, those of one side joined: results of calls are the user's."""
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    found: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "model" if message.role == "assistant" else "user"
        parts = _parts(message, names, images)
        if found and found[-1]["role"] == role:
            found[-1]["parts"] += parts
        elif parts:
            found.append({"role": role, "parts": parts})
    return found or [{"role": "user", "parts": [{"text": "(The conversation begins.)"}]}]


def _parts(message: ChatMessage, names: Mapping[str, str], images: Mapping[str, str]) -> list[dict[str, Any]]:
    files: list[dict[str, Any]] = [
        {"fileData": {"fileUri": url}} if url else {"inlineData": {"mimeType": kind, "data": data}}
        for kind, data, url in files_of(message, images)
    ]
    if message.role == "tool":
        name = names.get(message.tool_call_id or "", message.name or "tool")
        answer = {"name": name, "response": _result(message.content)}
        result: dict[str, Any] = {"functionResponse": answer}
        return [result, *files]
    signature = (message.extra or {}).get(SIGNATURE)
    texts: list[dict[str, Any]] = [{"text": message.content}] if message.content else []
    if isinstance(signature, str):
        texts = [{**(texts[0] if texts else {"text": ""}), SIGNATURE: signature}]
    calls: list[dict[str, Any]] = [
        {
            "functionCall": {"name": call.name, "args": arguments_of(call.arguments)},
            **{key: value for key, value in (call.extra or {}).items() if key == SIGNATURE},
        }
        for call in message.tool_calls
    ]
    return files + texts + calls


def _result(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {"result": text}


class GeminiReader(PartsReader):
    """Reads one answer: each event is one more piece of its parts."""

    def whole(self, data: dict[str, Any], notices: list[str]) -> LlmResponse:
        """Return an answer that came in one piece. Raises `WireError`, `ServerError`."""
        raise_error(data)
        if not isinstance(data.get("candidates"), list) and not isinstance(data.get("promptFeedback"), dict):
            raise WireError("answered without candidates")
        self.add(data)
        return self.response(notices)

    def add(self, data: dict[str, Any]) -> list[LlmChunk]:
        """Take an event. Raises `ServerError`, `TooLong`."""
        raise_error(data)
        identity = data.get("responseId")
        self._id = self._id or (identity if isinstance(identity, str) and identity else None)
        self._count(data.get("usageMetadata"))
        feedback = data.get("promptFeedback")
        if isinstance(feedback, dict) and feedback.get("blockReason"):
            self._reason = "content_filter"
        candidates = data.get("candidates")
        first = candidates[0] if isinstance(candidates, list) and candidates else None
        if not isinstance(first, dict):
            return []
        content = first.get("content")
        parts = content.get("parts") if isinstance(content, dict) else None
        chunks = [chunk for part in parts or () if isinstance(part, dict) for chunk in self._part(part)]
        reason = first.get("finishReason")
        if reason in _BROKEN:
            raise ServerError("the model wrote a call that its server could not read", 502)
        if isinstance(reason, str) and reason and reason != "FINISH_REASON_UNSPECIFIED":
            said = _REASONS.get(reason, "content_filter")
            self._reason = "tool_calls" if said == "stop" and self._calls else said
        return chunks

    def _part(self, part: dict[str, Any]) -> list[LlmChunk]:
        signature = part.get(SIGNATURE)
        has_signature = isinstance(signature, str) and bool(signature)
        if isinstance(asked := part.get("functionCall"), dict):
            call, chunks = self.begin_call(asked.get("id"), asked.get("name"), asked.get("args"))
            if has_signature:
                call.extra[SIGNATURE] = signature
            return chunks
        if part.get("thought") is True:
            return self.think(part.get("text"))
        if has_signature:
            self._extra[SIGNATURE] = signature
        return self.say(part.get("text"))

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            thought = usage.get("thoughtsTokenCount")
            self.use(
                prompt_tokens=usage.get("promptTokenCount"),
                completion_tokens=counted(usage.get("candidatesTokenCount"), thought),
                cached_tokens=usage.get("cachedContentTokenCount"),
                reasoning_tokens=thought,
            )
