"""What happens to a plugin, to those that require it and to what is under way, when it is taken out or read anew."""

from __future__ import annotations

import asyncio
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tavern_host import EXECUTION_ENGINE, Host
from tavern_host.contracts.errors import Conflict, PluginFailure, TavernError
from tavern_host.contracts.executions import RunRequest, RunStatus
from tavern_host.contracts.http import HttpRequest, HttpResponse
from tavern_host.contracts.plugins import PluginState
from tavern_host.contracts.workflows import Workflow
from tavern_host.plugins import lifecycle
from tavern_host.server.plugin_routes import call_route

NODE = """
import asyncio
from typing import Annotated

from tavern_host import Slot, node

GATE = asyncio.Event()
BEGUN = asyncio.Event()


@node(category="test", display_name="Wait")
async def wait(text: Annotated[str, Slot("Text.")]) -> Annotated[str, Slot("The same.")]:
    BEGUN.set()
    await GATE.wait()
    return text
"""
ROUTES = """
from tavern_host import HttpResponse, RouteInfo, hookimpl


@hookimpl
def tavern_register_routes():
    return [RouteInfo(method="GET", path="/api/x/acme/go", handler=f"{__name__}:go")]


async def go(request, context):
    BODY
"""


def plugin(folder: Path, files: dict[str, str], **manifest: Any) -> Path:
    """Write a plugin; a file's text may be indented."""
    import yaml

    folder.mkdir(parents=True, exist_ok=True)
    document = {"name": folder.name, "displayName": folder.name, "version": "1.0.0", **manifest}
    (folder / "plugin.yaml").write_text(yaml.safe_dump(document))
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))
    return folder


def routed(folder: Path, body: str) -> Path:
    """Write a plugin whose route does what `body` says."""
    code = ROUTES.replace("BODY", body)
    return plugin(folder, {"__init__.py": code}, permissions={"hooks": ["hook:server:routes:register"]})


async def ask(host: Host) -> Any:
    """Ask the plugin's route, and return what it answers."""
    found, _, _ = host.registrations.find("GET", "/api/x/acme/go")
    assert found is not None, "there is no such route"
    answer = await call_route(host, found, HttpRequest(method="GET", path="/api/x/acme/go", call=host.call()))
    assert isinstance(answer, HttpResponse)
    return answer.data


def modules(name: str) -> Any:
    """Return the node module of the plugin as it is loaded now."""
    return sys.modules[f"tavern_plugins.{name}.nodes"]


def waiting() -> RunRequest:
    """Return a request for a workflow that waits in a node of the plugin."""
    nodes = [
        {"id": "w", "type": "acme:Wait", "position": {"x": 0, "y": 0}, "inputValues": {"text": "done"}},
        {"id": "out", "type": "core:GroupOutput", "position": {"x": 0, "y": 0}},
    ]
    edges = [{"id": "1", "source": "w", "sourceHandle": "result", "target": "out", "targetHandle": "text"}]
    outputs = {"text": {"key": "text", "dataFlowType": "STRING"}}
    return RunRequest(workflow=Workflow.model_validate({"nodes": nodes, "edges": edges, "interfaceOutputs": outputs}))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return tmp_path / "p"


@pytest.fixture
def acme(project: Path) -> Path:
    """Write a plugin with a node that waits until its gate is opened."""
    return plugin(project / "plugins" / "acme", {"nodes/__init__.py": NODE}, nodes={"entry": "./nodes"})


def running(project: Path, **options: Any) -> Host:
    return Host(project, **{"trust": ["acme", "other"], **options})


# --- what is under way -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["disable", "reload"])
async def test_a_run_that_is_under_way_ends_with_the_code_that_it_began_with(
    project: Path, acme: Path, how: str
) -> None:
    async with running(project) as host:
        engine, module = host.services.get(EXECUTION_ENGINE), modules("acme")
        run = await engine.submit(waiting())
        await module.BEGUN.wait()
        decision = asyncio.create_task(getattr(host, how)("acme"))
        ended, _ = await asyncio.wait([decision], timeout=10 if how == "reload" else 0.05)
        assert bool(ended) is (how == "reload")
        module.GATE.set()
        await decision
        result = await engine.wait(run)
        assert (result.status, result.outputs) == (RunStatus.COMPLETE, {"text": "done"})


