"""What the audit log says of calls of tools, and when it is on disk."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from helpers.audit_logs import kept_locked, tail, verify
from known_methods import known_method

from tavern_host import Host
from tavern_host.contracts.audit import AuditEntry
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import ServiceUnavailable
from tavern_host.contracts.settings import MASK
from tavern_host.contracts.toolcalls import ToolCallRequest, ToolErrorType
from tavern_host.contracts.tools import ToolDefinition, ToolImplementation
from tavern_tools.calls.audit import CallAudit
from tavern_tools.calls.call import Call
from tavern_tools.catalog.catalog import Tool
from tavern_tools.catalog.failures import ToolFailure

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


def call(
    what: Tool | str, arguments: dict[str, Any], *, call_id: str = "c1", context: CallContext = CALL, **more: Any
) -> Call:
    """Return a call of a tool, or of an id that no tool has."""
    tool_id = what if isinstance(what, str) else what.definition.id
    request = ToolCallRequest(tool_id=tool_id, arguments=arguments)
    found = None if isinstance(what, str) else what
    return Call(call_id, request, context, None, time.perf_counter(), found=found, **more)


class Bench:
    """A running host with what records calls of its tools."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.audit = CallAudit(host._manager.active["tavern-tools"].context)

    async def deny(self, denied: Call, reason: str = "nobody may") -> None:
        await self.audit.deny(denied, ToolFailure(ToolErrorType.PERMISSION_DENIED, reason))

    def on_disk(self) -> list[AuditEntry]:
        return [entry for entry in tail(self.host.audit.path, 10_000) if entry.action.startswith("tool.")]

    def entries(self) -> list[AuditEntry]:
        self.host.audit.flush()
        return self.on_disk()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with Host(tmp_path / "project") as host:
        yield Bench(host)


async def test_an_acting_call_is_on_disk_before_it_is_made(bench: Bench) -> None:
    work = call(tool(read_only=False), {"path": "a", "token": "x"})
    await bench.audit.begin(work)
    (entry,) = bench.on_disk()
    assert (entry.actor, entry.action, entry.subject) == ("agent:writer", "tool.called", "acme:work")
    assert entry.details == {"call": "c1", "arguments": {"path": "a", "token": MASK}}
    bench.audit.end(work.having(outcome="done"))
    _, ended = bench.entries()
    assert (ended.actor, ended.action, ended.subject) == ("agent:writer", "tool.ended", "acme:work")
    assert ended.details.pop("ms") > 0
    assert ended.details == {"call": "c1", "outcome": "done"}


async def test_a_reading_call_has_one_entry(bench: Bench) -> None:
    context = CallContext(principal=CALL.principal, run_id="run_1")
    look = call(tool(read_only=True), {"path": "a", "code": "x"}, context=context)
    await bench.audit.begin(look)
    assert bench.entries() == []
    bench.audit.end(look.having(outcome="error"))
    (entry,) = bench.entries()
    assert (entry.actor, entry.action, entry.subject) == ("agent:writer", "tool.called", "acme:work")
    assert entry.details.pop("ms") > 0
    assert entry.details == {
        "call": "c1",
        "run": "run_1",
        "outcome": "error",
        "arguments": {"path": "a", "code": MASK},
    }


async def test_a_reading_call_is_on_disk_soon(bench: Bench) -> None:
    bench.audit.end(call(tool(read_only=True), {"path": "a"}))
    while not bench.on_disk():
        await asyncio.sleep(0.005)


async def test_a_project_cannot_call_an_acting_method_reading(bench: Bench) -> None:
    liar = tool(read_only=True, plugin=None, service="executionEngine", method="run")
    await bench.audit.begin(call(liar, {}))
    assert [entry.action for entry in bench.on_disk()] == ["tool.called"]
    honest = tool(read_only=True, plugin=None)
    await bench.audit.begin(call(honest, {}))
    assert len(bench.entries()) == 1


@pytest.mark.parametrize("what", ["acme:gone", tool(read_only=True)], ids=["unknown", "known"])
async def test_a_denied_call_is_on_disk_before_it_returns(bench: Bench, what: Tool | str) -> None:
    await bench.deny(call(what, {"path": "a", "token": "x", "n": {"password": "y"}}))
    (entry,) = bench.on_disk()
    assert (entry.actor, entry.action) == ("agent:writer", "tool.denied")
    assert entry.subject == ("acme:gone" if what == "acme:gone" else "acme:work")
    hidden = {"path": "a", "token": MASK, "n": {"password": MASK}}
    assert entry.details == {"call": "c1", "reason": "PermissionDenied: nobody may", "arguments": hidden}


async def test_marked_secrets_are_hidden_in_every_entry(bench: Bench) -> None:
    for read_only in (True, False):
        secret = call(tool(read_only=read_only), {"code": "s3cret"})
        await bench.audit.begin(secret)
        bench.audit.end(secret)
        await bench.deny(secret)
    assert len(bench.entries()) == 5
    for path in bench.host.audit.path.parent.iterdir():
        assert b"s3cret" not in path.read_bytes(), path


async def test_a_call_that_cannot_be_recorded_is_not_made(bench: Bench) -> None:
    work, look = tool(read_only=False), tool(read_only=True)
    with kept_locked(bench.host.audit):
        with pytest.raises(ServiceUnavailable, match="another process did not release it"):
            await bench.audit.begin(call(work, {}))
        await bench.audit.begin(call(look, {}, call_id="c2"))
        await bench.deny(call(work, {}, call_id="c3"))
    called, ended, denied = bench.entries()
    assert (called.details["call"], called.action) == ("c1", "tool.called")
    assert (ended.details["call"], ended.details["outcome"]) == ("c1", "not made")
    assert denied.details["call"] == "c3"


async def test_a_call_cancelled_before_it_is_made_is_recorded(bench: Bench) -> None:
    waiting = asyncio.create_task(bench.audit.begin(call(tool(read_only=False), {})))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert [entry.details.get("outcome") for entry in bench.entries()] == [None, "not made"]


async def test_a_flood_of_calls_loses_no_entry(bench: Bench) -> None:
    look = call(tool(read_only=True), {"path": "x" * 900})
    for _ in range(15_000):
        await bench.audit.begin(look)
        bench.audit.end(look)
    bench.host.audit.flush()
    assert bench.host.audit.lost == 0
    assert verify(bench.host.audit.path, bench.host.audit.anchor).problem is None


async def test_odd_values_cannot_forge_an_entry(bench: Bench) -> None:
    odd = '"},"x":"\n{"seq":1,"time":"'
    await bench.deny(call(odd, {odd: odd, "n": {odd: [odd]}}, call_id=odd), odd)
    bench.audit.end(call(tool(read_only=True), {"path": odd, "share": float("nan")}, call_id=odd, outcome=odd))
    denied, called = bench.entries()
    assert (denied.subject, denied.details["reason"]) == (odd, f"PermissionDenied: {odd}")
    assert called.details.pop("ms") > 0
    assert called.details == {"call": odd, "outcome": odd, "arguments": {"path": odd, "share": "<nan>"}}
    assert verify(bench.host.audit.path, bench.host.audit.anchor).problem is None


async def test_a_hundred_calls_at_once_share_flushes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    flushes: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (flushes.append(file), real(file))[1])
    work = tool(read_only=False)
    await asyncio.gather(*(bench.audit.begin(call(work, {"path": str(n)}, call_id=str(n))) for n in range(100)))
    assert len(bench.on_disk()) == 100
    assert len(flushes) < 40
