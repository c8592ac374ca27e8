"""A host from start to stop: what it makes, what it leaves, and that nothing of a plugin outlives it."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from helpers.waiting import until
from plugin_maker import context_of, contextual, host_with, make_plugin, write

from tavern_host import PLUGINS, Host
from tavern_host.context import PluginContext
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.plugins import AdmissionError, PluginState
from tavern_host.runtime.folder_import import release as release_name
from tavern_host.runtime.folder_import import reserve
from tavern_host.runtime.in_process import InProcessRuntime
from tavern_host.runtime.ledger import Ledger
from tavern_host.runtime.source import PluginSource


def others() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]


# --- start and stop ----------------------------------------------------------------------------------


async def test_a_stopped_host_leaves_no_task(tmp_path: Path) -> None:
    async with Host(tmp_path / "p") as host:
        assert {p.state for p in host.plugins()} == {PluginState.STARTED}
        assert all(p.timings["load"] > 0 for p in host.plugins())
    assert {p.state for p in host.plugins()} == {PluginState.STOPPED}
    assert others() == set()
    assert all(p.contributions == {} for p in host.plugins())


READS_ALL = {"events": {"subscribe": ["*"]}}


async def test_whatever_plugins_left_open_is_closed(tmp_path: Path) -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("task")

    async with host_with(tmp_path / "p", contextual(tmp_path, permissions=READS_ALL)) as host:
        context = context_of()
        context.tasks.spawn(work(), name="work")
        subscription = context.events.subscribe()
        session = context.http.session()
        assert context.http.session() is session
        await asyncio.sleep(0)
        owned = host.plugin("acme").contributions
        assert (owned["task"], owned["subscription"], owned["http-session"]) == (["work"], ["*"], ["client"])
    assert ended == ["task"]
    assert session.closed
    assert [e async for e in subscription] == []
    assert others() == set()


async def test_a_host_that_fails_cleans_up(tmp_path: Path) -> None:
    host = host_with(tmp_path / "p", contextual(tmp_path))
    with pytest.raises(ZeroDivisionError):
        async with host:
            1 / 0  # noqa: B018
    wrong = host_with(tmp_path / "p", contextual(tmp_path), strict=True, settings={"extensions.acme.x": 1})
    with pytest.raises(AdmissionError, match=r"acme is started: the environment's settings have 'extensions\.acme\.x'"):
        await wrong.__aenter__()
    assert host.plugin("acme").state is wrong.plugin("acme").state is PluginState.STOPPED
    with pytest.raises(RuntimeError, match="a host runs once; make another one"):
        await host.__aenter__()
    with pytest.raises(RuntimeError, match="the host is not running"):
        _ = Host(tmp_path / "p").events
    (tmp_path / "file").write_text("")
    with pytest.raises((TavernError, OSError)):  # a project that cannot be made
        await Host(tmp_path / "file" / "p").__aenter__()
    assert others() == set()


@pytest.mark.parametrize("moment", ["begin", "import", "registration", "startup"])
async def test_a_start_that_is_cancelled_cleans_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    code = """
import asyncio, sys
from tavern_host import hookimpl

sys.reached("import")

@hookimpl
def tavern_register_services():
    sys.reached("registration")
    return []

@hookimpl
async def tavern_startup(context):
    context.tasks.spawn(asyncio.sleep(3600), name="long")
    sys.reached("startup")
    await asyncio.sleep(3600)
