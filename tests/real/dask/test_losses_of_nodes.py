"""What becomes of nodes whose workers are lost: those that ran there, and those that only were there."""

from __future__ import annotations

from itertools import count

from tavern_dask.passes import MOST_IN_VAIN, MOST_LOSSES, Sent
from tavern_dask.worker import Placed
from tavern_engine.api.clusters import RemoteNode, Values


def sent() -> Sent:
    return Sent(Placed(node=RemoteNode(number=0, source=0, config=Values(), inputs=Values()), code="code", key="key"))


def test_a_node_that_ends_workers_fails() -> None:
    node, ended, said = sent(), count(), None
    for time in range(MOST_LOSSES + 1):
        assert said is None
        node.begun_at = f"tls://{time}"
        said = node.lost(f"tls://{time}", is_own=True, ended=next(ended))
    reason = "it ends workers, or needs more memory than they have"
    assert said == f"the worker tls://4 was lost while it ran, for the 5th time: {reason}"


def test_losses_around_a_node_are_not_its_own() -> None:
    waiting, after, ended = sent(), sent(), count()
    waiting.begun_at, after.begun_at = "tls://elsewhere", "tls://here"
    for _ in range(200):
        assert waiting.lost("tls://here", is_own=True, ended=next(ended)) is None
        assert after.lost("tls://here", is_own=False, ended=next(ended)) is None
    said = [waiting.lost("tls://here", is_own=True, ended=10_000) for _ in range(MOST_IN_VAIN + 2)]
    assert set(said[:-1]) == {None}
    assert (
        said[-1] == "workers that had it were lost 21 times in a row, and no other node ended; the last was tls://here"
    )
