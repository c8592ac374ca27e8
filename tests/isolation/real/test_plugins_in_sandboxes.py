"""A plugin in a sandbox of its own does what it does in a plain process, and reaches only what it was granted."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import tavern
from helpers.plugin_files import write_whole
from helpers.waiting import until

from tavern_host import EXECUTION_ENGINE, Host
from tavern_host.contracts.errors import Vetoed
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.plugins import PluginProcess, PluginState
from tavern_host.contracts.workflows import Workflow
from tavern_isolation import supervisor
from tavern_scripts.sandbox import choose, machine
from tests.isolation.real import test_plugins_in_processes as plain
from tests.isolation.real.test_plugins_in_processes import (  # noqa: F401  # they run with the host below
    test_a_child_that_ends_time_after_time_is_given_up,
    test_a_model_answers_whole_and_in_pieces,
    test_a_route_gets_a_body_and_keeps_a_blob,
    test_a_route_sends_events_until_its_reader_leaves,
    test_an_error_keeps_its_code,
    test_an_override_stands_in_front_of_the_hosts_provider,
    test_calls_that_never_end_in_each_other_are_refused,
    test_its_tasks_are_listed_and_hear_events,
    test_messages_and_commands_are_answered,
    test_nodes_run_stream_and_report,
    test_values_without_a_codec_stay_in_the_process_of_their_nodes,
    test_what_a_hook_raises_denies_and_its_veto_says_why,
    test_what_it_prints_and_logs_reaches_the_log,
)

LOOKS = """
import os, socket, subprocess, sys
from pathlib import Path
from tavern_host import *

@hookimpl
async def tavern_before_execute(request, call, context):
    found = {}
    for name, code in request.metadata.get("try", {}).items():
        try:
            found[name] = repr(eval(code, globals(), {"context": context}))
        except Exception as error:
            found[name] = type(error).__name__
    if "memory" in request.metadata:
        kept = [bytes(1 << 20) for _ in range(request.metadata["memory"])]
        found["kept"] = len(kept)
    return request.model_copy(update={"metadata": {**request.metadata, **found}})
