"""The slots that a `core:LoopZone` has by its configuration, and which of them are for whom.

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

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tavern_host.contracts.documents import json_type
from tavern_host.contracts.nodes import DataFlowType, SlotDefinition
from tavern_host.contracts.workflows import WorkflowNode
from tavern_workflows.api.workflows import LOOP_ZONE

DEFAULT_MAXIMUM = 1000
HIGHEST_MAXIMUM = 1_000_000

COUNT, INDEX, ITERATIONS, STOPPED_BY, LOG = "count", "index", "iterations", "stopped_by", "log"
IN, NEXT, OUT, EACH, LIST, STREAM = "in__", "next__", "out__", "each__", "list__", "stream__"


@dataclass(frozen=True)
class Zone:
    """What a zone's configuration says. `problems` names, by place in the configuration (`("carried", 2)`), what is
    wrong with it; the parts that are wrong are left out of the rest."""

    carried: dict[str, SlotDefinition] = field(default_factory=dict)
    per_iteration: dict[str, SlotDefinition] = field(default_factory=dict)
    count: int | None = None
    condition: str | None = None
    stop_when: bool = True
    maximum: int = DEFAULT_MAXIMUM
    problems: dict[tuple[str | int, ...], str] = field(default_factory=dict)

    @property
    def has_all_slots(self) -> bool:
        """Whether no slot is left out because of a problem."""
        return not {place[0] for place in self.problems} & {"carried", "perIteration", "conditionSlot"}

    @functools.cached_property
    def outer_inputs(self) -> dict[str, SlotDefinition]:
        """The inputs that edges from outside may feed."""
        found = {f"{IN}{key}": slot for key, slot in self.carried.items()}
        return {**found, COUNT: _slot(DataFlowType.INTEGER, "How many iterations.")}

    @functools.cached_property
    def inner_inputs(self) -> dict[str, SlotDefinition]:
        """The inputs that edges from inside may feed."""
        found = {f"{NEXT}{key}": _plain(slot) for key, slot in self.carried.items()}
        found |= {f"{EACH}{key}": slot for key, slot in self.per_iteration.items()}
        if self.condition is not None:
            found[self.condition] = _slot(DataFlowType.BOOLEAN, "Whether the loop ends here.")
        return found

    @functools.cached_property
    def inner_outputs(self) -> dict[str, SlotDefinition]:
        """The outputs that edges to the inside may read."""
        found = {f"{IN}{key}": _plain(slot) for key, slot in self.carried.items()}
        return {**found, INDEX: _slot(DataFlowType.INTEGER, "The number of the iteration, from 0.")}

    @functools.cached_property
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
    """Return the zone that a configuration describes; never raises."""
    problems: dict[tuple[str | int, ...], str] = {}
    carried = _slots(config.get("carried"), "carried", problems)
    per_iteration = {k: _plain(s) for k, s in _slots(config.get("perIteration"), "perIteration", problems).items()}
    condition = None if config.get("conditionSlot") == "" else config.get("conditionSlot")
    if condition is not None and (not isinstance(condition, str) or "__" in condition or condition == COUNT):
        expected = f"expected the key of a slot, without '__' and not {COUNT!r}"
        problems[("conditionSlot",)] = f"{expected}, got {_shown(condition)}"
        condition = None
    stop_when = config.get("stopWhen", True)
    if not isinstance(stop_when, bool):
        problems[("stopWhen",)] = f"expected true or false, got {_shown(stop_when)}"
        stop_when = True
    count = _number(config.get("count"), "count", 0, problems)
    maximum = _number(config.get("maxIterations"), "maxIterations", 1, problems)
    return Zone(carried, per_iteration, count, condition, stop_when, maximum or DEFAULT_MAXIMUM, problems)


def enclosing_zones(nodes: Iterable[WorkflowNode]) -> dict[str, str]:
    """Return by node the innermost loop that it lies in; nodes that lie in none are left out.

    A parent that is no loop, a frame of the canvas say, is passed through: what lies in it lies where it does. Nodes
    that are inside of one another lie in no loop. Of several nodes with one id the first counts.
    """
    parents: dict[str, str | None] = {}
    zones: set[str] = set()
    for node in nodes:
        if node.id not in parents:
            parents[node.id] = node.parent_node
            if node.type == LOOP_ZONE:
                zones.add(node.id)
    if not zones:
        return {}
    found: dict[str, str | None] = {}
    for start in parents:
        path: dict[str, int] = {}
        current: str | None = start
        while current is not None and current in parents and current not in found and current not in path:
            path[current] = len(path)
            current = parents[current]
        circle = path[current] if current is not None and current in path else len(path)
        for inner, place in reversed(path.items()):
            parent = parents[inner] if place < circle else None
            found[inner] = parent if parent is None or parent in zones else found.get(parent)
    return {node_id: zone for node_id, zone in found.items() if zone is not None}


def _slots(value: Any, where: str, problems: dict[tuple[str | int, ...], str]) -> dict[str, SlotDefinition]:
    found: dict[str, SlotDefinition] = {}
    if value is None:
        return found
    if not isinstance(value, list):
        problems[(where,)] = f"expected a list of {{key, dataFlowType}}, got {json_type(value)}"
        return found
    for place, item in enumerate(value):
        if not isinstance(item, dict):
            problems[where, place] = f"expected an object with a key, got {json_type(item)}"
            continue
        key, kind = item.get("key"), item.get("dataFlowType", DataFlowType.WILDCARD)
        if not isinstance(key, str) or not key or "__" in key:
            problems[where, place, "key"] = f"expected a name without '__', got {_shown(key)}"
        elif key in found:
            problems[where, place, "key"] = f"the key {_shown(key)} is there twice"
        elif not isinstance(kind, str) or kind not in set(DataFlowType):
            problems[where, place, "dataFlowType"] = f"{_shown(kind)} is no dataFlowType"
        else:
            config = {"default": item["initial"]} if item.get("initial") is not None else None
            found[key] = SlotDefinition(data_flow_type=DataFlowType(kind), display_name=key, config=config)
    return found


def _number(value: Any, where: str, least: int, problems: dict[tuple[str | int, ...], str]) -> int | None:
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= HIGHEST_MAXIMUM:
        problems[(where,)] = f"expected an integer from {least} to {HIGHEST_MAXIMUM:,}, got {_shown(value)}"
        return None
    return value


def _shown(value: Any) -> str:
    """Return a value for a message: short text and small numbers as they are, of others what they are."""
    if isinstance(value, str):
        return repr(value) if len(value) <= 60 else f"{value[:60]!r}…"
    if isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**15):
        return str(value).lower()
    return json_type(value)


def _plain(slot: SlotDefinition) -> SlotDefinition:
    return slot if slot.config is None else slot.model_copy(update={"config": None})


@functools.cache
def _slot(kind: DataFlowType, description: str) -> SlotDefinition:
    return SlotDefinition(data_flow_type=kind, description=description)
