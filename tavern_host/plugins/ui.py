"""The parts of the user interface that plugins may wrap, fill or replace (`spec/000` §21), and the
check of what a plugin declares on them."""

from __future__ import annotations

from tavern_host.contracts.errors import one_line
from tavern_host.contracts.manifest import Manifest
from tavern_host.contracts.names import suggest
from tavern_host.contracts.plugins import Problem
from tavern_host.contracts.ui import UiDeclaration

COMPONENTS: dict[str, str] = {
    "ui:BaseNode": "every node on the canvas",
    "ui:NodeInputControl": "every input control of a node",
    "ui:GraphEditor": "the canvas",
    "ui:ContextMenu": "the context menu",
    "ui:SidebarManager": "the editor's side bar",
    "ui:HomeSidebar": "the home page's side bar",
    "ui:StatusBar": "the editor's status bar",
    "ui:RightPreviewPanel": "the preview panel on the right",
    "ui:SettingsPanel": "the settings panel",
    "ui:MainMenu": "the main menu",
}

OUTLETS: dict[str, str] = {
    "layout:header:before-tabs": "the page header, before the tabs",
    "layout:header:after-tabs": "the page header, after the tabs",
    "layout:header:right": "the right end of the page header",
    "editor:toolbar:left": "the left of the editor's toolbar",
    "editor:toolbar:center": "the middle of the editor's toolbar",
    "editor:toolbar:right": "the right of the editor's toolbar",
    "editor:canvas:overlay": "the space above the canvas",
    "editor:statusbar:left": "the left of the status bar",
    "editor:statusbar:right": "the right of the status bar",
    "sidebar:icon-bar:tabs:before": "the side bar's icons, before the tabs",
    "sidebar:icon-bar:tabs:after": "the side bar's icons, after the tabs",
    "sidebar:icon-bar:bottom:before": "the side bar's icons, before the controls at the bottom",
    "sidebar:panel:header": "the top of side bar panels",
    "sidebar:panel:footer": "the foot of side bar panels",
    "node:header:left": "the left of a node's header",
    "node:header:right": "the right of a node's header",
    "node:footer": "the foot of a node",
    "modal:footer": "the foot of a dialogue",
}

_PERMISSION_LIST = {"outlet": "inject", "wrap": "wrap", "override": "override"}


def outlet_base(name: str) -> str:
    """Return an outlet's name without the panel in brackets: `sidebar:panel:header[nodes]` → `…header`."""
    base, bracket, panel = name.partition("[")
    named_panel = bracket and panel.endswith("]") and base in ("sidebar:panel:header", "sidebar:panel:footer")
    return base if named_panel else name


def unknown_target(kind: str, target: str) -> Problem | None:
    """Return why nothing can be the target of `inject`, `wrap` or `override`, or None where it can."""
    known = OUTLETS if kind == "inject" else COMPONENTS
    name = outlet_base(target) if kind == "inject" else target
    if name in known:
        return None
    what = "outlet" if kind == "inject" else "component"
    return Problem(message=one_line(f"there is no {what} {target!r}"), hint=suggest(target, known))


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
            problems.append(
                Problem(
                    message=f"{declaration.kind} on {declaration.target!r} is not declared",
                    hint=f"add it to permissions.ui.{kind} in plugin.yaml",
                )
            )
    return problems