async def test_what_does_not_end_in_time_is_interrupted(
    project: Path, acme: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "DRAIN_DEADLINE", 0.05)
    async with running(project) as host:
        engine = host.services.get(EXECUTION_ENGINE)
        run = await engine.submit(waiting())
        await modules("acme").BEGUN.wait()
        await host.disable("acme")
        assert (await engine.wait(run)).status is RunStatus.INTERRUPTED
        assert host.owned("acme") == {}


async def test_a_request_that_does_not_end_in_time_is_given_up(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "DRAIN_DEADLINE", 0.05)
    routed(project / "plugins" / "acme", "import asyncio; await asyncio.sleep(3600)")
    async with running(project) as host:
        asking = asyncio.create_task(ask(host))
        await asyncio.sleep(0.01)
        await host.disable("acme")
        with pytest.raises(TavernError, match="acme was unloaded before .*:go ended") as given_up:
            await asking
        assert given_up.value.info.code == "deadline_exceeded"


async def test_what_is_revoked_is_not_waited_for(project: Path) -> None:
    folder = plugin(
        project / "plugins" / "acme",
        {
            "__init__.py": """
            import asyncio
            from tavern_host import hookimpl

            @hookimpl
            async def tavern_before_execute(request, context):
                await asyncio.sleep(3600)
            """
        },
        permissions={"hooks": ["hook:server:workflow:before-execute"]},
    )
    assert folder.exists()
    async with Host(project) as host:
        await host.grant("acme")
        merge = {"id": "a", "type": "core:TextMerge", "position": {"x": 0, "y": 0}}
        request = RunRequest(workflow=Workflow.model_validate({"nodes": [merge], "edges": []}))
        run = asyncio.create_task(host.services.get(EXECUTION_ENGINE).run(request))
        await asyncio.sleep(0.05)
        began = time.monotonic()
        await host.revoke("acme")
        assert time.monotonic() - began < lifecycle.DRAIN_DEADLINE / 2
        assert host.plugin("acme").state is PluginState.NEEDS_REVIEW
        run.cancel()
        await asyncio.wait([run])


async def test_a_plugin_that_takes_itself_out_is_not_waited_for_by_itself(project: Path) -> None:
    body = "await SWITCH(); return HttpResponse(data='gone')"
    folder = routed(project / "plugins" / "acme", body)
    assert folder.exists()
    async with running(project) as host:
        module = sys.modules["tavern_plugins.acme"]
        module.SWITCH = lambda: host.disable("acme")  # type: ignore[attr-defined]
        async with asyncio.timeout(lifecycle.DRAIN_DEADLINE / 2):
            assert await ask(host) == "gone"
        assert host.plugin("acme").state is PluginState.DISABLED


async def test_a_host_that_stops_does_not_wait_for_what_is_on_its_way_out(project: Path, acme: Path) -> None:
    async with running(project) as host:
        await host.services.get(EXECUTION_ENGINE).submit(waiting())
        await modules("acme").BEGUN.wait()
        going = asyncio.create_task(host.disable("acme"))
        await asyncio.sleep(0.02)
        began = time.monotonic()
    assert time.monotonic() - began < lifecycle.DRAIN_DEADLINE / 2
    await going


# --- decisions that last ---------------------------------------------------------------------------------


async def test_what_is_disabled_stays_so_in_the_next_host(project: Path, acme: Path) -> None:
    async with running(project) as host:
        await host.disable("acme")
    async with running(project) as host:
        assert host.plugin("acme").state is PluginState.DISABLED
        assert str(host.plugin("acme").problems[0]) == ("the operator has disabled it (`tavern plugins enable acme`)")
        await host.enable("acme")
        assert host.plugin("acme").state is PluginState.STARTED


async def test_what_this_run_leaves_out_cannot_be_enabled_in_it(project: Path, acme: Path) -> None:
    async with running(project, without=["acme"]) as host:
        assert host.plugin("acme").state is PluginState.DISABLED
        with pytest.raises(Conflict, match="acme cannot be enabled here: it is left out of this run"):
            await host.enable("acme")


async def test_those_that_require_a_plugin_go_and_come_back_with_it(project: Path, acme: Path) -> None:
    plugin(project / "plugins" / "other", {}, requires={"plugins": {"acme": ">=1"}})
    async with running(project) as host:
        assert host.plugin("other").state is PluginState.STARTED
        await host.disable("acme")
        assert host.plugin("other").state is PluginState.INCOMPATIBLE
        assert "it requires acme, which is disabled" in str(host.plugin("other").problems[0])
        await host.enable("acme")
        assert (host.plugin("other").state, host.plugin("other").problems) == (PluginState.STARTED, [])


