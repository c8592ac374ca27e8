"""A panel as people are shown it: what it hides, and secrets among its values, are left out."""

from __future__ import annotations

from typing import Any

from tavern_agents.api.agents import AGENT_RUNTIME
from tavern_host import PluginContext
from tavern_host.common.redaction import is_hidden
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.workflows import InterfaceSlot, Workflow
from tavern_panels.api.panels import PanelElement, PanelInput, ShownElement, ShownPanel, ShownSlot
from tavern_panels.files import StoredPanel
from tavern_panels.layout import Place, places
from tavern_workflows.api.workflows import WORKFLOW_MANAGER


async def shown_panel(panel_id: str, stored: StoredPanel, context: PluginContext) -> ShownPanel:
    """Return a panel as people are shown it."""
    panel = stored.panel
    placed = zip(panel.elements, places(panel.elements), strict=True)
    elements = [await _element(element, place, context) for element, place in placed]
    fields = {"name": panel.name, "description": panel.description, "published": panel.published}
    return ShownPanel(id=panel_id, revision=stored.revision, elements=elements, **fields)


async def _element(element: PanelElement, place: Place, context: PluginContext) -> ShownElement:
    x, y, w, h = place
    fields: dict[str, Any] = {"id": element.id, "kind": element.kind, "x": x, "y": y, "w": w, "h": h}
    fields |= {"title": element.title, "text": element.text}
    try:
        if element.kind == "workflow":
            workflow = (await context.services.get(WORKFLOW_MANAGER).get(element.target)).workflow
            fields |= {"inputs": _inputs(element, workflow), "outputs": _outputs(element, workflow)}
            fields["title"] = element.title or workflow.name or element.target
            shown = {one.key for one in fields["inputs"]}
            fields["examples"] = [
                one.model_copy(update={"inputs": {key: value for key, value in one.inputs.items() if key in shown}})
                for one in element.examples
            ]
        elif element.kind == "agent":
            profile = await context.services.get(AGENT_RUNTIME).get(element.target)
            fields["title"] = element.title or profile.name
    except TavernError as error:
        fields["problem"] = error.message
    return ShownElement(**fields)


def shown_keys(element: PanelElement, workflow: Workflow) -> list[str]:
    """Return the keys of the inputs that people are shown, in the order of the panel, then that of the workflow."""
    slots = workflow.interface_inputs
    ordered = [key for key in element.inputs if key in slots] + [key for key in slots if key not in element.inputs]
    return [key for key in ordered if element.inputs.get(key, PanelInput()).shown]


def output_keys(element: PanelElement, workflow: Workflow) -> list[str]:
    """Return the keys of the outputs that people are shown."""
    slots = workflow.interface_outputs
    return [*slots] if element.outputs is None else [key for key in element.outputs if key in slots]


def _inputs(element: PanelElement, workflow: Workflow) -> list[ShownSlot]:
    found = []
    for key in shown_keys(element, workflow):
        about, slot = element.inputs.get(key, PanelInput()), workflow.interface_inputs[key]
        preset = slot.default if about.value is None else about.value
        more: dict[str, Any] = {"config": {**(slot.config or {}), "default": preset}}
        if preset is None or is_hidden(key, preset):  # a secret counts where nobody gives another value
            more["config"].pop("default")
            more["required"] = slot.required if preset is None else False
        if about.label:
            more["display_name"] = about.label
        if about.hint is not None:
            more["description"] = about.hint
        found.append(ShownSlot(key=key, slot=_plain(slot.model_copy(update=more))))
    return found


def _outputs(element: PanelElement, workflow: Workflow) -> list[ShownSlot]:
    slots = workflow.interface_outputs
    return [ShownSlot(key=key, slot=_plain(slots[key])) for key in output_keys(element, workflow)]


def _plain(slot: InterfaceSlot) -> InterfaceSlot:
    """Return a slot without the keys that only an editor knows."""
    return InterfaceSlot(**{name: getattr(slot, name) for name in InterfaceSlot.model_fields})
