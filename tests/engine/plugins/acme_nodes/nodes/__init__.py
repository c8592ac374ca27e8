"""Nodes for tests of the engine: of every type, slow, failing, and badly behaved."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from datetime import datetime
from typing import Annotated, Any

from tavern_host import Config, NodeContext, NodeDefinition, Slot, node
from tavern_host.contracts.nodes import DataFlowType, NodeMode, SlotDefinition
from tavern_host.contracts.wire import Model
from tavern_llm.api.llm import Transcript

_TYPES = [str(t) for t in DataFlowType]


def _of_type(name: str, inputs: bool) -> dict[str, NodeMode]:
    def slot(kind: str) -> dict[str, SlotDefinition]:
        return {"value": SlotDefinition(data_flow_type=DataFlowType(kind))}

    wild = {"value": SlotDefinition(data_flow_type=DataFlowType.WILDCARD)}
    return {
        kind: NodeMode(id=kind, inputs=slot(kind) if inputs else {}, outputs=wild if inputs else slot(kind))
        for kind in _TYPES
    }


GIVE = NodeDefinition(
    type="Give",
    namespace="acme-nodes",
    config_schema={
        "type": SlotDefinition(data_flow_type=DataFlowType.STRING, config={"default": "WILDCARD"}),
        "value": SlotDefinition(data_flow_type=DataFlowType.WILDCARD),
    },
    modes=_of_type("Give", inputs=False),
    default_mode_id="WILDCARD",
    mode_config_key="type",
)
TAKE = NodeDefinition(
    type="Take",
    namespace="acme-nodes",
    config_schema={"type": SlotDefinition(data_flow_type=DataFlowType.STRING, config={"default": "WILDCARD"})},
    modes=_of_type("Take", inputs=True),
    default_mode_id="WILDCARD",
    mode_config_key="type",
)
MIRROR = NodeDefinition(type="Mirror", namespace="acme-nodes", dynamic_slots=True)
NOTHING = NodeDefinition(
    type="Nothing", namespace="acme-nodes", outputs={"value": SlotDefinition(data_flow_type=DataFlowType.STRING)}
)


@node(definition=GIVE)
def give(inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    return {"value": config["value"]}


@node(definition=TAKE)
def take(inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    return {"value": inputs.get("value", "nothing came")}


@node(definition=MIRROR)
def mirror(inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    return inputs


@node(definition=NOTHING)
def nothing(inputs: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    return {}


@node()
def add(a: int, b: int = 1) -> Annotated[int, Slot(key="sum")]:
    return a + b


@node()
def collect(values: Annotated[list[Any], Slot(multi=True, required=False)]) -> Annotated[list[Any], Slot(key="list")]:
    return values


@node()
def collect_text(values: Annotated[list[str], Slot(multi=True)]) -> Annotated[list[Any], Slot(key="list")]:
    return values


@node()
async def pause(value: Any = None, turns: int = 1) -> Annotated[Any, Slot(key="value")]:
    for _ in range(turns):
        await asyncio.sleep(0)
    return value


@node()
def boom(value: Any = None, message: str = "boom") -> Annotated[Any, Slot(key="value")]:
    raise ValueError(message)


@node(type="Leave")
def leave(value: Any = None) -> Annotated[Any, Slot(key="value")]:
    sys.exit(3)


@node()
async def cancel_itself(value: Any = None) -> Annotated[Any, Slot(key="value")]:
    task = asyncio.current_task()
    task.cancel()
    await asyncio.sleep(0)
    return value


@node()
async def hang(context: NodeContext, value: Any = None) -> Annotated[Any, Slot(key="value")]:
    """Wait for ever; say so when it is released."""
    try:
        await asyncio.Event().wait()
    finally:
        context.plugin.events.publish("ACME_RELEASED", {"node": context.node_id})
    return value


_MEETINGS: dict[tuple[str, str], asyncio.Barrier] = {}


@node()
async def meet(context: NodeContext, room: str, people: int, value: Any = None) -> Annotated[Any, Slot(key="value")]:
    """Wait until `people` nodes of this run are in the same room."""
    barrier = _MEETINGS.setdefault((context.run_id, room), asyncio.Barrier(people))
    async with asyncio.timeout(60):
        await barrier.wait()
    return value


_COLOUR: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")


@node()
def paint(colour: str) -> Annotated[str, Slot(key="value")]:
    _COLOUR.set(colour)
    return colour


@node()
def look(value: Any = None) -> Annotated[str, Slot(key="value")]:
    return _COLOUR.get()


@node(blocking=True)
def where(value: Any = None) -> Annotated[str, Slot(key="value")]:
    return "main" if threading.current_thread() is threading.main_thread() else "thread"


class Amount(Model):
    """A frozen model, which has no codec."""

    real: int


def nested(levels: int) -> list[Any]:
    """Return a list within lists."""
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


@node()
def odd(kind: Annotated[str, Config()] = "object") -> Annotated[Any, Slot(key="value")]:
    """Give values that JSON does not have."""
    return {
        "object": object(),
        "nan": float("nan"),
        "inf": [float("inf")],
        "bytes": b"\x00",
        "surrogate": "a\ud800b",
        "keys": {1: "one"},
        "set": {1},
        "model": Amount(real=1),
        "int": {"a": [2**63]},
        "smallest": -(2**63) - 1,
        "deep": nested(101),
        "naive": datetime(2020, 1, 1),
    }[kind]


@node()
def told(context: NodeContext, value: Any = None) -> Annotated[dict[str, Any], Slot(key="value")]:
    """Give what the node is told of its call."""
    call = context.call
    return {
        "run": context.run_id,
        "node": context.node_id,
        "call_run": call.run_id,
        "principal": str(call.principal),
        "trace": call.trace_id,
        "depth": call.depth,
    }


@node()
def keeps_list(items: list[Any]) -> Annotated[list[Any], Slot(key="value")]:
    return items


@node()
def any_add(any: Any = 0, b: int = 0) -> Annotated[Any, Slot(key="sum")]:
    return any + b


@node(type="Kind", cached=False)
def kind(all: Annotated[list[Any] | Transcript, Slot("Messages.")]) -> str:
    """Give the type of what it is given."""
    return type(all).__name__


@node(type="Empty", cached=False)
def empty(all: list[Any]) -> int:
    """Empty the list that it is given, and give how many objects it had."""
    found = sum(isinstance(one, dict) for one in all)
    all.clear()
    return found
