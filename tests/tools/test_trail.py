"""What the audit log says of calls of tools, and when it is on disk."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from known_methods import known_method

from tavern_host import Host
from tavern_host.audit.file import tail, verify
from tavern_host.contracts.audit import AuditEntry
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import ServiceUnavailable
from tavern_host.contracts.settings import MASK
from tavern_host.contracts.tools import ToolDefinition, ToolImplementation
from tavern_tools.calls.trail import Trail
from tavern_tools.catalog.catalogue import Tool

CALL = CallContext(principal=Principal(kind="agent", id="writer"))
PARAMETERS = {"path": {"type": "string"}, "code": {"type": "string", "writeOnly": True}, "token": {"type": "string"}}


def tool(*, read_only: bool, plugin: str | None = "acme", service: str = "plugins", method: str = "get") -> Tool:
    return Tool(
        ToolDefinition(
            id="acme:work",
            implementation=ToolImplementation(kind="service", service=service, method=method),
            parameters={"type": "object", "properties": PARAMETERS},
            read_only=read_only,
            plugin=plugin,
        ),
        method=known_method(service, method),
    )


class Bench:
    """A running host with the trail of its tools."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.trail = Trail(host._manager.active["tavern-tools"].context)

    def on_disk(self) -> list[AuditEntry]:
        return [entry for entry in tail(self.host.audit.path, 10_000) if entry.action.startswith("tool.")]

    def entries(self) -> list[AuditEntry]:
        self.host.audit.flush()
        return self.on_disk()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with Host(tmp_path / "project") as host:
        yield Bench(host)


async def test_a_call_that_changes_something_is_on_disk_before_it_is_made(bench: Bench) -> None:
    work = tool(read_only=False)
    await bench.trail.begun("c1", work, {"path": "a", "token": "x"}, CALL)
    (entry,) = bench.on_disk()
    assert (entry.actor, entry.action, entry.subject) == ("agent:writer", "tool.called", "acme:work")
    assert entry.details == {"call": "c1", "arguments": {"path": "a", "token": MASK}}
    bench.trail.ended("c1", work, {"path": "changed"}, CALL, "done", 12.5)
    _, ended = bench.entries()
    assert (ended.actor, ended.action, ended.subject) == ("agent:writer", "tool.ended", "acme:work")
    assert ended.details == {"call": "c1", "outcome": "done", "ms": 12.5, "arguments": {}}


async def test_a_call_that_changes_nothing_has_one_entry_when_it_has_ended(bench: Bench) -> None:
    look = tool(read_only=True)
    call = CallContext(principal=CALL.principal, run_id="run_1")
    await bench.trail.begun("c1", look, {"path": "a"}, call)
    assert bench.entries() == []
    bench.trail.ended("c1", look, {"path": "a", "code": "x"}, call, "error", 0.25)
    (entry,) = bench.entries()
    assert (entry.actor, entry.action, entry.subject) == ("agent:writer", "tool.called", "acme:work")
    assert entry.details == {
        "call": "c1",
        "run": "run_1",
        "outcome": "error",
        "ms": 0.25,
        "arguments": {"path": "a", "code": MASK},
    }


async def test_it_is_on_disk_soon_after(bench: Bench) -> None:
    bench.trail.ended("c1", tool(read_only=True), {"path": "a"}, CALL, "done", 1)
    while not bench.on_disk():
        await asyncio.sleep(0.005)


async def test_what_a_project_says_of_a_method_that_acts_is_not_believed(bench: Bench) -> None:
    liar = tool(read_only=True, plugin=None, service="executionEngine", method="run")
    await bench.trail.begun("c1", liar, {}, CALL)
    assert [entry.action for entry in bench.on_disk()] == ["tool.called"]
    honest = tool(read_only=True, plugin=None)
    await bench.trail.begun("c2", honest, {}, CALL)
    assert len(bench.entries()) == 1


