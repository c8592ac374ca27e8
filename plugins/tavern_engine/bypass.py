"""Which input's value each output of a bypassed node gives (`bypassBehavior`)."""

from __future__ import annotations

from collections.abc import Mapping

from tavern_host.contracts.dataflow import compatible
from tavern_host.contracts.nodes import NodeDefinition, SlotDefinition


def bypass_inputs(
    definition: NodeDefinition, inputs: Mapping[str, SlotDefinition], outputs: Mapping[str, SlotDefinition]
) -> dict[str, str]:
    """Return by output the input that it passes through; outputs that are not named give an empty value.

    Where the type does not say it, an output passes through the first input whose type is its own, else the first
    whose type goes into it.
    """
    behavior = definition.bypass_behavior
    if behavior == "mute":
        return {}
    if behavior is not None:
        named = behavior.pass_through
        return {key: source for key, source in named.items() if key in outputs and source in inputs}
    found: dict[str, str] = {}
    for key, output in outputs.items():
        fitting = [k for k, slot in inputs.items() if bool(slot.is_stream) == bool(output.is_stream)]
        same = [k for k in fitting if inputs[k].data_flow_type is output.data_flow_type and not inputs[k].multi]
        others = [k for k in fitting if compatible(inputs[k], output) is None]
        if same or others:
            found[key] = (same or others)[0]
    return found
