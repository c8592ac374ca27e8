"""Hooks that front ends implement, and the different names of one hook in the ComfyTavern documents."""

from __future__ import annotations

CLIENT_HOOKS: dict[str, str] = {
    "hook:client:workflow:before-execute": (
        "See a workflow's inputs in the browser before it is run, and change them or stop the run."
    ),
    "hook:client:node:render:after": "Change how a node looks after it was drawn.",
    "hook:client:settings:before-save": "See settings before they are saved, and change or refuse them.",
    "hook:client:auth:login": "Do something in the browser after somebody logged in.",
}
"""Hooks that a plugin's front end implements, each with what it allows."""

ALIASES: dict[str, str] = {
    "workflow:before-execute": "hook:client:workflow:before-execute",
    "node:render:after": "hook:client:node:render:after",
    "settings:save:before": "hook:client:settings:before-save",
    "settings:before-save": "hook:client:settings:before-save",
    "auth:login": "hook:client:auth:login",
    "hook:client:settings:save:before": "hook:client:settings:before-save",
    "hook:server:settings:save:before": "hook:server:settings:before-save",
}
"""Other names that the ComfyTavern documents use, each with the name that the host uses."""


def canonical(name: str) -> str:
    """Return the name that the host uses for a hook's permission."""
    return ALIASES.get(name, name)
