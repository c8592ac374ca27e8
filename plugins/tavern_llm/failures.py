"""Failures of a model as one line, with secrets redacted. Decides nothing about when to try again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tavern_host.contracts.errors import PluginFailure

SECRET_OPTIONS = ("api_key", "api_key_env")
"""Options of a model that hold a key, or name the environment variable that does."""

MAX_LINE = 400
"""Characters of a server's text that an error message may quote."""


class RetryableFailure(PluginFailure):
    """The model could not be reached or was busy; the same request may succeed later."""

    retryable = True


def one_line(text: str, limit: int = MAX_LINE) -> str:
    """Return `text` with its white space collapsed, cut to `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def secrets_of(options: Mapping[str, Any]) -> list[str]:
    """Return the keys that a model's options hold or point to."""
    key, variable = (options.get(name) for name in SECRET_OPTIONS)
    found = [key, os.environ.get(variable) if isinstance(variable, str) else None]
    return [secret for secret in found if isinstance(secret, str) and secret]


def redact(text: str, secrets: list[str]) -> str:
    """Return `text` with every secret replaced by `***`."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
