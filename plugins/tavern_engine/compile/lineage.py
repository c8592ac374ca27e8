"""What code the results of nodes come from that have no signature, so that an interrupted run which goes on uses none
of another version of a plugin.

A signature stands for code and values; nodes that are never cached have none, nor has what follows them. Values are the
same when a run goes on, so the code is all that matters then.
"""

from __future__ import annotations

import marshal
from hashlib import blake2b
from typing import Any

from tavern_engine.compile.plan import Level, PlanNode

_SIZE = 12


def lineages(level: Level) -> dict[int, bytes]:
    """Return, by its number, what stands for the code of a node and of all before it: for each node of the top level
    that may have no signature."""
    if not level.asking and None not in level.tokens:
        return {}
    unsigned = _unsigned(level)
    found: list[bytes] = [b""] * len(level.nodes)
    for index in level.order:
        digest = blake2b(marshal.dumps(_code(level.nodes[index]), 2), digest_size=_SIZE)
        for source in level.sources[index]:
            digest.update(found[source])
        found[index] = digest.digest()
    return {node.number: found[index] for index, node in enumerate(level.nodes) if unsigned[index] and node.number >= 0}


def _unsigned(level: Level) -> bytearray:
    found = bytearray(len(level.nodes))
    for index in level.order:
        is_never = level.tokens[index] is None or index in level.asking
        found[index] = is_never or any(found[source] for source in level.sources[index])
    return found


def _code(node: PlanNode) -> Any:
    if node.loop is not None:
        return [_code(inner) for inner in node.loop.body.nodes]
    if node.node_type is None:
        return node.role.value
    definition = node.node_type.definition
    return definition.full_type, definition.version, node.node_type.plugin, node.node_type.version