async def test_a_running_host_follows_what_another_process_decides(project: Path) -> None:
    folder = routed(project / "plugins" / "acme", "return HttpResponse(data='one')")
    async with running(project) as host:
        watch = asyncio.create_task(host.watch_decisions(every=0.01))
        other = running(project)
        other.link()
        await other.disable("acme")
        await _until(lambda: host.plugin("acme").state is PluginState.DISABLED)
        await other.enable("acme")
        await _until(lambda: host.plugin("acme").state is PluginState.STARTED)
        assert await ask(host) == "one"
        routed(folder, "return HttpResponse(data='two')")
        other.ask_to_reload("acme")
        async with asyncio.timeout(10):
            while await ask(host) != "two":
                await asyncio.sleep(0.01)
        watch.cancel()
        await asyncio.wait([watch])


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def test_decisions_at_the_same_moment_are_carried_out_one_after_the_other(project: Path, acme: Path) -> None:
    async with running(project) as host:
        await asyncio.gather(
            *(getattr(host, how)("acme") for how in ("disable", "enable", "reload", "disable", "reload", "enable"))
        )
        assert host.plugin("acme").state is PluginState.STARTED
        assert "acme:Wait" in host.plugin("acme").contributions["node"]


# --- read anew -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "state", "told"),
    [
        ("name: [", PluginState.INVALID, "not valid YAML"),
        ("raise RuntimeError('no luck')", PluginState.FAILED, "RuntimeError: no luck"),
        ("def broken(:", PluginState.FAILED, "SyntaxError"),
        ("import no_such_module", PluginState.FAILED, "No module named 'no_such_module'"),
    ],
)
async def test_what_is_broken_now_costs_the_plugin_and_no_run(
    project: Path, acme: Path, change: str, state: PluginState, told: str
) -> None:
    async with running(project) as host:
        engine, module = host.services.get(EXECUTION_ENGINE), modules("acme")
        run = await engine.submit(waiting())
        await module.BEGUN.wait()
        file = acme / ("plugin.yaml" if state is PluginState.INVALID else "nodes/__init__.py")
        kept = file.read_text()
        file.write_text(change)
        await host.reload("acme")
        assert host.plugin("acme").state is state
        assert told in str(host.plugin("acme").problems[0])
        assert {p.state for p in host.plugins() if p.name != "acme"} == {PluginState.STARTED}
        module.GATE.set()
        assert (await engine.wait(run)).status is RunStatus.COMPLETE
        file.write_text(kept)
        await host.reload("acme")
        assert (host.plugin("acme").state, host.plugin("acme").problems) == (PluginState.STARTED, [])


async def test_a_plugin_that_now_asks_for_more_waits_for_a_review(project: Path) -> None:
    folder = plugin(project / "plugins" / "acme", {}, permissions={"ui": {"wrap": ["ui:BaseNode"]}})
    async with Host(project) as host:
        await host.grant("acme")
        plugin(folder, {}, version="2.0.0", permissions={"ui": {"wrap": ["ui:BaseNode", "ui:MainMenu"]}})
        await host.reload("acme")
        assert host.plugin("acme").state is PluginState.NEEDS_REVIEW
        told = str(host.plugin("acme").problems[0])
        assert "it asks for ui.wrap:ui:MainMenu now, which the grant of version 1.0.0 of 20" in told
        await host.grant("acme")
        assert host.plugin("acme").state is PluginState.STARTED


