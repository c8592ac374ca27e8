"""The kinds of nodes that the compiler knows: a node type in one of its modes, and the shapes that the edges of its
nodes have. Both are computed once and shared by many nodes."""

from __future__ import annotations

import marshal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

from tavern_engine.registry import NodeType
from tavern_host.contracts.nodes import DirectCall, NodeCall, NodeInstance, NodeRunner, SlotDefinition
from tavern_host.contracts.workflows import WorkflowNode
from tavern_workflows.api.dataflow import Converter, compatible, converter, find_slot, literal_converter

Slots = dict[str, SlotDefinition]

Call = Callable[[dict[str, Any], NodeCall | None], Awaitable[dict[str, Any]]]
"""Runs a node."""

_CONTAINERS = frozenset((list, dict))

TOKEN_SIZE = 16
"""The size in bytes of the token of a node in its signature."""


Joins = tuple[tuple[str, str], ...]
"""By edge, the input and the output that it joins."""


class Invocation(NamedTuple):
    """How to call a node that needs nothing but the values of its edges and its written values: by `call`; where it has
    a `function`, faster by that. Its result is then the one output, `output`; it is awaited where it `is_async`.

    `in_order`: where what edges bring, and then what is written, are the first parameters of the function, in their
    order, the name of the output that all edges bring; else None.
    """

    joins: Joins
    call: Call
    function: Callable[..., Any] | None
    output: str
    is_async: bool
    in_order: str | None = None


Calls = tuple[Call | None, DirectCall | None]
"""The call of a node that needs nothing but its inputs, and its direct call where it has one."""


class Source(Protocol):
    """A node that an edge may come from."""

    outputs: Slots


@dataclass(eq=False, slots=True)
class OwnOutputs:
    """The outputs of a node without a type: one that the compiler added, or a loop."""

    outputs: Slots


class Kind:
    """A node type, in one mode and with one way to treat errors: its slots, defaults, and how it is run.

    `config` is the configuration of nodes that have none of their own. A `multi` slot, a stream or a slot without a
    name makes its `shape` `IRREGULAR`: its edges are compiled one by one.
    """

    def __init__(
        self, node_type: NodeType, inputs: Slots, outputs: Slots, dynamic: bool, config: dict[str, Any]
    ) -> None:
        definition = node_type.definition
        traits = definition.traits
        self.type = definition.full_type
        self.label = definition.display_name or self.type
        self.inputs, self.outputs, self.dynamic, self.config = inputs, outputs, dynamic, config
        self.node_type = node_type
        self.runner: NodeRunner = node_type.runner()
        self.defaults = {
            key: written_value(slot, slot.default) for key, slot in inputs.items() if slot.default is not None
        }
        self.is_asked = traits.checks_change
        self.is_plain = not (traits.streams or traits.stateful or traits.wants_call or traits.placement == "process")
        self.is_direct = self.is_plain and not dynamic and inputs.keys() <= node_type.original.inputs.keys()
        self.instance: NodeInstance | None = None
        self.calls: Calls | None = None
        self.token: bytes | None = None
        if traits.cached:
            code = (self.type, definition.version, node_type.plugin, node_type.version)
            self.token = token_of((*code, node_type.settings, sorted(inputs)))
        is_open = dynamic or any(slot.multi or slot.is_stream for slot in inputs.values())
        self.shape = IRREGULAR if is_open else Shape(self, ())

    def values(self, node: WorkflowNode) -> dict[str, Any]:
        """Return the written value of each input that has one, else its default; null is no value. The dict must
        not be changed."""
        if not node.input_values:
            return self.defaults
        found = dict(self.defaults)
        for key, value in node.input_values.items():
            if value is None:
                continue
            slot = self.inputs.get(key)
            if slot is not None:
                found[key] = written_value(slot, value)
            elif self.dynamic:
                named = find_slot(self.inputs, key)
                found[named[0] if named else key] = value
        return found

    def ready(self) -> Calls:
        """Open the instance that all nodes without a configuration of their own share; return how they are run."""
        if self.calls is None:
            self.instance = self.open(self.config)
            self.calls = self.calls_of(self.instance)
        return self.calls

    def open(self, config: dict[str, Any]) -> NodeInstance | None:
        """Return the instance that runs a node with this configuration; None where it has a state, or fails: it is then
        opened where it is run, and its error is the node's."""
        if self.node_type.definition.traits.stateful:
            return None
        try:
            return self.runner.open(config)
        except Exception:  # it is the plugin's code
            return None

    def calls_of(self, instance: NodeInstance | None) -> Calls:
        """Return how a node with this instance is run with nothing but its inputs, where it can be."""
        if instance is None or not self.is_plain:
            return None, None
        return instance.run, instance.direct if self.is_direct else None


