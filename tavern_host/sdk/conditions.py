"""Conditional requests (RFC 9110 §13): which revision a change is for, and the answer to a client with another."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from typing import TypeVar

from tavern_host.contracts.errors import Conflict, PreconditionFailed, PreconditionRequired
from tavern_host.contracts.http import HttpRequest

T = TypeVar("T")

_TAG = re.compile(r'(W/)?"([^"]*)"')


def expected(request: HttpRequest, revision: str, subject: str) -> str:
    """Return the revision that a change is meant for; empty where there must be none. `revision` is what there is,
    `subject` what it is of, for people: `the workflow 'greet'`.

    Raises `PreconditionFailed` where another is stored, `PreconditionRequired` where the request does not say which.
    """
    wanted, unwanted = (_tags(request.headers.get(name, "")) for name in ("if-match", "if-none-match"))
    if (wanted and not (revision and ("*" in wanted or revision in wanted))) or (
        revision and unwanted & {"*", revision}
    ):
        now = f"is at revision {revision} now" if revision else "does not exist"
        raise PreconditionFailed(f"{subject} {now}", revision=revision)
    if revision and not (wanted or unwanted):
        message = "send If-Match with the ETag of what you read, or with * to overwrite whatever is there"
        raise PreconditionRequired(message, revision=revision)
    return revision


async def conditional(change: Awaitable[T]) -> T:
    """Return the result of a conditional change. Raises `PreconditionFailed` where it came too late."""
    try:
        return await change
    except Conflict as error:
        if "revision" not in error.info.details:
            raise
        raise PreconditionFailed(error.message, revision=error.info.details["revision"]) from None


def _tags(header: str) -> set[str]:
    """Return the strong entity tags of a header; `*` stands for any."""
    if header.strip() == "*":
        return {"*"}
    return {tag for is_weak, tag in _TAG.findall(header) if not is_weak} or ({header} if header else set())