async def test_all_that_is_new_changed_or_gone_is_taken_over_and_nothing_else(project: Path, acme: Path) -> None:
    plugin(project / "plugins" / "other", {})
    async with running(project) as host:
        assert await host.reload() == []
        plugin(project / "plugins" / "new", {})
        plugin(acme, {}, version="1.1.0", nodes={"entry": "./nodes"})
        for file in sorted((project / "plugins" / "other").rglob("*"), reverse=True):
            file.unlink()
        (project / "plugins" / "other").rmdir()
        events = host.events.subscribe("PLUGINS_CHANGED")
        taken = await host.reload()
        assert {p.name: p.version for p in taken} == {"acme": "1.1.0", "new": "1.0.0"}
        assert [p.name for p in host.plugins() if not p.first_party] == ["acme", "new"]
        await events.close()
        told = [(e.payload["name"], e.payload["state"]) async for e in events]  # type: ignore[union-attr]
        assert told == [("other", "gone"), ("acme", "started"), ("new", "started")]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install a plugin as pip would, with a requirement that is installed beside it."""
    site = tmp_path / "site"
    manifest = {"name": "acme", "permissions": {"hooks": ["hook:server:routes:register"]}}
    code = ROUTES.replace("BODY", "from pip_acme.words import WORD; return HttpResponse(data=WORD)")
    folder = plugin(site / "pip_acme", {"__init__.py": code, "words.py": "WORD = 'one'\n"}, **manifest)
    for name, more in (("pip_acme", "Requires-Dist: needed\n"), ("needed", "")):
        info = site / f"{name}-1.0.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0.0\n{more}")
        files = (f"{name}/__init__.py", f"{name}/plugin.yaml", f"{info.name}/METADATA", f"{info.name}/RECORD")
        (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    (site / "pip_acme-1.0.0.dist-info" / "entry_points.txt").write_text("[tavern_host.plugins]\nacme = pip_acme\n")
    monkeypatch.syspath_prepend(str(site))
    yield folder
    for name in [name for name in sys.modules if name.startswith("pip_acme")]:
        del sys.modules[name]


async def test_an_installed_package_is_read_anew_with_all_its_modules(project: Path, installed: Path) -> None:
    async with running(project) as host:
        assert await ask(host) == "one"
        (installed / "words.py").write_text("WORD = 'another'\n")
        assert [p.name for p in await host.reload()] == ["acme"]
        assert await ask(host) == "another"


async def test_where_what_it_stands_on_was_upgraded_a_plugin_waits_for_a_restart(
    project: Path, installed: Path
) -> None:
    async with running(project) as host:
        metadata = installed.parent / "needed-1.0.0.dist-info" / "METADATA"
        metadata.write_text(metadata.read_text())
        (installed / "words.py").write_text("WORD = 'two'\n")
        await host.reload("acme")
        acme = host.plugin("acme")
        assert (acme.state, acme.pending_restart) == (PluginState.STARTED, True)
        assert "pending restart: needed was upgraded while the host ran" in str(acme.problems[0])
        assert await ask(host) in ("one", "two")


async def test_a_start_of_the_new_one_that_fails_costs_the_plugin(project: Path) -> None:
    folder = routed(project / "plugins" / "acme", "return HttpResponse(data='one')")
    async with running(project) as host:
        code = (folder / "__init__.py").read_text()
        (folder / "__init__.py").write_text(code + "\n@hookimpl\ndef tavern_startup():\n    raise RuntimeError('no')\n")
        plugin(folder, {}, permissions={"hooks": ["hook:server:routes:register", "hook:server:host:startup"]})
        await host.reload("acme")
        assert host.plugin("acme").state is PluginState.FAILED
        assert host.registrations.find("GET", "/api/x/acme/go")[0] is None
        (folder / "__init__.py").write_text(code)
        await host.reload("acme")
        assert await ask(host) == "one"


# --- first-party plugins ---------------------------------------------------------------------------------


async def test_a_first_party_plugin_is_switched_off_and_on_but_not_read_anew(project: Path) -> None:
    async with Host(project) as host:
        await host.disable("tavern-studio")
        assert host.plugin("tavern-studio").state is PluginState.DISABLED
        await host.enable("tavern-studio")
        assert host.plugin("tavern-studio").state is PluginState.STARTED
        with pytest.raises(Conflict, match="tavern-studio is first-party: restart the host to reload it"):
            await host.reload("tavern-studio")


async def test_the_engine_that_is_switched_off_lets_its_runs_end(project: Path, acme: Path) -> None:
    async with running(project) as host:
        engine, module = host.services.get(EXECUTION_ENGINE), modules("acme")
        run = asyncio.create_task(engine.run(waiting()))
        await module.BEGUN.wait()
        going = asyncio.create_task(host.disable("tavern-engine"))
        await asyncio.sleep(0.05)
        assert not going.done()
        module.GATE.set()
        await going
        assert (await run).status is RunStatus.COMPLETE
        with pytest.raises(TavernError):
            await engine.run(waiting())


async def test_a_failure_of_a_handler_is_told_at_its_plugin(project: Path) -> None:
    routed(project / "plugins" / "acme", "raise RuntimeError('no luck')")
    async with running(project) as host:
        with pytest.raises(PluginFailure, match="acme failed in GET /api/x/acme/go; the log says why"):
            await ask(host)
        (problem,) = host.plugin("acme").problems
        assert problem.message == "GET /api/x/acme/go: RuntimeError: no luck"
        assert (problem.file or "").endswith("acme/__init__.py")
        assert "tavern plugins disable acme" in (problem.hint or "")