"""


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    plain.written(tmp_path, runtime={"placement": "process"})
    async with Host(tmp_path / "project", trust=["acme"], settings=plain.MODELS) as host:
        info = host.plugin("acme")
        assert info.state is PluginState.STARTED and not info.problems, info.problems
        assert info.placement == "process" and info.process is not None and "bubblewrap" in info.process.sandbox
        yield host


def looking(tmp_path: Path, name: str = "acme", **runtime: Any) -> Path:
    """Write a plugin that tries things before a run; returns its folder."""
    root = tmp_path / "project" / "plugins" / name
    return write_whole(root, name, LOOKS, ["tavern_before_execute"], runtime={"placement": "process", **runtime})


def host_of(tmp_path: Path, *names: str) -> Host:
    return Host(tmp_path / "project", create=True, trust=[*(names or ("acme",))])


async def tried(host: Host, **attempts: str) -> dict[str, Any]:
    """What became of expressions that the plugin evaluated."""
    request = RunRequest(workflow=Workflow(name="w"), metadata={"try": attempts})
    return (await host.services.get(EXECUTION_ENGINE).run(request)).metadata


def process(host: Host, name: str = "acme") -> PluginProcess:
    found = host.plugin(name).process
    assert found is not None
    return found


# --- what it sees and reaches ----------------------------------------------------------------------------


async def test_it_sees_its_folder_and_its_data_and_nothing_else_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_SECRET", "s3cret")
    folder = looking(tmp_path)
    async with host_of(tmp_path) as host:
        found = await tried(
            host,
            own="(Path(__file__).parent / 'plugin.yaml').exists()",
            change="(Path(__file__).parent / 'more.py').write_text('')",
            data="(context.data_dir / 'kept').write_text('yes')",
            project="os.listdir(context.project.root)",
            audit="os.listdir(context.project.root / '.tavern' / 'audit')",
            operator=f"os.listdir({str(host.folders.state)!r})",
            tests=f"os.listdir({str(Path(__file__).parent)!r})",
            secret="os.environ.get('ACME_SECRET')",
            processes="len([one for one in os.listdir('/proc') if one.isdigit()]) < 6",
            kill="os.kill(1, 9)",
            network="socket.create_connection(('127.0.0.1', 22), timeout=1)",
            root="os.setuid(0)",
            another="__import__('networkx')",
        )
    assert found["own"] == found["processes"] == "True" and found["data"] == "3"
    assert (host.project.private / "plugins" / "acme" / "kept").read_text() == "yes"
    assert found["change"] in ("OSError", "PermissionError") and not (folder / "more.py").exists()
    assert found["project"] == "['.tavern', 'plugins']" and found["audit"] == "FileNotFoundError"
    assert found["operator"] == found["tests"] == "FileNotFoundError"
    assert found["secret"] == "None" and found["kill"] in ("None", "PermissionError"), "that is its own first process"
    assert found["network"] in ("ConnectionRefusedError", "OSError") and found["root"] == "PermissionError"


async def test_it_reads_and_changes_the_files_that_it_was_granted(tmp_path: Path) -> None:
    (tmp_path / "project" / "notes").mkdir(parents=True)
    (tmp_path / "project" / "notes" / "a.txt").write_text("hello")
    (tmp_path / "project" / "drafts").mkdir()
    looking(tmp_path, files={"read": ["notes"], "write": ["drafts"]})
    async with host_of(tmp_path) as host:
        found = await tried(
            host,
            read="(context.project.root / 'notes' / 'a.txt').read_text()",
            change="(context.project.root / 'notes' / 'a.txt').write_text('')",
            write="(context.project.root / 'drafts' / 'b.txt').write_text('new')",
        )
    assert found["read"] == "'hello'" and found["write"] == "3" and found["change"] in ("OSError", "PermissionError")
    assert (tmp_path / "project" / "drafts" / "b.txt").read_text() == "new"


@pytest.mark.parametrize("path", [".tavern", ".", ".tavern/audit", "notes/../.tavern"])
async def test_what_the_host_keeps_for_itself_is_given_to_nobody(path: str, tmp_path: Path) -> None:
    looking(tmp_path, files={"read": [path]})
    async with host_of(tmp_path) as host:
        plugin = host.plugin("acme")
        assert plugin.state is PluginState.FAILED
        assert "is what the host keeps for itself" in plugin.problems[0].message or "there is no" in (
            plugin.problems[0].message
        )


async def test_a_plugin_has_the_same_user_each_time_and_shares_it_with_no_other(tmp_path: Path) -> None:
    looking(tmp_path)
    looking(tmp_path, "other")
    users = []
    for _ in range(2):
        async with host_of(tmp_path, "acme", "other") as host:
            await tried(host, write="(context.data_dir / 'kept').write_text('yes')")
            data = host.project.private / "plugins"
            users.append([(data / name / "kept").stat().st_uid for name in ("acme", "other")])
    assert users[0] == users[1]
    if os.geteuid() == 0:
        assert len({0, *users[0]}) == 3


# --- its life --------------------------------------------------------------------------------------------


async def test_a_host_starts_no_process_of_a_plugin_that_it_knows_until_it_is_called(tmp_path: Path) -> None:
    looking(tmp_path)
    async with host_of(tmp_path) as host:
        assert process(host).starts == 1
    async with host_of(tmp_path) as host:
        assert process(host) == PluginProcess(python=process(host).python, environment=process(host).environment)
        assert host.plugin("acme").contributions["hook"] == ["tavern_before_execute"]
        assert (await tried(host, one="1 + 1"))["one"] == "2" and process(host).starts == 1
    (tmp_path / "project" / "plugins" / "acme" / "__init__.py").write_text(LOOKS + "\n# another\n")
    async with host_of(tmp_path) as host:
        assert process(host).starts == 1, "other files are looked at again"


async def test_a_process_that_has_nothing_to_do_is_ended_and_started_for_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "IDLE", 0.2)
    looking(tmp_path)
    async with host_of(tmp_path) as host:
        await tried(host, one="1")
        starts = process(host).starts
        await until(lambda: process(host).pid is None, "it is ended")
        assert (await tried(host, one="1 + 1"))["one"] == "2" and process(host).starts == starts + 1
        assert not process(host).last_error and host.plugin("acme").problems == []


async def test_a_process_that_takes_too_much_memory_is_ended_and_says_so(tmp_path: Path) -> None:
    looking(tmp_path, memory=128)
    async with host_of(tmp_path) as host:
        request = RunRequest(workflow=Workflow(name="w"), metadata={"memory": 2_000})
        with pytest.raises(Vetoed, match="MemoryError|has ended"):
            await host.services.get(EXECUTION_ENGINE).run(request)
        assert (await tried(host, one="1 + 1"))["one"] == "2"


async def test_nothing_of_it_is_left_when_the_host_stops(tmp_path: Path) -> None:
    looking(tmp_path)
    async with host_of(tmp_path) as host:
        await tried(host, start="subprocess.Popen(['/bin/sleep', '1000']).pid > 0")
        first = process(host).pid
        assert first is not None and Path(f"/proc/{first}").exists()
    await until(lambda: not Path(f"/proc/{first}").exists(), "its first process is gone")


# --- where there is no sandbox ---------------------------------------------------------------------------


async def test_without_a_sandbox_it_is_refused_and_with_the_operators_word_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(machine, "_proven", [])
    monkeypatch.setattr(choose, "find_bubblewrap", list)
    looking(tmp_path)
    async with host_of(tmp_path) as host:
        plugin = host.plugin("acme")
        assert plugin.state is PluginState.FAILED and "bubblewrap was not found" in plugin.problems[0].message
        await host.place("acme", "process-without-sandbox")
        assert host.plugin("acme").state is PluginState.STARTED
        assert (await tried(host, one="1 + 1"))["one"] == "2"
        assert process(host).sandbox == "" and process(host).pid is not None
    assert any("WITHOUT A SANDBOX" in record.message for record in caplog.records)


async def test_a_machine_that_lost_its_sandbox_says_so_and_starts_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking(tmp_path)
    async with host_of(tmp_path) as host:
        assert (await tried(host, one="1"))["one"] == "1"
    monkeypatch.setattr(machine, "_proven", [])
    monkeypatch.setattr(choose, "find_bubblewrap", list)
    async with host_of(tmp_path) as host:
        await until(lambda: bool(host.plugin("acme").problems), "it is tried out while the host runs")
        (problem,) = host.plugin("acme").problems
        assert "its process cannot be started" in problem.message and "bubblewrap was not found" in problem.message
        with pytest.raises(Vetoed, match="could not be started: .*bubblewrap was not found"):
            await tried(host, one="1")
        assert process(host).pid is None


# --- the operator ----------------------------------------------------------------------------------------


async def test_the_command_isolates_a_plugin_and_show_tells_of_its_process(tmp_path: Path) -> None:
    write_whole(tmp_path / "project" / "plugins" / "acme", "acme", LOOKS, ["tavern_before_execute"])
    host_of(tmp_path).link()
    (tmp_path / "project" / "tavern.yaml").touch()
    command = ("--project", str(tmp_path / "project"))
    isolated = await asyncio.to_thread(tavern, "plugins", "isolate", "acme", "--json", *command)
    assert isolated.json()["placement"] == "process"
    assert (await asyncio.to_thread(tavern, "plugins", "grant", "acme", *command)).code == 0
    async with Host(tmp_path / "project") as host:
        await tried(host, one="1")
        await until(lambda: (host.project.private / "isolation" / "acme.process.json").exists(), "it is said")
        shown = (await asyncio.to_thread(tavern, "plugins", "show", "acme", "--json", *command)).json()
        assert shown["process"]["pid"] == process(host).pid and shown["process"]["memory"] > 1_000_000
    assert "no process now" in (await asyncio.to_thread(tavern, "plugins", "show", "acme", *command)).out