class Shape:
    """The edges of a node: its kind and the slots that they join, in order, whichever nodes they come from.

    Nodes have few shapes, so the transition that a further edge makes is computed once; it leads to `IRREGULAR` where
    the edge does more than bring a value as it is.
    """

    by_name: Invocation | None
    """How a node is run, whatever its written values are."""
    in_order: Invocation | None
    """The same where its written values are the `parameters` after those that edges bring."""
    bare: Invocation | None
    """The same where it has no written values."""

    def __init__(self, kind: Kind, slots: tuple[tuple[str, str, SlotDefinition], ...]) -> None:
        self.transitions: dict[str, dict[str, dict[Source, Shape]]] = {}
        """The shapes that further edges lead to, as far as they are computed: by input, output and source."""
        self.kind = kind
        self.slots = slots
        """By edge the input, the output and its slot."""
        self.joins: Joins = tuple((key, handle) for key, handle, _ in slots)
        fed = {key for key, _ in self.joins}
        self.missing = frozenset(key for key, slot in kind.inputs.items() if slot.required and key not in fed)
        self.token: bytes | None = None
        if kind.token is not None:
            self.token = token_of((kind.token, list(self.joins))) if slots else kind.token

    def ready(self) -> None:
        """Compute how nodes of this shape are called."""
        self.by_name = self.in_order = invocation_of(self.kind.ready(), self.joins)
        self.parameters: tuple[str, ...] = ()
        code = getattr(self.by_name.function, "__code__", None) if self.by_name is not None else None
        if self.by_name is not None and code is not None:
            names = code.co_varnames[: code.co_argcount]
            fed, outputs = tuple(key for key, _ in self.joins), {output for _, output in self.joins}
            if names[: len(fed)] == fed and len(outputs) <= 1:
                self.in_order = self.by_name._replace(in_order=next(iter(outputs), ""))
                self.parameters = names[len(fed) :]
        self.bare = None if self.missing else self.in_order

    def invocation(self, written: dict[str, Any]) -> Invocation | None:
        """Return how a node with these written values is run if they and what edges bring are all that it needs."""
        if not written:
            return self.bare
        if not (self.missing <= written.keys() and is_flat(written)):
            return None
        return self.in_order if self.parameters[: len(written)] == tuple(written) else self.by_name

    def after(self, source: Source, handle: str, into: str) -> Shape:
        """Return the shape with a further edge."""
        known = self.transitions.setdefault(into, {}).setdefault(handle, {})
        if source not in known:
            known[source] = self._after(source, handle, into)
        return known[source]

    def _after(self, source: Source, handle: str, into: str) -> Shape:
        slot, wanted = source.outputs.get(handle), self.kind.inputs.get(into)
        is_plain = (
            slot is not None
            and wanted is not None
            and not slot.is_stream
            and into not in (key for key, _, _ in self.slots)
            and compatible(slot, wanted) is None
            and converter(slot, wanted) is None
        )
        return Shape(self.kind, (*self.slots, (into, handle, slot))) if is_plain and slot is not None else IRREGULAR


class _Irregular(Shape):
    """The shape of a node whose edges are compiled one by one."""

    def __init__(self) -> None:
        self.transitions, self.missing = {}, frozenset()
        self.token, self.joins, self.parameters = None, (), ()
        self.by_name = self.in_order = self.bare = None

    def ready(self) -> None: ...

    def after(self, source: Source, handle: str, into: str) -> Shape:
        return self


IRREGULAR: Shape = _Irregular()


def invocation_of(calls: Calls, joins: Joins) -> Invocation | None:
    """Return how a node is run by its inputs' names, where it can be run with nothing but them."""
    call, direct = calls
    if call is None:
        return None
    return Invocation(joins, call, *direct) if direct is not None else Invocation(joins, call, None, "", False)


def is_flat(written: dict[str, Any]) -> bool:
    """Return whether values need no copy for each run."""
    return _CONTAINERS.isdisjoint(map(type, written.values()))


def token_of(about: Any) -> bytes:
    """Return the token of plain data in a signature. Raises `ValueError` for what is not plain data."""
    return blake2b(marshal.dumps(about, 2), digest_size=TOKEN_SIZE).digest()


def joined(token: bytes | None, other: bytes | None) -> bytes | None:
    """Return the token of two things together; None where one of them is not reusable."""
    if token is None or other is None:
        return None
    return token_of((token, other)) if token else other


def written_value(slot: SlotDefinition, value: Any) -> Any:
    """Return a value written for a slot as the slot's type has it."""
    if slot.multi and not isinstance(value, list):
        value = [value]
    return converted(literal_converter(slot), value, is_list=bool(slot.multi))


def converted(convert: Converter | None, value: Any, *, is_list: bool) -> Any:
    """Return a written value, or each of a list, in another form; one that has no such form is passed as written."""
    if convert is None:
        return value
    try:
        return [convert(each) for each in value] if is_list else convert(value)
    except (OverflowError, ValueError):
        return value
