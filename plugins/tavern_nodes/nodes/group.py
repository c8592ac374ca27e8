"""The nodes that stand for a whole: a workflow's interface, another workflow, a loop. The engine takes them apart
when it compiles a workflow; the code here passes on what it is fed, or says that it cannot be run alone."""

from __future__ import annotations

from typing import Any

from tavern_host import InvalidInput, NodeDefinition, node
from tavern_host.contracts.nodes import DataFlowType, SlotDefinition
from tavern_nodes.platform_slots import choices, slot
from tavern_workflows.api.loops import COUNT, DEFAULT_MAXIMUM, HIGHEST_MAXIMUM, zone_of

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


NODE_GROUP = NodeDefinition(
    type="NodeGroup",
    namespace="core",
    category="Group",
    display_name="📦节点组",
    description="Runs another workflow: has its inputs and outputs, and does what it does.",
    width=250,
    inputs={},
    outputs={},
    config_schema={
        "referencedWorkflowId": slot(
            "STRING",
            "引用的工作流",
            "The id of the workflow.",
            required=True,
            categories=("ResourceId",),
            config={"acceptedTypes": choices("workflow", labels=("工作流",)), "placeholder": "选择一个工作流..."},
        )
    },
)

_ZONE = zone_of({})

LOOP_ZONE = NodeDefinition(
    type="LoopZone",
    namespace="core",
    category="Group",
    display_name="Loop zone",
    description="Runs the nodes inside of it again and again. What goes from one iteration to the next, what each "
    "gives, and what ends the loop stand in its configuration.",
    width=400,
    dynamic_slots=True,
    inputs={**_ZONE.outer_inputs, COUNT: _ZONE.outer_inputs[COUNT].model_copy(update={"required": False})},
    outputs={**_ZONE.inner_outputs, **_ZONE.outer_outputs},
    config_schema={
        "carried": slot(
            "ARRAY",
            "Carried",
            "What goes from one iteration to the next: a list of {key, dataFlowType, initial}. Outside, in__key brings "
            "its first value and out__key gives its last; inside, in__key gives it and next__key takes the next.",
            required=False,
        ),
        "perIteration": slot(
            "ARRAY",
            "Per iteration",
            "What each iteration gives: a list of {key, dataFlowType}. Inside, each__key takes it; outside, list__key "
            "gives all of them and stream__key each as it comes.",
            required=False,
        ),
        "count": slot(
            "INTEGER",
            "Count",
            "How many iterations, unless an edge says it; empty for as many as it takes.",
            required=False,
            config={"min": 0, "max": HIGHEST_MAXIMUM},
        ),
        "conditionSlot": slot(
            "STRING",
            "Condition slot",
            "The key of an input that is fed from inside; it ends the loop after the iteration.",
            required=False,
        ),
        "stopWhen": slot(
            "BOOLEAN",
            "Stop when",
            "The value of the condition that ends the loop.",
            required=False,
            config={"default": True},
        ),
        "maxIterations": slot(
            "INTEGER",
            "Most iterations",
            "Where the loop ends in any case.",
            required=False,
            config={"default": DEFAULT_MAXIMUM, "min": 1, "max": HIGHEST_MAXIMUM},
        ),
    },
)


@node(definition=NODE_GROUP)
def node_group(inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Raise `InvalidInput`: the engine runs the nodes of the workflow instead of this."""
    raise InvalidInput("NodeGroup: this node refers to a workflow and cannot be run by itself; run it in a workflow")


@node(definition=LOOP_ZONE)
def loop_zone(inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Raise `InvalidInput`: the engine runs the nodes inside instead of this."""
    raise InvalidInput("LoopZone: this node runs those inside of it and cannot be run by itself; run it in a workflow")
