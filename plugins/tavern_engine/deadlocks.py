"""Finds the readers of streams whose bound could make nodes wait for one another for ever.

A node that reads one stream to its end before it looks at another holds up the second one's source. Where both
come, over whatever nodes, from one source, that source is then held up too, and nothing goes on. So a reader whose
node gets something else that comes from the same source holds items without limit. Everywhere else buffers are bounded.
"""

from __future__ import annotations

from tavern_engine.plan import Level


def mark_unbounded(level: Level) -> None:
    """Mark such readers of a level as unbounded."""
    before: list[int] = [0] * len(level.nodes)  # as bits: the streaming nodes that come before a node, and itself
    for index in level.order:
        bits = 1 << index if index in level.streams else 0
        for item in level.nodes[index].inputs:
            for feed in item.feeds:
                bits |= before[feed.source]
        before[index] = bits
    for index, node in enumerate(level.nodes):
        if sum(len(item.feeds) for item in node.inputs) < 2:
            continue
        for item in node.inputs:
            for feed in item.feeds:
                if feed.reader < 0:
                    continue
                others = 0
                for other in node.inputs:
                    for its in other.feeds:
                        if its is not feed:
                            others |= before[its.source]
                if others & before[feed.source]:
                    level.streams[feed.source][feed.key][feed.reader] = (index, True)
