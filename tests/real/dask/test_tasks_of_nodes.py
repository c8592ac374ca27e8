"""Which nodes go to a cluster as one task."""

from __future__ import annotations

from tavern_dask.tasks import MOST_SECONDS, QUICK, UNKNOWN, tasks_of
from tavern_engine.api.clusters import Handle, RemoteNode, Values


def node(number: int, *sources: int, may_repeat: bool = True) -> RemoteNode:
    handles = tuple(Handle(input="a", place=None, node=source, key="b") for source in sources)
    about = {"config": Values(), "inputs": Values(), "handles": handles, "may_repeat": may_repeat}
    return RemoteNode(number=number, source=0, **about)


def numbers(nodes: list[RemoteNode], seconds: float = UNKNOWN) -> list[list[int]]:
    return [[one.number for one in task] for task in tasks_of(nodes, lambda _: seconds)]


def test_nodes_that_follow_one_another_are_one_task() -> None:
    chain = [node(0), *(node(number, number - 1) for number in range(1, 25))]
    most = int(MOST_SECONDS / UNKNOWN)
    assert [len(task) for task in numbers(chain)] == [most, most, 25 - 2 * most]
    assert numbers([node(0), node(1, 0), node(2, 0), node(3, 1, 2)]) == [[0], [1], [2], [3]]
    assert numbers([node(0), node(1, 0, may_repeat=False)]) == [[0], [1]]
    assert numbers([node(0), node(1), node(2, 1), node(3, 0)]) == [[0, 3], [1, 2]]


def test_quick_nodes_go_together() -> None:
    few = [node(number) for number in range(10)]
    assert numbers(few, QUICK / 5) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert numbers([node(0), node(1), node(2, 0, 1)], QUICK / 10) == [[0, 1], [2]]
    assert numbers([node(0), node(1, may_repeat=False)], QUICK / 10) == [[0], [1]]
