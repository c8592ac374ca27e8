"""Checks what a plugin declares on the user interface."""

from __future__ import annotations

from collections.abc import Iterable

from tavern_host.contracts.errors import one_line
from tavern_host.contracts.manifest import Manifest
from tavern_host.contracts.names import suggest
from tavern_host.contracts.plugins import Problem
from tavern_host.contracts.ui import COMPONENTS, OUTLETS, PANEL_OUTLETS, PANELS, UiDeclaration, outlet_base

_PERMISSION_LIST = {"outlet": "inject", "wrap": "wrap", "override": "override"}


def unknown_target(kind: str, target: str) -> Problem | None:
    """Return why nothing can be the target of `inject`, `wrap` or `override`, or None where it can."""
    if kind != "inject":
        return None if target in COMPONENTS else _unknown("component", target, COMPONENTS)
    name = outlet_base(target)
    panel = target.removeprefix(name)[1:-1]
    if name not in OUTLETS:
        rest = "".join(target.partition("[")[1:])
        return _unknown("outlet", target, [one + rest if one in PANEL_OUTLETS else one for one in OUTLETS])
    if name != target and panel not in PANELS and "." not in panel:
        return _unknown("panel", panel, PANELS)
    return None


def _unknown(what: str, name: str, known: Iterable[str]) -> Problem:
    return Problem(message=one_line(f"there is no {what} {name!r}"), hint=suggest(name, known))


def declaration_problems(manifest: Manifest, declarations: list[UiDeclaration]) -> list[Problem]:
    """Return every declaration that stands on an unknown part or was not asked for in the manifest."""
    problems = []
    for declaration in declarations:
        kind = _PERMISSION_LIST.get(declaration.kind)
        if kind is None:
            continue
        unknown = unknown_target(kind, declaration.target)
        if unknown is not None:
            problems.append(unknown)
        elif declaration.target not in getattr(manifest.permissions.ui, kind):
            message = f"{declaration.kind} on {declaration.target!r} is not declared"
            problems.append(Problem(message=message, hint=f"add it to permissions.ui.{kind} in plugin.yaml"))
    return problems
