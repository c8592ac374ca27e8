"""What a plugin declares on the user interface."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from tavern_host.contracts.wire import Model

UiKind = Literal["menuItem", "panel", "nodeUi", "route", "outlet", "wrap", "override"]


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