@pytest.mark.parametrize("what", ["acme:gone", tool(read_only=True)], ids=["unknown", "known"])
async def test_a_denied_call_is_on_disk_before_anybody_is_told(bench: Bench, what: Tool | str) -> None:
    await bench.trail.denied("c1", what, {"path": "a", "token": "x", "n": {"password": "y"}}, CALL, "nobody may")
    (entry,) = bench.on_disk()
    assert (entry.actor, entry.action) == ("agent:writer", "tool.denied")
    assert entry.subject == ("acme:gone" if what == "acme:gone" else "acme:work")
    hidden = {"path": "a", "token": MASK, "n": {"password": MASK}}
    assert entry.details == {"call": "c1", "reason": "nobody may", "arguments": hidden}


async def test_what_the_schema_marks_as_secret_is_hidden_in_every_entry(bench: Bench) -> None:
    for read_only in (True, False):
        work = tool(read_only=read_only)
        await bench.trail.begun("c", work, {"code": "s3cret"}, CALL)
        bench.trail.ended("c", work, {"code": "s3cret"}, CALL, "done", 1)
        await bench.trail.denied("c", work, {"code": "s3cret"}, CALL, "no")
    assert len(bench.entries()) == 5
    assert b"s3cret" not in bench.host.audit.path.read_bytes()


async def test_a_call_that_cannot_be_recorded_is_not_made(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, data: Any) -> int:
        raise OSError(28, "No space left on device")

    work, look = tool(read_only=False), tool(read_only=True)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(ServiceUnavailable, match="No space left on device"):
            await bench.trail.begun("c1", work, {}, CALL)
        await bench.trail.begun("c2", look, {}, CALL)
        await bench.trail.denied("c3", work, {}, CALL, "no")
    called, ended, denied = bench.entries()
    assert (called.details["call"], called.action) == ("c1", "tool.called")
    assert (ended.details["call"], ended.details["outcome"]) == ("c1", "not made")
    assert denied.details["call"] == "c3"


async def test_a_call_that_is_cancelled_before_it_is_made_is_told(bench: Bench) -> None:
    waiting = asyncio.create_task(bench.trail.begun("c1", tool(read_only=False), {}, CALL))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert [entry.details.get("outcome") for entry in bench.entries()] == [None, "not made"]


async def test_a_flood_of_calls_loses_no_entry(bench: Bench) -> None:
    look = tool(read_only=True)
    arguments = {"path": "x" * 900}
    for number in range(15_000):
        await bench.trail.begun(str(number), look, arguments, CALL)
        bench.trail.ended(str(number), look, arguments, CALL, "done", 1)
    bench.host.audit.flush()
    assert bench.host.audit.lost == 0
    assert verify(bench.host.audit.path, bench.host.audit.anchor).problem is None


async def test_odd_tools_arguments_and_outcomes_cannot_forge_an_entry(bench: Bench) -> None:
    odd = '"},"x":"\n{"seq":1,"time":"'
    await bench.trail.denied(odd, odd, {odd: odd, "n": {odd: [odd]}}, CALL, odd)
    bench.trail.ended(odd, tool(read_only=True), {"path": odd}, CALL, odd, float("nan"))
    denied, called = bench.entries()
    assert (denied.subject, denied.details["reason"]) == (odd, odd)
    assert called.details == {"call": odd, "outcome": odd, "ms": "<nan>", "arguments": {"path": odd}}
    assert verify(bench.host.audit.path, bench.host.audit.anchor).problem is None


async def test_a_hundred_calls_at_once_share_the_flushes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    flushes: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (flushes.append(file), real(file))[1])
    work = tool(read_only=False)
    await asyncio.gather(*(bench.trail.begun(str(n), work, {"path": str(n)}, CALL) for n in range(100)))
    assert len(bench.on_disk()) == 100
    assert len(flushes) < 40


async def test_tools_that_come_and_go_take_bounded_memory(bench: Bench) -> None:
    for number in range(3000):
        bench.trail.ended(str(number), tool(read_only=True), {}, CALL, "done", 1)
    assert len(bench.trail._forms) <= 1024
