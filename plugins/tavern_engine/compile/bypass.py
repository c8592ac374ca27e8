"""How a bypassed node passes values through (`bypassBehavior`): which input each output passes on, and how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from tavern_host.contracts.nodes import BypassBehavior, DataFlowType, SlotDefinition
from tavern_workflows.api.dataflow import Converter, compatible, converter


class PassThrough(NamedTuple):
    """How a value passes from an input to an output. `into`: the slot in which it arrives; `convert`: what changes each
    value that arrives; `is_first`: of several only the first is passed on, else all of them as a list."""

    into: SlotDefinition
    convert: Converter | None
    is_first: bool


def bypass_inputs(
    behavior: Literal["mute"] | BypassBehavior | None,
    inputs: Mapping[str, SlotDefinition],
    outputs: Mapping[str, SlotDefinition],
) -> dict[str, str]:
    """Return by output the input that it passes on; outputs that are not named give an empty value.

    Where the type does not say it, an output passes on the first input whose type is its own, else the first whose
    type goes into it.
    """
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


def pass_through(source: SlotDefinition, target: SlotDefinition) -> PassThrough:
    """Return how values go from an input to an output. A stream goes into an output that is none as one value."""
    changes: dict[str, object] = {"required": False}
    if not target.is_stream:
        changes["is_stream"] = False
    into = source.model_copy(update=changes)
    as_list = bool(source.multi) and target.data_flow_type is DataFlowType.ARRAY
    return PassThrough(into, None if as_list else converter(into, target), bool(source.multi) and not as_list)


def composed(first: Converter | None, second: Converter | None) -> Converter | None:
    """Return the converter that applies both, `first` first; None means no conversion."""
    if first is None or second is None:
        return first or second
    return lambda value: second(first(value))
