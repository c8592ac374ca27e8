"""All broken plugins at once: each is named with its reason and mend, everything else works, and nothing stays."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from base_project import BaseProject, everything_else_works
from broken_plugins import Says
from corpus import CORPUS, names, prepare, says_all
from helpers.command_line import tavern
from helpers.repetition import repetitions
from helpers.waiting import until

from tavern_host import Host
from tavern_host.contracts.plugins import PluginState
from tavern_host.testing.http import served

SAID = [says for row in CORPUS for says in row.says]


@pytest.mark.usefixtures("hanging")
async def test_broken_plugins_leave_all_else_working(
    inn: BaseProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = tmp_path / "imported"
    imported.mkdir()
    host = await prepare(inn, CORPUS)
    monkeypatch.setenv("TAVERN_IMPORTED", str(imported))
    await asyncio.to_thread(they_are_listed_without_being_imported, inn, imported)
    threads, tasks = set(threading.enumerate()), asyncio.all_tasks()
    async with host:
        says_all(inn, host, CORPUS, "link", "load")
        assert "tavern_plugins.healthy" in {file.name for file in imported.iterdir()}
        assert imported_of(host, imported, (PluginState.INVALID, PluginState.NEEDS_REVIEW)) == []
        await everything_else_works(host, names(CORPUS))
        for row in CORPUS:
            if row.use is not None:
                await row.use(host)
        says_all(inn, host, CORPUS, "use")
        await everything_else_works(host, names(CORPUS))
        await they_are_listed_over_http(host)
        await they_are_taken_out(host)
        await everything_else_works(host, names(CORPUS))
    says_all(inn, host, CORPUS, "stop", stopped=True)
    shared = ("asyncio_", "waiting for a job")  # threads that are kept for whoever needs one next
    known = [name for row in CORPUS for name in row.threads]

    def left() -> list[str]:
        found = [thread.name for thread in set(threading.enumerate()) - threads if not thread.name.startswith(shared)]
        return unknown(found, known)

    await until(lambda: not left(), "no thread has work left")  # the name of a job outlives its result by a moment
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


async def they_are_taken_out(host: Host) -> None:
    """Disable and enable those that run, and revoke those that say nothing when they stop: nothing of them stays."""
    running = [name for row in CORPUS for name in row.running if name != "twins"]  # two of the same name
    for name in running[:: repetitions(8, 1)]:
        gone = await host.disable(name)
        assert (gone.state, gone.contributions) == (PluginState.DISABLED, {}), name
        assert (await host.enable(name)).state is PluginState.STARTED, name
    at_stop = {says.plugin for says in SAID if says.at == "stop"}
    granted = [n for n in running if n not in at_stop and any(p.level != "add" for p in host.plugin(n).permissions)]
    assert len(granted) > len(running) / 2
    for name in granted[:: repetitions(8, 1)]:
        gone = await host.revoke(name)
        assert (gone.state, gone.contributions) == (PluginState.NEEDS_REVIEW, {}), name


# --- by commands --------------------------------------------------------------------------------------


def they_are_listed_without_being_imported(inn: BaseProject, imported: Path) -> None:
    """Fail where `tavern plugins list` does not say of each what can be said, or imports one."""
    dev = [word for path in inn.dev for word in ("--dev", str(path))]
    ran, strict = (
        tavern("--project", inn.root, *dev, *options, "plugins", "list", "--json") for options in ((), ("--strict",))
    )
    assert (ran.code, strict.code, list(imported.iterdir())) == (0, 1, [])
    everything = [line for says in SAID for line in unsaid(says, ran.json())]
    assert not everything, "\n".join(everything)
    not_in_order = strict.error.removeprefix("Error: not in order: ").split(", ")
    assert {says.plugin for says in SAID if says.at == "link"} <= set(not_in_order)


def unsaid(says: Says, plugins: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what a list of plugins should say of one and does not."""
    found = [p for p in plugins if p["name"] == says.plugin and says.source in p["source"]]
    if len(found) != 1:
        yield f"{says.plugin} is listed {len(found)} times"
        return
    told = [f"{problem['message']} ({problem.get('hint')})" for problem in found[0].get("problems", ())]
    is_refused = says.at == "link" and says.state is not PluginState.STARTED
    expected = says.state if is_refused else PluginState.DISCOVERED
    if found[0]["state"] != expected:
        yield f"{says.plugin} is {found[0]['state']}, expected {expected}: {told}"
    if says.at == "link" and not any(says.reason in text and says.mend in text for text in told):
        yield f"{says.plugin}: {says.reason!r} ({says.mend!r}) is not said in {told}"
