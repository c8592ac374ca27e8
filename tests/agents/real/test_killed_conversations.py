"""A host that is killed while it writes conversations loses nothing that it acknowledged."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from helpers.repetition import repetitions
from helpers.survival import killed
from test_history_branches import prepare

from tavern_llm.api.llm import ChatMessage
from tests.agents.agent_bench import agent_bench
from tests.agents.survivor import converse

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("_", range(repetitions(1, 10)))
async def test_a_kill_loses_nothing_that_was_acknowledged(tmp_path: Path, _: int) -> None:
    acknowledged: dict[str, list[tuple[str, str, int]]] = {}
    for history, *change in await killed(converse, tmp_path, lines=random.randint(60, 240)):
        acknowledged.setdefault(history, []).append(change)
    assert len(acknowledged) == 3
    async with agent_bench(tmp_path, prepare) as bench:
        kept = bench.histories
        for history, changes in acknowledged.items():
            nodes = await kept.tree(history, limit=10_000)
            assert (await kept.get_history(history)).messages == len(nodes)
            depths: dict[str | None, int] = {None: 0}
            for node in nodes:
                depths[node.id] = depths[node.parent_id] + 1
            assert [depths[node.id] for node in nodes] == [node.depth for node in nodes]
            remembered = [(id, number) for what, id, number in changes if what == "remembered"]
            for id, number in remembered[-5:]:
                assert (await bench.runtime.memory("keeper", history, leaf=id)).state == {"n": number}
            added = [(id, count) for what, id, count in changes if what == "added"]
            assert {id for id, _ in added} <= set(depths)
            assert 0 <= len(nodes) - 1 - sum(count for _, count in added) <= 2
            forks = {name for what, name, _ in changes if what == "forked"}
            assert forks <= {branch.name for branch in (await kept.get_history(history)).branches}
            path = await kept.load(history)
            assert added[-1][0] in {node.id for node in nodes[-3:]}
            assert [one.parent_id for one in path] == [None, *(one.id for one in path[:-1])]
            await kept.append(history, [ChatMessage(role="user", content="On.")], parent_id=path[-1].id)