"""
    folder = make_plugin(tmp_path, "acme", code, hooked=["tavern_register_services", "tavern_startup"])
    host, loop = host_with(tmp_path / "p", folder), asyncio.get_running_loop()

    async def run() -> None:
        async with host:
            raise AssertionError("it started")

    def reached(what: str) -> None:
        if what == moment:
            loop.call_soon_threadsafe(task.cancel)

    monkeypatch.setattr(sys, "reached", reached, raising=False)
    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    reached("begin")
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    assert others() == set()
    assert all(p.contributions == {} for p in host.plugins())


async def test_a_start_cancelled_during_import_leaves_no_module(tmp_path: Path) -> None:
    loop, began, release = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def hang() -> None:
        loop.call_soon_threadsafe(began.set)
        release.wait()

    sys.hang = hang  # type: ignore[attr-defined]  # where the plugin's module reaches it
    folder = make_plugin(tmp_path, "acme", "import sys\nsys.hang()\n")
    task = asyncio.create_task(host_with(tmp_path / "p", folder).__aenter__())
    await began.wait()
    assert "tavern_plugins.acme" in sys.modules
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert "tavern_plugins.acme" not in sys.modules
    taken = reserve("acme")  # by another host, while the first import still runs
    release.set()

    def is_free() -> bool:
        name = reserve("acme")
        release_name(name)
        return name == "tavern_plugins.acme"

    await until(is_free, "the import ends, and its name is free")
    release_name(taken)
    assert taken == "tavern_plugins.acme_2"
    assert "tavern_plugins.acme" not in sys.modules
    del sys.hang  # type: ignore[attr-defined]


def test_a_plugin_unloaded_before_its_import_began_is_not_imported(tmp_path: Path) -> None:
    folder = make_plugin(tmp_path, "acme", "raise AssertionError('it was imported')")
    runtime = InProcessRuntime(PluginSource("acme", root=folder), context=cast(PluginContext, None))
    runtime.unload()
    runtime.load()
    assert "tavern_plugins.acme" not in sys.modules


async def test_loading_writes_nothing(tmp_path: Path) -> None:
    host = Host(tmp_path / "p")
    await host.load()
    assert host.registrations.commands
    assert not (tmp_path / "p").exists()
    await host.stop()
    assert not (tmp_path / "p").exists()


# --- a plugin's own folder, state and log -------------------------------------------------------------


async def test_a_context_is_its_plugins_own(tmp_path: Path) -> None:
    folder = contextual(tmp_path)
    async with host_with(tmp_path / "p", folder, contextual(tmp_path, "other")) as host:
        context = context_of()
        assert (context.plugin, context.project, context.serving) == ("acme", host.project, False)
        assert context.log.name == "tavern.plugin.acme"
        with pytest.raises(AttributeError):
            context.plugin = "other"
        mine = context.data_dir
        assert mine == tmp_path / "p" / ".tavern" / "plugins" / "acme"
        (mine / "kept").write_text("yes")
    async with host_with(tmp_path / "p", folder, serving=True):
        assert context_of().serving
        assert (context_of().data_dir / "kept").read_text() == "yes", "it outlives the host"


async def test_assets_are_the_folders_that_loaded_plugins_declare(tmp_path: Path) -> None:
    folder = make_plugin(tmp_path, "acme", workflows={"entry": "./flows"}, tools={"entry": "tools"})
    waiting = make_plugin(tmp_path, "waiting", workflows={"entry": "./flows"}, hooked=["tavern_before_execute"])
    async with host_with(tmp_path / "p", folder, waiting, trust=[]) as host:
        plugins = host.services.get(PLUGINS)
        assert [a.path for a in await plugins.assets("workflows") if a.plugin in ("acme", "waiting")] == [
            str(folder / "flows")
        ]
        for kind in ("permissions", "name", "version", "__class__", ""):
            assert await plugins.assets(kind) == []


# --- the ledger --------------------------------------------------------------------------------------


async def test_the_ledger_removes_newest_first_despite_failures() -> None:
    ledger, done = Ledger(), []

    async def later(name: str) -> None:
        await asyncio.sleep(0)
        done.append(name)

    ledger.add("thing", "a", lambda: done.append("a"))
    ledger.add("thing", "b", lambda: later("b"))

    async def cancelled() -> None:
        raise asyncio.CancelledError

    ledger.add("other", "c", lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    ledger.add("other", "d", cancelled)
    assert ledger.owned() == {"thing": ["a", "b"], "other": ["c", "d"]}
    failed = [(entry.name, type(error)) for entry, error in await ledger.remove(deadline=1)]
    assert failed == [("d", asyncio.CancelledError), ("c", ZeroDivisionError)]
    assert done == ["b", "a"]
    assert ledger.owned() == {}
    assert await ledger.remove(deadline=1) == []


# --- projects ----------------------------------------------------------------------------------------


async def test_starting_a_host_makes_a_new_project(tmp_path: Path) -> None:
    root = tmp_path / "new" / "tales"
    async with Host(root) as host:
        assert (root / "tavern.yaml").read_text() == 'name: "tales"\n'
        parts = {p.name for p in root.iterdir() if p.is_dir()}
        made = {"workflows", "agents", "tools", "plugins", "files", "knowledge", "scenes", "panels", "triggers"}
        made |= {"characters"}
        assert parts == made | {".tavern"}
        assert list((root / "workflows").iterdir()) == []
        assert (host.project.name, host.project.root) == ("tales", root)


async def test_a_sample_fills_only_new_projects(tmp_path: Path) -> None:
    folder = make_plugin(tmp_path, "acme", sample={"entry": "./sample"})
    write(folder / "sample" / "files" / "hello.txt", "from the sample")
    root = tmp_path / "p"
    write(root / "files" / "hello.txt", "mine")
    async with host_with(root, folder, sample=True):
        assert (root / "files" / "hello.txt").read_text() == "mine"
        assert list((root / "workflows").iterdir())  # from the first-party sample
    (root / "files" / "hello.txt").unlink()
    async with host_with(root, folder, sample=True):
        assert not (root / "files" / "hello.txt").exists()


def test_what_the_operator_decides_has_no_place_in_a_project(tmp_path: Path) -> None:
    for key in ("trust", "disabled", "overrides", "audit"):
        write(tmp_path / "p" / "tavern.yaml", f"name: p\n{key}: []\n")
        with pytest.raises(TavernError) as caught:
            Host(tmp_path / "p")
        assert f"tavern.yaml:2:1: unknown key '{key}'" in str(caught.value)
        assert "this is the operator's to decide: write it in host.yaml, not in a project" in str(caught.value)
