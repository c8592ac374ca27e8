"""Answers of models as they come through workflows: as JSON."""

from __future__ import annotations

from typing import Any

from tavern_host.contracts.documents import read_model
from tavern_host.contracts.errors import InvalidInput
from tavern_llm.api.llm import LlmResponse


def read_answer(value: Any, where: str = "response") -> LlmResponse:
    """Return the answer that a value is: a whole one, or its text. Raises `InvalidInput` for anything else."""
    if isinstance(value, str):
        return LlmResponse(text=value, model="")
    if not isinstance(value, dict):
        raise InvalidInput(f"{where}: expected the answer of a model, or a text, found {type(value).__name__}")
    return read_model(LlmResponse, {"model": "", **value}, where)
