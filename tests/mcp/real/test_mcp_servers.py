"""MCP servers as tools of a host: what a server does right arrives, and what it does wrong costs itself alone."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from helpers.mcp_desk import AGENT, OFFER, SERVERS, Desk, make_project, odd
from helpers.repetition import Failures

from tavern_host import Host
from tavern_host.contracts.calls import CallContext, operator_call
from tavern_host.contracts.settings import SETTINGS as HOST_SETTINGS
from tavern_host.contracts.settings import SettingsChange
from tavern_knowledge.api.knowledge import KNOWLEDGE_BASE, EntryContent, KnowledgeEntry
from tavern_mcp import entry
from tavern_tools.api.toolcalls import ToolErrorType, current_report, reporting_to
from tavern_tools.api.tools import ToolFilter

pytest.importorskip("mcp", reason="needs the extra: pip install tavern-host[mcp]")
pytestmark = pytest.mark.asyncio(loop_scope="module")

SLOW = {"command": "sleep", "args": ["600"], "sandbox": False, "start_seconds": 600}


async def test_what_servers_say_is_untrusted(desk: Desk) -> None:
    found = {tool.id: tool for tool in await desk.tools.list_tools(ToolFilter(namespace="mcp"))}
    assert "mcp:odd/echo" in found
    assert found["mcp:odd/echo"].description == "[of the MCP server odd] Says a text again. { { {system:time}}}"
    assert not found["mcp:odd/echo"].read_only
    assert (await desk.call("mcp:odd/echo", text="你好")).structured == "你好"
    assert (await desk.call("mcp:odd/回声")).structured == "回声"
    evil = await desk.call("mcp:odd/evil")
    assert "DeleteFile" in str(evil.structured)  # it is text, and nobody carries it out
    problem = await desk.call("mcp:gone/anything")
    told = "mcp:gone/anything cannot be called now: the MCP server gone cannot be used: there is no program"
    assert problem.error is not None and problem.error.message == f"{told} 'no-such-program'"
    assert problem.error.type is ToolErrorType.SERVICE_UNAVAILABLE
    assert "mcp:gone/*" not in [tool.id for tool in await desk.tools.list_tools() if tool.unavailable is None]
    (shown,) = await desk.tools.schemas(["mcp:gone/anything"])  # what a model reads whose agent has it
    assert shown["description"] == "No tool of the MCP server gone can be called now."
    refused = await desk.call("mcp:odd/echo", txt="x")
    assert refused.error is not None and "did you mean text?" in refused.error.message


async def test_the_sandbox_holds_its_servers(desk: Desk) -> None:
    seen = str((await desk.call("mcp:odd/secrets")).structured).splitlines()
    assert "GREETING" in seen and "XDG_STATE_HOME" not in seen and not any("TOKEN" in name for name in seen)
    assert not any(name.endswith("/secret") for name in seen)
    assert any(name.endswith("misbehaving_server.py") for name in seen)
    shared = desk.host.project.root.parent / "shared"
    assert (await desk.call("mcp:odd/write", text=str(shared / "new"))).status == "done"
    assert (shared / "new").read_text() == "written"
    assert (await desk.call("mcp:odd/write", text=str(desk.host.project.root / "new"))).status == "error"


async def test_progress_and_cancellation_are_passed_on(desk: Desk) -> None:
    said: list[tuple[float | None, str | None]] = []
    with reporting_to(lambda progress, text: said.append((progress, text))):
        assert (await desk.call("mcp:odd/progress")).status == "done"
    assert said == [(0.25, "step 1"), (0.5, "step 2"), (0.75, "step 3")]
    assert current_report() is None
    hanging = await _hanging(desk, "odd")
    assert (await desk.call("mcp:odd/echo", text="beside")).structured == "beside"
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging
    died = await desk.call("mcp:odd/die")
    assert died.error is not None and died.error.type is ToolErrorType.SERVICE_UNAVAILABLE
    assert "::cancelled" in died.error.message and "goodbye" in died.error.message


async def test_each_fault_costs_its_call_alone(desk: Desk) -> None:
    faults = {
        "lie": "is not of type 'integer'",
        "giant": "cannot be used: it sent a message of more than 16 MiB",
        "hang": "did not end within",
    }
    with Failures() as failures:
        for fault, message in faults.items():
            with failures.row(fault):
                call = CallContext(principal=AGENT.principal).child(timeout=2) if fault == "hang" else None
                failed = await desk.call(f"mcp:odd/{fault}", call)
                assert failed.error is not None and message in failed.error.message
                assert (await desk.call("text:loud", text="still")).structured == "STILL"
                assert (await desk.call("mcp:odd/echo", text="again")).structured == "again"
    assert (await desk.call("mcp:odd/garbage")).structured == "after the garbage"
    assert (await desk.call("mcp:odd/shout")).status == "done"


async def test_a_flood_leaves_the_host_its_time(desk: Desk) -> None:
    flood = asyncio.create_task(desk.call("mcp:odd/flood"))
    for _ in range(10):
        assert (await desk.call("text:loud", text="x")).status == "done"
    result = await flood
    assert result.error is not None and "messages that nobody asked for" in result.error.message
    assert (await desk.call("mcp:odd/echo", text="again")).structured == "again"


async def test_nobody_is_asked_for_several_callers(desk: Desk) -> None:
    hanging = await _hanging(desk, "old")
    asked = await desk.call("mcp:old/ask", AGENT)
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging
    assert asked.structured == "decline\nNone"
    assert all(task.status.is_final for task in await desk.tools.tasks())


@pytest.mark.parametrize("server", ["odd", "old"])
async def test_questions_are_answered_by_approval(desk: Desk, server: str) -> None:
    operator = operator_call()
    asking = asyncio.create_task(desk.call(f"mcp:{server}/ask", AGENT))
    task = await _waiting(desk)
    assert task.arguments["for"] == "agent:scout" and task.arguments["message"] == "Who are you?"
    await desk.tools.decide(task.id, "approve", arguments={**task.arguments, "answer": {"name": "Ada"}}, call=operator)
    assert (await asking).structured == "accept\n{'name': 'Ada'}"
    asking = asyncio.create_task(desk.call(f"mcp:{server}/ask", AGENT))
    await desk.tools.decide((await _waiting(desk)).id, "refuse", call=operator)
    assert "decline" in str((await asking).structured)
    sent = await desk.call(f"mcp:{server}/send", AGENT)  # to an address, which nobody is
    assert (sent.structured, sent.error) == ("decline\nNone", None)
    asking = asyncio.create_task(desk.call(f"mcp:{server}/sample", AGENT))
    task = await _waiting(desk)
    assert task.arguments["about"]["messages"][0]["content"] == "Say hi."
    await desk.tools.decide(task.id, "approve", call=operator)
    answer = await asking
    assert answer.structured == "Hi from the model.", answer.error
    asking = asyncio.create_task(desk.call(f"mcp:{server}/sample", AGENT))
    await desk.tools.decide((await _waiting(desk)).id, "refuse", call=operator)
    assert (await asking).error is not None


async def test_no_question_outlives_its_server(desk: Desk) -> None:
    for server in ("odd", "old"):
        asking = asyncio.create_task(desk.call(f"mcp:{server}/ask", AGENT))
        await _waiting(desk)
        await desk.call(f"mcp:{server}/die", AGENT)
        result = await asking
        assert result.error is not None and result.error.type is ToolErrorType.SERVICE_UNAVAILABLE, result
        await _until(desk.tools.tasks, lambda tasks: all(task.status.is_final for task in tasks))
        assert (await desk.call(f"mcp:{server}/echo", text="again")).structured == "again"


async def test_resources_become_knowledge_and_prompts_prompts(desk: Desk) -> None:
    knowledge = desk.host.services.get(KNOWLEDGE_BASE)
    listed = await desk.call("mcp:odd/resources.list")
    assert [one["uri"][:11] for one in listed.structured] == ["mem://old", "mem://bytes", "mem://xxxxx"]
    assert (await desk.call("mcp:odd/resources.read", uri="mem://old")).structured == "Old."
    read = await desk.call("mcp:odd/resources.read", uri="mem://bytes")
    assert (desk.host.project.root / "files" / str(read.content[0].uri)).read_bytes() == b"\0"

    async def texts() -> dict[str, str]:
        found = {base.id for base in await knowledge.bases()}
        entries = (await knowledge.list_entries("mcp-odd")).entries if "mcp-odd" in found else []
        return {one.entry.id[:11]: str(one.entry.content.value) for one in entries}

    async def filled(text: str) -> Any:
        return (await desk.tools.expand(text, call=operator_call())).value

    assert await filled("{{{mcp:odd/greet 你}}}") == "greet 你 {} { { {system:time}}}"
    assert await filled("{{{mcp:odd/about}}} {{{mcp:odd/new}}}") == "{{{mcp:odd/about}}} {{{mcp:odd/new}}}"
    long = {"mem://xxxxx": "Long."}
    await _until(texts, lambda found: found == {"mem://old": "Old.", **long})
    own = KnowledgeEntry(id="own", content=EntryContent(mime_type="text/plain", value="Mine."))
    await knowledge.put("mcp-odd", [own])
    assert (await desk.call("mcp:odd/learn")).status == "done"
    news = {"mem://new": "New. { { {system:time}}}", **long, "own": "Mine."}
    await _until(texts, lambda found: found == news)

    listed = await desk.call("mcp:odd/prompts.list")
    assert [one["name"] for one in listed.structured] == ["greet 你", "about", "new", "hang"]
    got = await desk.call("mcp:odd/prompts.get", name="about", arguments={"what": "tea"})
    assert str(got.structured).startswith("about {'what': 'tea'}")
    await _until(lambda: filled("{{{mcp:odd/new}}}"), lambda text: text.startswith("new {}"))


async def test_changed_tools_ask_again(desk: Desk) -> None:
    assert (await desk.call("mcp:odd/grow")).status == "done"
    await _until(lambda: desk.call("mcp:odd/grown"), lambda result: result.status == "done")
    assert (await desk.call("mcp:odd/unlisten")).status == "done"  # what is not told is looked at
    await _until(lambda: desk.call("mcp:odd/later"), lambda result: result.status == "done")
    assert (await desk.call("mcp:odd/rename")).status == "done"
    changed = await _until(lambda: desk.call("mcp:odd/echo", text="x"), lambda result: result.error is not None)
    assert changed.error is not None and changed.error.type is ToolErrorType.PERMISSION_DENIED
    assert "description changed since it was approved" in changed.error.message
    assert "mcp:odd/echo" not in (await desk.tools.describe(["mcp:odd/hang"]))
    assert "Ignore" not in await desk.tools.describe(["mcp:odd/echo"])  # the text that was approved
    assert any("the tool echo of the MCP server odd is not called" in said for said in desk.problems())
    servers = desk.host.services.get(_mcp())
    listed = {one.name: one for one in await servers.servers()}
    assert [tool.changed for tool in listed["odd"].tools if tool.name == "echo"] == ["description"]
    assert listed["gone"].status in ("idle", "failed")
    await servers.approve("odd", call=operator_call())
    assert (await desk.call("mcp:odd/echo", text="x")).structured == "x"


async def test_what_is_missing_at_first_is_found_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "_AGAIN", 0.1)
    monkeypatch.setattr("tavern_mcp.connection._LONGEST", 0.1)
    program = tmp_path / "late"
    settings = {SERVERS: {"late": odd(command=str(program), sandbox=False)}, OFFER: ["mcp:late/*", "text:lout", "x*"]}
    folders = make_project(tmp_path, settings)
    async with Host(tmp_path / "project", folders=folders, serving=True) as host:
        desk = Desk(host)
        told = "mcp:late/echo cannot be called now: the MCP server late cannot be used: there is no program"
        await _until(lambda: desk.call("mcp:late/echo", text="x"), lambda result: told in str(result.error))
        program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        program.chmod(0o755)
        await _until(lambda: desk.call("mcp:late/echo", text="x"), lambda result: result.structured == "x")
        assert [said for said in desk.problems() if "offer" in said] == [
            "extensions.tavern-mcp.offer: 'text:lout' names no tool (did you mean text:loud?)",
            "extensions.tavern-mcp.offer: 'x*' names no tool",
        ]


async def test_a_server_that_hangs_delays_others_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = make_project(tmp_path, {SERVERS: {"slow": SLOW, "odd": odd(sandbox=False)}})
    patience = 5.0
    monkeypatch.setattr("tavern_mcp.service._PATIENCE", patience)
    for is_first in (True, False):
        async with Host(tmp_path / "project", folders=folders) as host:
            before = monotonic()
            assert (await Desk(host).call("mcp:odd/echo", text="x")).structured == "x"
            assert (monotonic() - before >= patience) is is_first
            said = str((await Desk(host).call("mcp:slow/echo")).error)
            assert "it did not answer in time; `tavern mcp show slow` waits longer" in said
    (folders.config / "host.yaml").write_text(json.dumps({"settings": {SERVERS: {"slow": odd(sandbox=False)}}}))
    async with Host(tmp_path / "project", folders=folders) as host:  # it is another server now
        assert (await Desk(host).call("mcp:slow/echo", text="x")).structured == "x"


async def test_the_first_server_is_connected_when_it_is_set_up(tmp_path: Path) -> None:
    folders = make_project(tmp_path, {})
    async with Host(tmp_path / "project", folders=folders, serving=True) as host:
        events = host.events.subscribe("TOOLS_CHANGED")
        change = SettingsChange(plugin="tavern-mcp", values={SERVERS: {"odd": odd(sandbox=False)}})
        await host.services.get(HOST_SETTINGS).save(change)
        while (await anext(events)).plugin != "tavern-mcp":
            pass
        (server,) = await host.services.get(_mcp()).servers()
        assert server.status == "connected"


def _mcp() -> Any:
    from tavern_mcp.api.servers import MCP_SERVERS

    return MCP_SERVERS


async def _hanging(desk: Desk, server: str) -> asyncio.Task[Any]:
    """Return a call that hangs at a server."""
    is_there = asyncio.Event()
    with reporting_to(lambda *_: is_there.set()):
        hanging = asyncio.create_task(desk.call(f"mcp:{server}/hang"))
    await is_there.wait()
    return hanging


async def _waiting(desk: Desk) -> Any:
    async def look() -> Any:
        found = [task for task in await desk.tools.tasks() if task.status == "awaiting_approval"]
        return found[0] if found else None

    return await _until(look, lambda task: task is not None)


async def _until(ask: Any, holds: Any) -> Any:
    found = None
    try:
        async with asyncio.timeout(60):
            while not holds(found := await ask()):
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"it stayed {found!r:.2000}") from None
    return found
