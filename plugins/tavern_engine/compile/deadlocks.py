"""Finds the readers of streams whose bound could cause a deadlock.

A node waits for those that it gets something from, and a source also for a bounded reader that is behind. With a node
that reads one stream to its end before it reads another, such waiting can go round in a circle. So where it could
go from a reader, over whatever other nodes, back to its source, the reader may be behind without limit. Everywhere
else, in chains and trees, buffers are bounded.
"""

from __future__ import annotations

from tavern_engine.compile.plan import Level

_PATIENCE = 500_000
"""How many steps are taken to find out, for a level; the readers that are left are not bounded then."""


def mark_unbounded(level: Level) -> None:
    """Mark such readers of a level as unbounded."""
    waits: list[set[int]] = [{edge.source for item in node.inputs for edge in item.edges} for node in level.nodes]
    readers: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for source, outputs in level.streams.items():
        for key, reading in outputs.items():
            for number, (index, _) in enumerate(reading):
                readers.setdefault((source, index), []).append((key, number))
                waits[source].add(index)
    candidates = _cycle_candidates(level, waits)
    left = _PATIENCE
    for index in reversed(level.order):
        for source in [source for source in waits[index] if (source, index) in readers]:
            found = readers[source, index]
            # One that reads two streams of a source, or needs its end too.
            must = len(found) > 1 or index in level.followers[source]
            if not must and source in candidates and index in candidates:
                must, left = _leads(waits, index, source, left)
            if must:
                waits[source].discard(index)
                for key, number in found:
                    level.streams[source][key][number] = (index, True)


def _cycle_candidates(level: Level, waits: list[set[int]]) -> set[int]:
    """Return the nodes that can be on an undirected cycle; fast, so that chains are excluded early."""
    streaming: set[int] = set()  # those that stream and whatever comes after them: no others wait for a reader
    for index in level.order:
        if index in level.streams or any(
            edge.source in streaming for i in level.nodes[index].inputs for edge in i.edges
        ):
            streaming.add(index)
    neighbours: dict[int, set[int]] = {index: set() for index in streaming}
    for index in streaming:
        for other in waits[index] & streaming:
            neighbours[index].add(other)
            neighbours[other].add(index)
    ends = [index for index, others in neighbours.items() if len(others) < 2]
    while ends:
        index = ends.pop()
        for other in neighbours.pop(index, ()):
            neighbours[other].discard(index)
            if len(neighbours[other]) == 1:
                ends.append(other)
    return set(neighbours)


def _leads(waits: list[set[int]], start: int, goal: int, left: int) -> tuple[bool, int]:
    """Return whether waiting goes from `start` to `goal` otherwise than at once, and how many steps are left."""
    seen = {start}
    waiting = [index for index in waits[start] if index != goal]
    while waiting:
        index = waiting.pop()
        if index in seen:
            continue
        seen.add(index)
        following = waits[index]
        left -= len(following) + 1
        if goal in following or left < 0:
            return True, left
        waiting.extend(following)
    return False, left
