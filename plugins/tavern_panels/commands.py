"""The commands `tavern panels …`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from tavern_host import CommandOutput, PluginContext
from tavern_host.contracts.calls import operator_call
from tavern_panels.api.panels import PANEL_MANAGER, PanelFile
from tavern_panels.drafting import drafted
from tavern_panels.web import panel_schema

Arguments = dict[str, Any]
Output = AsyncIterator[CommandOutput]


async def list_panels(arguments: Arguments, context: PluginContext) -> Output:
    """Show the panels as a table, and what is wrong with files that hold none."""
    panels = await context.services.get(PANEL_MANAGER).list_panels()
    rows = [[one.id, one.name, "yes" if one.published else "no", str(one.elements)] for one in panels]
    yield CommandOutput(kind="table", columns=["panel", "name", "published", "elements"], rows=rows)
    for one in panels:
        if one.problem:
            yield CommandOutput(kind="progress", text=f"{one.id}: {one.problem}")
    yield CommandOutput(kind="result", data=[one.to_json() for one in panels])


async def show_panel(arguments: Arguments, context: PluginContext) -> Output:
    """Show a panel as people are shown it, and where it is in the page."""
    shown = await context.services.get(PANEL_MANAGER).show(arguments["panel"])
    yield CommandOutput(kind="message", text=f"{shown.name}: #/panels/{shown.id}")
    rows = [
        [
            one.id,
            one.kind,
            one.title,
            ", ".join(slot.key for slot in one.inputs),
            ", ".join(slot.key for slot in one.outputs),
            one.problem or "",
        ]
        for one in shown.elements
    ]
    columns = ["element", "kind", "title", "inputs", "outputs", "problem"]
    yield CommandOutput(kind="table", columns=columns, rows=rows)
    yield CommandOutput(kind="result", data=shown.to_json())


async def new_panel(arguments: Arguments, context: PluginContext) -> Output:
    """Make a panel with an element for each workflow and agent."""
    workflows, agents = arguments["workflow"] or [], arguments["agent"] or []
    document = await drafted(context, arguments["name"], workflows, agents)
    document["published"] = bool(arguments["publish"])
    call = operator_call(context.project.id)
    manager = context.services.get(PANEL_MANAGER)
    made = await manager.save(arguments["panel"], document, expected_revision="", call=call)
    yield CommandOutput(kind="message", text=f"The panel {made.id} is made: #/panels/{made.id}")
    yield CommandOutput(kind="result", data=made.to_json())


async def publish_panel(arguments: Arguments, context: PluginContext) -> Output:
    """Let people use a panel who may not change panels."""
    made = await _published(arguments["panel"], context, is_published=True)
    yield CommandOutput(kind="message", text=f"The panel {made.id} is published: #/panels/{made.id}")
    yield CommandOutput(kind="result", data=made.to_json())


async def withdraw_panel(arguments: Arguments, context: PluginContext) -> Output:
    """Let a panel be for those who may change panels."""
    made = await _published(arguments["panel"], context, is_published=False)
    yield CommandOutput(kind="message", text=f"The panel {made.id} is not published any more.")
    yield CommandOutput(kind="result", data=made.to_json())


async def delete_panel(arguments: Arguments, context: PluginContext) -> Output:
    """Delete a panel."""
    manager, panel_id = context.services.get(PANEL_MANAGER), arguments["panel"]
    await manager.delete(panel_id, call=operator_call(context.project.id))
    yield CommandOutput(kind="message", text=f"The panel {panel_id} is deleted.")
    yield CommandOutput(kind="result", data={"deleted": panel_id})


async def check_panels(arguments: Arguments, context: PluginContext) -> Output:
    """Show what is wrong with the panels; exit code 1 for an error."""
    found = await context.services.get(PANEL_MANAGER).check(arguments["panel"])
    for problem in found:
        yield CommandOutput(kind="message", text=f"{problem.level}: {problem}")
    if not found:
        yield CommandOutput(kind="message", text="All panels are right.")
    yield CommandOutput(kind="result", data=[problem.to_json() for problem in found])
    errors = sum(problem.level == "error" for problem in found)
    if errors:
        yield CommandOutput(kind="failure", text=f"Errors in panels: {errors}")


async def show_schema(arguments: Arguments, context: PluginContext) -> Output:
    """Print the JSON Schema of panels."""
    schema = panel_schema()
    yield CommandOutput(kind="text", text=json.dumps(schema, indent=2))
    yield CommandOutput(kind="result", data=schema)


async def _published(panel_id: str, context: PluginContext, *, is_published: bool) -> PanelFile:
    manager = context.services.get(PANEL_MANAGER)
    panel = await manager.get(panel_id)
    document = {**panel.document, "published": is_published}
    call = operator_call(context.project.id)
    return await manager.save(panel_id, document, expected_revision=panel.revision, call=call)
