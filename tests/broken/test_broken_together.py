"""All broken plugins in one host: each is named with its reason and mend, and everything else works."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
from broken_corpus import CORPUS
from inn import Inn, everything_else_works
from saying import names, prepare, says_all

from tavern_host import Host
from tavern_host.contracts.plugins import PluginState
from tavern_host.testing.http import served

NEVER_IMPORTED = (PluginState.INVALID, PluginState.NEEDS_REVIEW)


async def test_broken_plugins_leave_all_else_working(inn: Inn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imported = tmp_path / "imported"
    imported.mkdir()
    host = await prepare(inn, CORPUS)
    threads, tasks = set(threading.enumerate()), asyncio.all_tasks()
    monkeypatch.setenv("TAVERN_IMPORTED", str(imported))
    async with host:
        says_all(inn, host, CORPUS, "link", "load")
        assert "tavern_plugins.healthy" in {file.name for file in imported.iterdir()}
        assert imported_of(host, imported, NEVER_IMPORTED) == []
        await everything_else_works(host, names(CORPUS))
        for row in CORPUS:
            if row.use is not None:
                await row.use(host)
        says_all(inn, host, CORPUS, "use")
        await everything_else_works(host, names(CORPUS))
        await they_are_listed_over_http(host)
    says_all(inn, host, CORPUS, "stop", stopped=True)
    shared = ("asyncio_", "waiting for a job")  # threads that are kept for whoever needs one next
    left = [thread.name for thread in set(threading.enumerate()) - threads if not thread.name.startswith(shared)]
    assert unknown(left, [name for row in CORPUS for name in row.threads]) == []
    assert unknown([t.get_name() for t in asyncio.all_tasks() - tasks], [n for r in CORPUS for n in r.tasks]) == []


def imported_of(host: Host, imported: Path, states: Iterable[PluginState]) -> list[str]:
    """Return the modules of plugins in these states that were imported all the same."""
    valid = {p.name for p in host.plugins() if p.state not in states}
    refused = {p.name.replace("-", "_") for p in host.plugins() if p.state in states and p.name not in valid}
    modules = (file.name for file in imported.iterdir())
    return [m for m in modules if m.removeprefix("tavern_plugins.").removesuffix("_pack").split(".")[0] in refused]


def unknown(left: list[str], known: list[str]) -> list[str]:
    """Return those names that begin with none of the known ones."""
    return [name for name in left if not name.startswith(tuple(known))]


async def they_are_listed_over_http(host: Host) -> None:
    """Fail where the list over HTTP is not the host's own, or what belongs to healthy plugins does not answer."""
    async with served(host) as site:
        listed = await (await site.get("/api/plugins")).json()
        assert listed == [plugin.to_json() for plugin in host.plugins()]
        assert await (await site.get("/api/x/healthy/ping")).json() == "pong"
        body = {"toolId": "healthy:greet", "arguments": {"name": "Ada"}}
        answer = await (await site.post("/api/tools/execute", json=body)).json()
        assert [result["structured"] for result in answer["results"]] == ["Hello, Ada"]
