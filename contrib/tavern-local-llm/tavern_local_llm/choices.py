"""Lets a small model choose a tool: a JSON Schema leaves it the tools' calls or an answer, and nothing else."""

from __future__ import annotations

import json
import uuid
from typing import Any

from tavern_llm.api.llm import LlmRequest, LlmResponse, LlmToolCall


def with_choice(request: LlmRequest) -> LlmRequest:
    """Return a request whose answer calls one of its tools, or says something where no tool has to be called."""
    functions: list[dict[str, Any]] = [tool["function"] for tool in request.tools if isinstance(tool["function"], dict)]
    choice = request.tool_choice or "auto"
    if choice not in ("auto", "none", "required"):
        functions = [function for function in functions if function["name"] == choice]
    options = [] if choice == "none" else [_option(function) for function in functions]
    if choice in ("auto", "none") or not options:
        options.append(_object(answer={"type": "string"}))
    # Of several wordings this one made SmolLM2 choose right most often: what a tool does, before what to write.
    lines = [f'{function.get("description") or ""} → {{"tool": "{function["name"]}"}}' for function in functions]
    text = "\n".join(["You choose the tool for a request.", *lines])
    return request.model_copy(update={"tools_text": text, "tool_choice": None, "response_schema": {"anyOf": options}})


def chosen(answer: LlmResponse) -> LlmResponse:
    """Return the answer with the call, or the text, that the model chose; one that was cut stays as it is."""
    try:
        choice = json.loads(answer.text)
    except ValueError:
        return answer
    if isinstance(choice, dict) and "tool" in choice:
        arguments = json.dumps(choice.get("arguments") or {}, ensure_ascii=False)
        call = LlmToolCall(id=uuid.uuid4().hex[:9], name=str(choice["tool"]), arguments=arguments)
        return answer.model_copy(update={"text": "", "tool_calls": [call], "finish_reason": "tool_calls"})
    if isinstance(choice, dict) and isinstance(choice.get("answer"), str):
        return answer.model_copy(update={"text": choice["answer"]})
    return answer


def _option(function: dict[str, Any]) -> dict[str, Any]:
    return _object(tool={"const": function["name"]}, arguments=function.get("parameters") or {"type": "object"})


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
