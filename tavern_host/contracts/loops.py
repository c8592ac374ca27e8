"""The slots that a `core:LoopZone` has by its configuration, and which of them are for whom (DESIGN §4, *LoopZone*).

A zone runs the nodes that name it as their `parentNode` again and again. Its configuration:

- `carried`: `[{key, dataFlowType, initial}]`, the state that goes from one iteration to the next. Outside, an edge
  into `in__key` brings its initial value (else `initial` does) and `out__key` gives its last; inside, `in__key` gives
  its present value, and an edge into `next__key` brings the next one (without such an edge it stays as it is).
- `perIteration`: `[{key, dataFlowType}]`. Inside, an edge into `each__key` brings a value in each iteration; outside,
  `list__key` gives all of them and `stream__key` each as it comes.
- `count`: how many iterations, unless an edge into `count` says it; without one, until the condition or the maximum.
- `conditionSlot`: the key of an input that is fed from inside; the loop ends after an iteration in which its value is
  `stopWhen` (true, unless it says otherwise).
- `maxIterations`: where the loop ends in any case; 1,000 unless it says otherwise, 1,000,000 at most.

Beside these, inside: `index` (from 0); outside: `iterations`, `stopped_by` (`count`, `condition` or `maximum`), `log`.
Feedback is never an edge, so a workflow with loops has no cycle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tavern_host.contracts.nodes import DataFlowType, SlotDefinition

DEFAULT_MAXIMUM = 1000
HIGHEST_MAXIMUM = 1_000_000

COUNT, INDEX, ITERATIONS, STOPPED_BY, LOG = "count", "index", "iterations", "stopped_by", "log"
IN, NEXT, OUT, EACH, LIST, STREAM = "in__", "next__", "out__", "each__", "list__", "stream__"


@dataclass(frozen=True)
class Zone:
    """What a zone's configuration says. `problems` names, by key of the configuration, what is wrong with it; the
    parts that are wrong are left out of the rest."""

    carried: dict[str, SlotDefinition] = field(default_factory=dict)
    per_iteration: dict[str, SlotDefinition] = field(default_factory=dict)
    count: int | None = None
    condition: str | None = None
    stop_when: bool = True
    maximum: int = DEFAULT_MAXIMUM
    problems: dict[str, str] = field(default_factory=dict)

    @property
    def outer_inputs(self) -> dict[str, SlotDefinition]:
        """The inputs that edges from outside may feed."""
        found = {f"{IN}{key}": slot for key, slot in self.carried.items()}
        return {**found, COUNT: _slot(DataFlowType.INTEGER, "How many iterations.")}

    @property
    def inner_inputs(self) -> dict[str, SlotDefinition]:
        """The inputs that edges from inside may feed."""
        found = {f"{NEXT}{key}": _plain(slot) for key, slot in self.carried.items()}
        found |= {f"{EACH}{key}": slot for key, slot in self.per_iteration.items()}
        if self.condition is not None:
            found[self.condition] = _slot(DataFlowType.BOOLEAN, "Whether the loop ends here.")
        return found

    @property
    def inner_outputs(self) -> dict[str, SlotDefinition]:
        """The outputs that edges to the inside may read."""
        found = {f"{IN}{key}": _plain(slot) for key, slot in self.carried.items()}
        return {**found, INDEX: _slot(DataFlowType.INTEGER, "The number of the iteration, from 0.")}

    @property
    def outer_outputs(self) -> dict[str, SlotDefinition]:
        """The outputs that edges to the outside may read."""
        found = {f"{OUT}{key}": _plain(slot) for key, slot in self.carried.items()}
        for key, slot in self.per_iteration.items():
            found[f"{LIST}{key}"] = _slot(DataFlowType.ARRAY, "The values of all iterations.")
            found[f"{STREAM}{key}"] = slot.model_copy(update={"is_stream": True})
        found[ITERATIONS] = _slot(DataFlowType.INTEGER, "How many iterations there were.")
        found[STOPPED_BY] = _slot(DataFlowType.STRING, "What ended the loop: count, condition or maximum.")
        found[LOG] = _slot(DataFlowType.ARRAY, "One entry for each iteration: its number, time and carried values.")
        return found


def zone_of(config: Mapping[str, Any]) -> Zone:
    """Return what a zone's configuration says; never raises."""
    problems: dict[str, str] = {}
    carried = _slots(config.get("carried"), "carried", problems)
    per_iteration = _slots(config.get("perIteration"), "perIteration", problems)
    condition = config.get("conditionSlot") or None
    if condition is not None and (not isinstance(condition, str) or "__" in condition or condition == COUNT):
        problems["conditionSlot"] = f"expected the key of a slot, without '__' and not {COUNT!r}, got {condition!r:.60}"
        condition = None
    stop_when = config.get("stopWhen", True)
    if not isinstance(stop_when, bool):
        problems["stopWhen"] = f"expected true or false, got {stop_when!r:.60}"
        stop_when = True
    count = _number(config.get("count"), "count", 0, problems)
    maximum = _number(config.get("maxIterations"), "maxIterations", 1, problems)
    return Zone(carried, per_iteration, count, condition, stop_when, maximum or DEFAULT_MAXIMUM, problems)


def _slots(given: Any, where: str, problems: dict[str, str]) -> dict[str, SlotDefinition]:
    found: dict[str, SlotDefinition] = {}
    if given is None:
        return found
    if not isinstance(given, list):
        problems[where] = "expected a list of {key, dataFlowType}"
        return found
    for place, item in enumerate(given):
        key = item.get("key") if isinstance(item, dict) else None
        if not isinstance(key, str) or not key or "__" in key:
            problems[where] = f"item {place} needs a key without '__'"
        elif key in found:
            problems[where] = f"the key {key!r} is there twice"
        elif (kind := item.get("dataFlowType", DataFlowType.WILDCARD)) not in set(DataFlowType):
            problems[where] = f"item {place}: {kind!r:.60} is no dataFlowType"
        else:
            config = {"default": item["initial"]} if item.get("initial") is not None else None
            found[key] = SlotDefinition(data_flow_type=DataFlowType(kind), display_name=key, config=config)
    return found


def _number(value: Any, where: str, least: int, problems: dict[str, str]) -> int | None:
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= HIGHEST_MAXIMUM:
        problems[where] = f"expected an integer from {least} to {HIGHEST_MAXIMUM}, got {value!r:.60}"
        return None
    return value


def _plain(slot: SlotDefinition) -> SlotDefinition:
    return slot.model_copy(update={"config": None})


def _slot(kind: DataFlowType, description: str) -> SlotDefinition:
    return SlotDefinition(data_flow_type=kind, description=description)
