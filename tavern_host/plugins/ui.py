"""Checks what a plugin declares on the user interface."""

from __future__ import annotations

from tavern_host.contracts.errors import one_line
from tavern_host.contracts.manifest import Manifest
from tavern_host.contracts.plugins import Problem
from tavern_host.contracts.ui import UiDeclaration, unknown_target

_PERMISSION_LIST = {"outlet": "inject", "wrap": "wrap", "override": "override"}


def declaration_problems(manifest: Manifest, declarations: list[UiDeclaration]) -> list[Problem]:
    """Return every declaration that stands on an unknown part or was not asked for in the manifest."""
    problems = []
    for declaration in declarations:
        kind = _PERMISSION_LIST.get(declaration.kind)
        if kind is None:
            continue
        unknown = unknown_target(kind, declaration.target)
        if unknown is not None:
            problems.append(Problem(message=one_line(unknown[0]), hint=unknown[1]))
        elif declaration.target not in getattr(manifest.permissions.ui, kind):
            message = f"{declaration.kind} on {declaration.target!r} is not declared"
            problems.append(Problem(message=message, hint=f"add it to permissions.ui.{kind} in plugin.yaml"))
    return problems
