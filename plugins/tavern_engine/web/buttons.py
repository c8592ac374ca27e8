"""Buttons of nodes, as the platform's pages press them: which node is meant, and with which values."""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

from tavern_host import WORKFLOW_MANAGER, PluginContext
from tavern_host.contracts.documents import read_model
from tavern_host.contracts.errors import InvalidInput, NotFound
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.wire import OpenModel
from tavern_host.contracts.workflows import WorkflowNode


class Values(OpenModel):
    """The values of a node as the page has them; both are ours, the platform's pages send none."""

    inputs: dict[str, JsonValue] | None = None
    config: dict[str, JsonValue] | None = None


class Click(Values):
    """The payload of a `button_click`."""

    node_id: str
    button_name: str
    workflow_id: str | None = None
    node_type: str | None = None


def read_click(payload: Any) -> Click:
    """Return the click that a payload describes. Raises `InvalidInput` with every problem of its shape."""
    click = read_model(Click, payload, "this is no button_click")
    if click.node_type is None and click.workflow_id is None:
        raise InvalidInput("a button_click needs a `nodeType`, or the `workflowId` of a stored workflow")
    return click


async def written(click: Click, context: PluginContext) -> tuple[str, dict[str, JsonValue], dict[str, JsonValue]]:
    """Return the type, inputs and configuration of the node whose button was pressed.

    What the click does not say is as it stands in the stored workflow, where that has the node. Raises `NotFound`
    where the type is said by neither.
    """
    stored = None
    if click.workflow_id is not None and None in (click.node_type, click.inputs, click.config):
        stored = await _stored(click, click.workflow_id, context)
    if stored is None:
        stored = WorkflowNode(id=click.node_id, type=click.node_type or "")
    inputs = stored.input_values if click.inputs is None else click.inputs
    config = stored.config_values if click.config is None else click.config
    return stored.type, inputs, config


async def _stored(click: Click, workflow_id: str, context: PluginContext) -> WorkflowNode | None:
    """Return the node as it is stored; None where the type is known without, and no such node is."""
    try:
        workflow = (await context.services.get(WORKFLOW_MANAGER).get(workflow_id)).workflow
    except NotFound:
        if click.node_type is None:
            raise
        return None
    found = {node.id: node for node in workflow.nodes}
    if click.node_type is None and click.node_id not in found:
        near = did_you_mean(click.node_id, found)
        raise NotFound(f"the workflow {workflow_id!r} has no node {click.node_id!r}{near}")
    node = found.get(click.node_id)
    return node if node is not None and click.node_type in (None, node.type) else None
