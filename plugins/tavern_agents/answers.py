"""Answers of models as they come through workflows: as JSON."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from tavern_host.contracts.documents import json_path
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.llm import ChatMessage, LlmResponse


def read_answer(value: Any, where: str = "response") -> LlmResponse:
    """Return the answer that a value is: a whole one, or its text. Raises `InvalidInput` for anything else."""
    if isinstance(value, str):
        return LlmResponse(text=value, model="")
    if not isinstance(value, dict):
        raise InvalidInput(f"{where}: expected the answer of a model, or a text, found {type(value).__name__}")
    try:
        return LlmResponse.model_validate({"model": "", **value})
    except ValidationError as error:
        raise _problem(error, where) from None


def read_message(value: Any, where: str) -> ChatMessage:
    """Return the message of a conversation that a value is. Raises `InvalidInput`."""
    try:
        return ChatMessage.model_validate(value)
    except ValidationError as error:
        raise _problem(error, where) from None


def _problem(error: ValidationError, where: str) -> InvalidInput:
    problem = error.errors(include_url=False)[0]
    return InvalidInput(f"{where}{json_path(*problem['loc'])[1:]}: {problem['msg']}")
