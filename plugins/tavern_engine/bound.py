"""A plan with the values of one run laid over it, and the signatures that follow from both.

A node's signature is a hash over its type, version, configuration, written values and the signatures of all that
comes before it. It is known before anything runs; equal signatures mean equal outputs. A changed value costs the
signatures of what comes after it and nothing else.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

from tavern_engine.plan import VALUE, Level, Plan, PlanNode, Role

_SIZE = 16
_NEVER = (Role.INPUT, Role.OUTPUT, Role.GROUP, Role.BYPASSED)


class Bound:
    """A plan and values. `written[i]` are the values of node `i` of the top level; `signatures[i]` is None where its
    outputs are never used again. Neither is changed once it was made."""

    __slots__ = ("plan", "signatures", "written")

    def __init__(self, plan: Plan, written: list[dict[str, Any]], signatures: list[bytes | None]) -> None:
        self.plan = plan
        self.written = written
        self.signatures = signatures

    @classmethod
    def of(cls, plan: Plan) -> Bound:
        """Return a plan with the values that its workflow has."""
        written = [node.written for node in plan.level.nodes]
        signatures: list[bytes | None] = [None] * len(written)
        _sign(plan.level, written, signatures, plan.level.order, {})
        return cls(plan, written, signatures)

    def patched(self, values: Mapping[int, dict[str, Any]], changes: Mapping[int, bytes] | None = None) -> Bound:
        """Return the plan with other values at some nodes of the top level.

        `changes` are what nodes say that must be asked whether they changed; it goes into their signatures.
        """
        different = [index for index, written in values.items() if self.written[index] != written]
        touched = [*different, *(changes or ())]
        if not touched:
            return self
        written = list(self.written)
        for index in different:
            written[index] = values[index]
        signatures = list(self.signatures)
        level = self.plan.level
        cone = _cone(level, touched)
        _sign(level, written, signatures, (index for index in level.order if cone[index]), changes or {})
        return Bound(self.plan, written, signatures)

    def with_interface(self, values: Mapping[str, Any], changes: Mapping[int, bytes] | None = None) -> Bound:
        """Return the plan with these values at its workflow's interface inputs; the others have none."""
        patches = {index: {VALUE: values[key]} if key in values else {} for key, index in self.plan.interface.items()}
        return self.patched(patches, changes)


def _cone(level: Level, touched: Iterable[int]) -> bytearray:
    """Return, by node, whether it is one of those touched or comes after one."""
    found = bytearray(len(level.nodes))
    waiting = list(touched)
    while waiting:
        index = waiting.pop()
        if not found[index]:
            found[index] = 1
            waiting.extend(level.followers[index])
            waiting.extend(level.early.get(index, ()))
    return found


def _sign(
    level: Level,
    written: list[dict[str, Any]],
    signatures: list[bytes | None],
    order: Iterable[int],
    changes: Mapping[int, bytes],
) -> None:
    """Set the signatures of the nodes in `order`."""
    nodes, simple, dumps = level.nodes, level.simple, marshal.dumps
    for index in order:
        node = nodes[index]
        token = node.token
        if token is None or node.role in _NEVER:
            signatures[index] = None
            continue
        if written[index]:
            try:
                token += dumps(written[index], 2)
            except (TypeError, ValueError):
                signatures[index] = None
                continue
        if node.kind is not None and node.kind.is_asked:
            if index not in changes:
                signatures[index] = None
                continue
            token += changes[index]
        edges = simple[index]
        try:
            if edges is not None:
                for _, source, _ in edges:
                    token += signatures[source]  # type: ignore[operator]  # None is what the TypeError is for
            else:
                token = _joined(token, node, signatures)
        except TypeError:  # something before it is never used again
            signatures[index] = None
            continue
        signatures[index] = blake2b(token, digest_size=_SIZE).digest()


def _joined(token: bytes, node: PlanNode, signatures: list[bytes | None]) -> bytes:
    for item in node.inputs:
        for feed in item.feeds:
            token += signatures[feed.source]  # type: ignore[operator]
    return token
