"""Digests of the code of nodes that have no signature, so that a resumed run reuses no result of another version of a
plugin.

A signature covers code and values; nodes that are never cached have none, nor have their followers. A resumed run has
the same values, so only the code matters then.
"""

from __future__ import annotations

import marshal
from hashlib import blake2b
from typing import Any

from tavern_engine.compile.plan import Level, PlanNode

_SIZE = 12


def code_digests(level: Level) -> dict[int, bytes]:
    """Return, by number, the digest of the code of a node and of all its ancestors, for each node of the top level that
    may have no signature."""
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
