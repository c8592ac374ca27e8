"""What tavern_assistant offers: its routes."""

from __future__ import annotations

from typing import Any

from tavern_host import RouteInfo

_PATCH: dict[str, Any] = {"body": "assistant:PatchProposal", "answer": "assistant:PatchResult"}
_UNDO: dict[str, Any] = {"body": "assistant:PatchUndo", "answer": "assistant:PatchResult"}
_OPERATE = {"access": "operate"}
_ROUTES: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("POST", "/api/patches/check", "propose", "Say what a patch would do.", {**_PATCH, "access": "read"}),
    ("POST", "/api/patches", "apply", "Apply a patch, as a whole or not at all.", _PATCH),
    ("POST", "/api/patches/undo", "undo", "Take a patch back.", _UNDO),
    ("POST", "/api/settings-patches", "apply_settings", "Apply a patch of settings.", {**_PATCH, **_OPERATE}),
    ("POST", "/api/settings-patches/undo", "undo_settings", "Take a patch of settings back.", {**_UNDO, **_OPERATE}),
)


def routes() -> list[RouteInfo]:
    """Return the routes of patches."""
    return [RouteInfo.of_module("tavern_assistant.web", *row) for row in _ROUTES]
