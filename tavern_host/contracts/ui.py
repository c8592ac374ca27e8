"""What a plugin declares on the user interface."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, JsonValue

from tavern_host.contracts.names import plugin_name, suggest
from tavern_host.contracts.services import Level
from tavern_host.contracts.wire import Model

UiKind = Literal["menuItem", "panel", "nodeUi", "route", "outlet", "wrap", "override"]


COMPONENTS: Mapping[str, str] = {
    "ui:BaseNode": "every node on the canvas",
    "ui:NodeInputControl": "every input control of a node",
    "ui:GraphEditor": "the canvas",
    "ui:ContextMenu": "the context menu",
    "ui:SidebarManager": "the editor's side bar",
    "ui:HomeSidebar": "the home page's side bar",
    "ui:StatusBar": "the editor's status bar",
    "ui:AssistantPanel": "the assistant's panel in the editor",
    "ui:RightPreviewPanel": "the preview panel on the right",
    "ui:SettingsPanel": "the settings panel",
    "ui:MainMenu": "the main menu",
}
"""The parts of the user interface that plugins may wrap or replace, each in words."""

OUTLETS: Mapping[str, str] = {
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
"""The places of the user interface that plugins may fill, each in words."""

PANEL_OUTLETS = ("sidebar:panel:header", "sidebar:panel:footer")
"""Outlets of every panel; a name in brackets behind one is that of a single panel: `sidebar:panel:header[nodes]`."""

PANELS = (
    *("workflows", "home", "nodes", "inspector", "history", "assistant"),
    *("chat", "agents", "tools", "knowledge", "runs", "triggers", "plugins", "settings", "manual"),
)
"""The panels of the page by name. A panel of a plugin has the plugin's name before its id: `acme-notes.board`."""


UI_LEVELS: tuple[tuple[str, Level, str], ...] = (
    ("inject", "add", "Put its own content at {}, and see what that place is given."),
    ("wrap", "intercept", "See what {} is given, and change how it looks and behaves."),
    ("override", "override", "Replace {}, and see all that it is given."),
)
"""What a plugin may do with the user interface: the key under `permissions.ui`, its level, what it allows."""

FRONTENDS: Mapping[str, tuple[str, Level, str]] = {
    "page": (
        *("ui.frontend", "override"),
        "Run its front end in the page: it sees and does all that its viewer can.",
    ),
    "sandbox": (
        *("ui.sandbox", "add"),
        "Show panels of its own in frames that reach nothing but its own settings, commands and routes.",
    ),
}
"""The permission that declaring a front end asks for, by its mode; its level, and what it allows."""


class UiDeclaration(Model):
    """One declaration on the user interface.

    `target` is an outlet name for `outlet`, a `ui:` component for `wrap` and `override`, a full node
    type for `nodeUi`, and an id of the plugin's own for `menuItem`, `panel` and `route`. `export` names
    the export of the plugin's front-end module that implements it.
    """

    kind: UiKind
    target: str
    export: str | None = None
    title: str | None = None
    order: int = 0
    options: dict[str, JsonValue] = Field(default_factory=dict)


PartId = Annotated[str, AfterValidator(plugin_name)]
"""The id of a command or panel of a front end."""


class FrontendCommand(Model):
    """A command of a front end, offered before its code is loaded. `keys` are such as `mod+shift+k`, where `mod` is
    Ctrl, or ⌘ on a Mac; `group` is the heading in the list of commands."""

    id: PartId
    title: str
    keys: str | None = None
    group: str | None = None


class FrontendPanel(Model):
    """A panel of a front end, offered before its code is loaded. `icon` is one or two letters, or an emoji;
    without it, the first letter of the title."""

    id: PartId
    title: str
    icon: str | None = None
    place: Literal["left", "bottom", "right"] = "left"


class FrontendInfo(Model):
    """Where a browser finds a plugin's front end, by addresses on this host, and what it offers before its code is
    loaded. `declarations` are those that `tavern_declare_ui` returned; `dev_entry` is the source, in the plugin's
    folder, that a development server begins with."""

    entry_url: str | None = None
    style_urls: list[str] = Field(default_factory=list)
    mode: Literal["page", "sandbox"] = "page"
    commands: list[FrontendCommand] = Field(default_factory=list)
    panels: list[FrontendPanel] = Field(default_factory=list)
    declarations: list[UiDeclaration] = Field(default_factory=list)
    dev_entry: str | None = None

    def below(self, path: str) -> Self:
        """Return it with addresses that begin with a path, such as a project's."""
        entry, styles = self.entry_url, self.style_urls
        return self.model_copy(update={"entry_url": entry and path + entry, "style_urls": [path + s for s in styles]})


@dataclass(frozen=True)
class FrontendFiles:
    """The folder of a front end, and the hash of each of its files by the path in there; None where each is served as
    it is now. `version` begins their addresses, `@HASH/`, and differs whenever one of them does."""

    folder: Path
    version: str = ""
    hashes: Mapping[str, bytes] | None = None


def outlet_base(name: str) -> str:
    """Return an outlet's name without the panel in brackets: `sidebar:panel:header[nodes]` → `…header`."""
    base, bracket, panel = name.partition("[")
    return base if bracket and panel.endswith("]") and base in PANEL_OUTLETS else name


def unknown_target(kind: str, target: str) -> tuple[str, str | None] | None:
    """Return why nothing can be the target of `inject`, `wrap` or `override`, and what was probably meant; None where
    something can."""
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


def _unknown(what: str, name: str, known: Iterable[str]) -> tuple[str, str | None]:
    return f"there is no {what} {name!r}", suggest(name, known)
