"""What tavern_assistant offers: its routes."""

from __future__ import annotations

from typing import Any

from tavern_host import RouteInfo

_PATCH: dict[str, Any] = {"body": "assistant:PatchProposal", "answer": "assistant:PatchResult"}
_ROUTES: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("POST", "/api/patches/check", "propose", "Say what a patch would do.", {**_PATCH, "access": "read"}),
    ("POST", "/api/patches", "apply", "Apply a patch, as a whole or not at all.", _PATCH),
    (
        "POST",
        "/api/patches/undo",
        "undo",
        "Take a patch back.",
        {"body": "assistant:PatchUndo", "answer": "assistant:PatchResult"},
    ),
)


def routes() -> list[RouteInfo]:
    """Return the routes of patches."""
    return [RouteInfo.of_module("tavern_assistant.web", *row) for row in _ROUTES]
