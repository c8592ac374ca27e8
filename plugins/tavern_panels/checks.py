"""What is wrong with panels: files that hold none, and elements that name what is not there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from tavern_agents.api.agents import AGENT_RUNTIME
from tavern_host import PluginContext
from tavern_host.contracts.errors import NotFound, TavernError
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.workflows import Workflow
from tavern_panels.api.panels import Panel, PanelElement, PanelInput, PanelProblem
from tavern_panels.files import FOLDER, PanelFiles
from tavern_workflows.api.workflows import WORKFLOW_MANAGER

Found = tuple[str, str, str]
"""A JSON path within an element, what is wrong, and what mends it."""


async def check_panels(files: PanelFiles, panel_id: str | None, context: PluginContext) -> list[PanelProblem]:
    """Return every problem of the panels, or of one. Raises `NotFound` for one that is not there."""
    wanted = sorted([*files.panels, *files.broken]) if panel_id is None else [panel_id]
    found: list[PanelProblem] = []
    for name in wanted:
        file = f"{FOLDER}/{name}.json"
        for text in files.broken.get(name, ()):
            path, colon, message = text.partition(": ")
            place = {"path": path, "message": message} if colon and path.startswith("$") else {"message": text}
            found.append(PanelProblem(panel=name, file=file, hint="mend the file, or delete it", **place))
        if name not in files.broken:
            found += [problem async for problem in _of_panel(name, file, files.get(name).panel, context)]
    return found


async def _of_panel(name: str, file: str, panel: Panel, context: PluginContext) -> AsyncIterator[PanelProblem]:
    for place, element in enumerate(panel.elements):
        for path, message, hint in await _of_element(element, context):
            where = f"$.elements[{place}]{path}"
            yield PanelProblem(panel=name, file=file, element=element.id, path=where, message=message, hint=hint)


async def _of_element(element: PanelElement, context: PluginContext) -> list[Found]:
    services = context.services
    try:
        if element.kind == "workflow":
            workflow = (await services.get(WORKFLOW_MANAGER).get(element.target)).workflow
            return [*_of_inputs(element, workflow), *_of_outputs(element, workflow)]
        if element.kind == "agent":
            await services.get(AGENT_RUNTIME).get(element.target)
    except NotFound as error:
        return [(".target", error.message, f"name another {element.kind}, or remove the element")]
    except TavernError as error:
        return [(".target", error.message, f"mend the {element.kind} {element.target!r}")]
    return []


def _of_inputs(element: PanelElement, workflow: Workflow) -> Iterator[Found]:
    slots = workflow.interface_inputs
    for key in element.inputs:
        if key not in slots:
            message = f"the workflow {element.target!r} has no input {key!r}{did_you_mean(key, slots)}"
            yield f".inputs.{key}", message, "remove it, or give the workflow that input"
    for key, slot in slots.items():
        about = element.inputs.get(key, PanelInput())
        if slot.required and not about.shown and about.value is None and slot.default is None:
            message = f"the input {key!r} is required, is not shown, and has no value"
            yield f".inputs.{key}", message, "show it, or give it a value"
    for place, example in enumerate(element.examples):
        for key in example.inputs:
            if key not in slots:
                yield f".examples[{place}].inputs.{key}", f"there is no input {key!r}", "remove it from the example"


def _of_outputs(element: PanelElement, workflow: Workflow) -> Iterator[Found]:
    slots = workflow.interface_outputs
    for place, key in enumerate(element.outputs or ()):
        if key not in slots:
            message = f"the workflow {element.target!r} has no output {key!r}{did_you_mean(key, slots)}"
            yield f".outputs[{place}]", message, "remove it, or give the workflow that output"
