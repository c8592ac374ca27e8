"""Hooks that front ends implement, and the different names of one hook in the ComfyTavern documents."""

from __future__ import annotations

import re

CLIENT_HOOKS: dict[str, str] = {
    "hook:client:workflow:before-execute": (
        "See a workflow's inputs in the browser before it is run, and change them or stop the run."
    ),
    "hook:client:node:render:after": "Change how a node looks after it was drawn.",
    "hook:client:settings:before-save": "See settings before they are saved, and change or refuse them.",
    "hook:client:auth:login": "Do something in the browser after somebody logged in.",
}
"""Hooks that a plugin's front end implements, each with what it allows."""

_CLIENT = "hook:client:"
_VERB_FIRST = re.compile(r"(?<=:)([a-z-]+):(before|after)$")
_MOMENT_FIRST = re.compile(r"(?<=:)(before|after)-([a-z-]+)$")

ALIASES: dict[str, str] = {
    spelling: name
    for name in CLIENT_HOOKS
    for whole in (_MOMENT_FIRST.sub(r"\2:\1", name), _VERB_FIRST.sub(r"\2-\1", name))
    for spelling in (whole, whole.removeprefix(_CLIENT))
    if spelling != name
}
"""Other names of client hooks, each with the name that the host uses: the ComfyTavern documents write `save:before` as
well as `before-save`, and leave out what stands before the name."""


def canonical(name: str) -> str:
    """Return the name that the host uses for a hook's permission."""
    return _VERB_FIRST.sub(r"\2-\1", name) if name.startswith("hook:server:") else ALIASES.get(name, name)
