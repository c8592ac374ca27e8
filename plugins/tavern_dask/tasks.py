"""Makes tasks of nodes: those that come one after the other, and take little time, are one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from tavern_engine.api.clusters import RemoteNode

MOST_SECONDS = 0.1
"""How long the nodes of one task should take together."""

QUICK = 0.02
"""How long nodes take together that go in one task although none follows the other."""

UNKNOWN = 0.01
"""The seconds that a node is taken for of which nothing is known."""


def tasks_of(nodes: Iterable[RemoteNode], seconds: Callable[[RemoteNode], float]) -> list[list[RemoteNode]]:
    """Return nodes, which come each after those whose values it takes, as tasks in such an order.

    A node goes into the task of the one that it follows where it follows no other and is followed alone, so that
    nothing waits for more than it has to. Some that follow none, and are known to be quick, go together. One that may
    not be repeated is a task of its own.
    """
    known = list(nodes)
    sources = {node.number: {handle.node for handle in node.handles} for node in known}
    followers = Counter(source for found in sources.values() for source in found)
    tasks: list[list[RemoteNode]] = []
    last: dict[int, tuple[list[RemoteNode], float]] = {}
    """By the number of a task's last node the task, and how long it takes."""
    quick, quick_takes = list[RemoteNode](), QUICK
    for node in known:
        own, takes = sources[node.number], seconds(node)
        source = next(iter(own)) if len(own) == 1 else -1
        task, before = last.get(source, ([], 0.0))
        is_joined = followers[source] == 1 and node.may_repeat and before + takes <= MOST_SECONDS
        if not own and node.may_repeat and takes < QUICK / 4:
            if quick_takes + takes > QUICK:
                quick, quick_takes = [], 0.0
                tasks.append(quick)
            quick.append(node)
            quick_takes += takes
            last[node.number] = quick, MOST_SECONDS
            continue
        if task and task[-1].may_repeat and is_joined:
            task.append(node)
        else:
            task, before = [node], 0.0
            tasks.append(task)
        last.pop(source, None) if is_joined else None
        last[node.number] = task, before + takes
    return tasks
