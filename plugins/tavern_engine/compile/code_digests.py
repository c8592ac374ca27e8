"""Digests of nodes that have no signature, so that a resumed run reuses no result of another version of a plugin, nor
of a node that was changed since.

A signature covers code and values; nodes that are never cached have none, nor have their followers. What is made here
covers all of a node but its values and what comes before it: `BoundPlan.digests` adds those.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from tavern_engine.compile.plan import Level, PlanNode

_SIZE = 12


def code_digests(level: Level) -> dict[int, bytes]:
    """Return the digest of each node of the top level that may have no signature."""
    if not level.asking and None not in level.tokens:
        return {}
    unsigned = _unsigned(level)
    return {
        index: blake2b(repr(_parts(node)).encode("utf-8", "surrogatepass"), digest_size=_SIZE).digest()
        for index, node in enumerate(level.nodes)
        if unsigned[index]
    }


def _unsigned(level: Level) -> bytearray:
    found = bytearray(len(level.nodes))
    for index in level.order:
        is_never = level.tokens[index] is None or index in level.asking
        found[index] = is_never or any(found[source] for source in level.sources[index])
    return found


def _parts(node: PlanNode) -> list[Any]:
    """Return the code and the configuration of a node, and what its edges join; of a loop, of all in it."""
    found: list[Any] = [
        node.role.value,
        sorted(node.config.items()),
        [(i.key, [e.key for e in i.edges]) for i in node.inputs],
    ]
    if node.node_type is not None:
        definition = node.node_type.definition
        found += [definition.full_type, definition.version, node.node_type.plugin, node.node_type.version]
    if node.loop is not None:
        body = node.loop.body
        found += [(_parts(inner), inner.written, body.sources[index]) for index, inner in enumerate(body.nodes)]
    return found
