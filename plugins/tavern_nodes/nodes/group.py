"""The two nodes that carry a workflow's interface. They pass on what the engine feeds them; the engine
decides what that is."""

from __future__ import annotations

from typing import Any

from tavern_host import NodeDefinition, node
from tavern_host.contracts.nodes import DataFlowType, SlotDefinition

_OPEN_SLOT = SlotDefinition(
    data_flow_type=DataFlowType.CONVERTIBLE_ANY,
    display_name="*",
    description="An **open slot**: connect it and it takes over the type and name of the other end.",
    match_categories=("BehaviorConvertible",),
    allow_dynamic_type=True,
)
_HOW_TO = "Connect the open slot to add one; a new open slot appears. Names and types are edited in the sidebar."

GROUP_INPUT = NodeDefinition(
    type="GroupInput",
    namespace="core",
    category="Group",
    display_name="🧬组输入",
    description=f"The inputs of this workflow. {_HOW_TO}",
    dynamic_slots=True,
    outputs={"output_0": _OPEN_SLOT},
)
GROUP_OUTPUT = NodeDefinition(
    type="GroupOutput",
    namespace="core",
    category="Group",
    display_name="🧬组输出",
    description=f"The outputs of this workflow. {_HOW_TO}",
    dynamic_slots=True,
    inputs={"input_0": _OPEN_SLOT},
)


@node(definition=GROUP_INPUT)
def group_input(inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Hand the workflow's inputs on as outputs of the same keys."""
    return dict(inputs)


@node(definition=GROUP_OUTPUT)
def group_output(inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Hand what arrived on as the workflow's outputs of the same keys."""
    return dict(inputs)
