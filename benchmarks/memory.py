"""What remembering costs: adding to a long conversation and reading its end, searching a knowledge base, and runs that
have ended (docs/performance.md)."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from benchmarks import codecalls, finishedruns, lore
from benchmarks.harness import ROUNDS, Result, awaited, measured
from tavern_agents.api.histories import CHAT_HISTORY, ChatHistory
from tavern_host import Host
from tavern_host.projects import Folders
from tavern_knowledge.api.knowledge import KNOWLEDGE_BASE, BaseHeader, KnowledgeBase
from tavern_llm.api.llm import ChatMessage

SHORT, LONG = 100, 10_000
LAST = 50
TIMES = 40
MESSAGE = ChatMessage(role="user", content="It was a dark and stormy night at the inn. " * 7)


def history() -> list[Result]:
    """Measure adding a message to a conversation of 10,000, and reading the last 50 of one of its branches; beside it,
    the same in one of 100. Adding is stored in SQLite (WAL, NORMAL)."""
    return asyncio.run(_history())


async def _history() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        folders = Folders(*(Path(folder) / name for name in ("config", "state", "data")))
        async with Host(Path(folder) / "project", folders=folders) as host:
            kept = host.services.get(CHAT_HISTORY)
            for size in (SHORT, LONG):
                await kept.append(str(size), [MESSAGE] * size)
                (middle,) = (await kept.load(str(size)))[size // 2 : size // 2 + 1]
                await kept.fork(str(size), "side", message_id=middle.id)
                await kept.add(str(size), [MESSAGE] * LAST, branch="side")
            return [
                await _compared("a message added to a conversation of 10,000", lambda id: kept.append(id, [MESSAGE])),
                await _compared("the last 50 messages of a branch, of 10,000", lambda id: _last(kept, id)),
            ]


async def _last(kept: ChatHistory, id: str) -> None:
    assert len(await kept.load_branch(id, "side", last=LAST)) == LAST


async def _compared(name: str, work: Callable[[str], Awaitable[object]], limit: float = 2) -> Result:
    pairs = []
    for _ in range(ROUNDS):
        long = await awaited(lambda: work(str(LONG)), TIMES) / TIMES
        pairs.append((long, await awaited(lambda: work(str(SHORT)), TIMES) / TIMES))
    return measured(name, pairs, "in one of 100", limit, limited="value", unit="ms", scale=1e3)


def knowledge() -> list[Result]:
    """Measure a search among 10,000 entries, by questions of five words; beside it, among 100."""
    return asyncio.run(_knowledge())


async def _knowledge() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        folders = Folders(*(Path(folder) / name for name in ("config", "state", "data")))
        async with Host(Path(folder) / "project", folders=folders) as host:
            kept = host.services.get(KNOWLEDGE_BASE)
            for size in (SHORT, LONG):
                await kept.save_base(BaseHeader(kb_id=str(size)))
                made = lore.entries(size)
                for begin in range(0, size, 1000):
                    await kept.put(str(size), made[begin : begin + 1000])
            results = []
            for name, language in (("English", lore.english()), ("Chinese", lore.chinese())):
                work = partial(_ask, kept, language)
                results.append(await _compared(f"a search by {name} words among 10,000 entries", work, limit=5))
            return results


async def _ask(kept: KnowledgeBase, language: lore.Language, base: str) -> None:
    assert await kept.search(language.text(5), bases=[base])


FIGURES = {"history": history, "knowledge": knowledge, "code": codecalls.code, "finished": finishedruns.finished}
