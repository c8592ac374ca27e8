"""Each broken plugin by itself, what `test_broken_together` shows of all at once; and what the corpus must have."""

from __future__ import annotations

import asyncio

import pytest
from broken_plugins import Broken
from inn import Inn, everything_else_works
from saying import CORPUS, names, prepare, says_all


def test_the_corpus_is_large_distinct_and_whole() -> None:
    said = [says for row in CORPUS for says in row.says]
    assert len({row.name for row in CORPUS}) == len(CORPUS) >= 55
    assert len({says.plugin for says in said}) >= len(CORPUS)
    assert all(row.says for row in CORPUS)
    assert [s.plugin for s in said if s.reason and not s.mend] == []


@pytest.mark.extended
@pytest.mark.parametrize("row", CORPUS, ids=[row.name for row in CORPUS])
async def test_a_broken_plugin_fails_alone(row: Broken, inn: Inn) -> None:
    host = await prepare(inn, [row])
    async with asyncio.timeout(100):
        async with host:
            says_all(inn, host, [row], "link", "load")
            await everything_else_works(host, names([row]))
            if row.use is not None:
                await row.use(host)
                says_all(inn, host, [row], "use")
                await everything_else_works(host, names([row]))
    says_all(inn, host, [row], "stop", stopped=True)
