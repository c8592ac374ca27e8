"""Each broken plugin by itself, what `test_broken_together` shows of all at once; and what the corpus must have."""

from __future__ import annotations

import pytest
from base_project import BaseProject
from broken_plugins import Broken
from corpus import CORPUS, EVERY, fails_alone


def test_the_corpus_is_large_distinct_and_whole() -> None:
    said = [says for row in EVERY for says in row.says]
    assert len({row.name for row in EVERY}) == len(EVERY) >= 55
    assert len({says.plugin for says in said}) >= len(EVERY)
    assert all(row.says for row in EVERY)
    assert [s.plugin for s in said if s.reason and not s.mend] == []


@pytest.mark.extended
@pytest.mark.usefixtures("hanging")
@pytest.mark.parametrize("row", CORPUS, ids=[row.name for row in CORPUS])
async def test_a_broken_plugin_fails_alone(row: Broken, inn: BaseProject) -> None:
    await fails_alone(inn, row)
