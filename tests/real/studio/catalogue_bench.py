"""A plugin that puts a mark into every place of the page that plugins may change, and a walk past all of these places.

Its front end does nothing by itself: `window.catalogue[PLUGIN]` adds and clears when the test says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from helpers.folder_plugins import write_plugin
from playwright.async_api import expect
from studio_bench import Studio, read_until

from tavern_host.contracts.manifest import ALIASES, CLIENT_HOOKS
from tavern_host.contracts.ui import COMPONENTS, OUTLETS
from tavern_host.projects import make_project

GRANTED, REFUSED = "acme-everything", "acme-nothing"
"""A plugin that asks for all of the catalogue, and one that asks for nothing of it; their code is the same."""

HOOKS = [name for name, permission in ALIASES.items() if permission in CLIENT_HOOKS and not name.startswith("hook:")]
"""The client hooks by all names that `hooks.on` takes."""
TABLE = {
    **{f"outlet {name}": (f'ui.registerOutletComponent("{name}")', f"ui.inject:{name}") for name in OUTLETS},
    **{f"wrap {name}": (f'ui.wrapComponent("{name}")', f"ui.wrap:{name}") for name in COMPONENTS},
    **{f"override {name}": (f'ui.overrideComponent("{name}")', f"ui.override:{name}") for name in COMPONENTS},
    **{f"hook {name}": (f'hooks.on("{name}")', ALIASES[name]) for name in HOOKS},
    "service workflowManager": ('services.override("workflowManager")', "services.override:workflowManager"),
}
"""Everything of the catalogue, one row each: what a call that was refused names, and the permission."""

_MODULE = """
import { h } from "vue";

const mark = (row) => h("b", { "data-row": row }, "•");
const called = (row) => (window.called = [...(window.called ?? []), row]);

const DO = {
  outlet: (api, name, row) => api.ui.registerOutletComponent(name, () => mark(row)),
  wrap: (api, id, row) => api.ui.wrapComponent(id, (original) => ({
    name: "Wrap",
    inheritAttrs: false,
    setup: (_props, { attrs, slots }) => () => [mark(row), h(original, attrs, slots)],
  })),
  override: (api, id, row) => api.ui.overrideComponent(id, () => mark(row)),
  hook: (api, name, row) => api.hooks.on(name, (event) => {
    if ("badge" in event || "classes" in event) event.badge = "looked at";
    if (window.called?.includes(row)) return;
    called(row);
    event.veto?.("the catalogue says so");
  }),
  service: (api, name, row) => api.services.override(name, { execute: async () => {
    called(row);
    throw new Error("the catalogue does not run");
  } }),
};

export default function setup(api) {
  const made = [];
  const add = (row) => {
    const [kind, ...rest] = row.split(" ");
    made.push(DO[kind](api, rest.join(" "), row));
  };
  const clear = () => made.splice(0).forEach((dispose) => dispose());
  window.catalogue = { ...window.catalogue, [api.plugin.name]: { add: (rows) => rows.forEach(add), clear } };
  window.loads = (window.loads ?? 0) + 1;
  (window.atLoad ?? []).forEach(add);
}
"""
WORKFLOW = {
    "id": "places",
    "name": "Places",
    "nodes": [
        {"id": "text", "type": "core:TextMerge", "position": {"x": 80, "y": 80}, "inputValues": {"text_inputs": ["a"]}}
    ],
    "edges": [],
}
_VISIBLE = """
[...document.querySelectorAll("[data-row]")].filter((one) => one.checkVisibility()).map((one) => one.dataset.row)
"""


def make_catalogue_project(root: Path) -> None:
    """Make a project with both plugins and a workflow."""
    make_project(root)
    (root / "workflows").mkdir(exist_ok=True)
    (root / "workflows" / "places.json").write_text(json.dumps(WORKFLOW))
    everything: dict[str, Any] = {
        "hooks": [*CLIENT_HOOKS],
        "ui": {"inject": [*OUTLETS], "wrap": [*COMPONENTS], "override": [*COMPONENTS]},
        "services": {"override": ["workflowManager"]},
    }
    option = {"key": f"extensions.{GRANTED}.word", "type": "string", "label": "Word", "defaultValue": ""}
    frontend = {"type": "vanilla", "vanilla": {"entry": "index.js"}}
    for name, more in ((GRANTED, {"permissions": everything, "configOptions": [option]}), (REFUSED, {})):
        folder = root / "plugins" / name.replace("-", "_")
        write_plugin(folder, {"web/index.js": _MODULE}, frontend=frontend, **more)


EDITOR = "/workflows/places"
VIEWS = {"home": "/", "dialog": "/", "settings": f"/settings/{GRANTED}", "assistant": EDITOR, "editor": EDITOR}
"""Views by their addresses that have all places of the catalogue between them."""


async def add(studio: Studio, rows: Iterable[str], plugin: str = GRANTED) -> None:
    """Let a plugin make the calls of some rows."""
    await studio.page.evaluate(f"(rows) => window.catalogue['{plugin}'].add(rows)", [*rows])


async def clear(studio: Studio) -> None:
    """Let the plugin take back all that it added."""
    await studio.page.evaluate(f"window.catalogue['{GRANTED}'].clear()")


async def check_visible(studio: Studio, rows: Iterable[str]) -> None:
    """Check in the views that have the places of these rows that their marks can be seen, and no others; without rows,
    that none can be seen in any view."""
    rows = set(rows)
    for view in VIEWS:
        wanted = sorted(row for row in rows if view_of(row) == view)
        if rows and not wanted:
            continue
        await open_view(studio, view, is_whole=not rows)
        seen = await read_until(
            lambda seen, wanted=wanted: {*wanted} <= {*seen} <= rows, lambda: studio.page.evaluate(_VISIBLE)
        )
        assert {*wanted} <= {*seen} <= rows, f"in the view {view}"


async def open_view(studio: Studio, view: str, *, is_whole: bool = True) -> None:
    """Show one of the views that have the places of the catalogue between them; wait for it if all of it is there."""
    page = studio.page
    await page.keyboard.press("Escape")
    await studio.open(VIEWS[view])
    landmarks = {
        "home": page.get_by_role("heading", name="Workflows", exact=True),
        "dialog": page.get_by_role("dialog"),
        "settings": page.get_by_role("button", name="Save"),
        "assistant": page.get_by_label("Assistant").first,
        "editor": page.locator(".vue-flow__node").first,
    }
    if view == "dialog":
        await page.get_by_role("button", name="New workflow").first.click()
    if view == "assistant":
        opener = page.get_by_role("banner").get_by_role("button", name="Assistant")
        if await opener.get_attribute("aria-pressed") != "true":
            await opener.click()
    if is_whole or view == "dialog":
        await expect(landmarks[view]).to_be_visible()


def view_of(row: str) -> str:
    """Return the view in which the place of a row is looked for."""
    place = row.partition(" ")[2]
    if place == "modal:footer":
        return "dialog"
    if place in ("ui:SettingsPanel", "ui:AssistantPanel"):
        return "settings" if place == "ui:SettingsPanel" else "assistant"
    at_home = ("layout:", "sidebar:", "ui:HomeSidebar", "ui:SidebarManager", "ui:MainMenu")
    return "home" if place.startswith(at_home) else "editor"
