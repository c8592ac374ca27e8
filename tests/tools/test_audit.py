"""What the audit log says of calls of tools, and when it is on disk."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from helpers.audit_logs import kept_locked, tail, verify
from helpers.waiting import until
from known_methods import known_method

from tavern_host import Host
from tavern_host.contracts.audit import AuditEntry
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import ServiceUnavailable
from tavern_host.contracts.settings import MASK
from tavern_host.contracts.tools import ToolDefinition, ToolImplementation
from tavern_host.projects import Folders
from tavern_tools.api.toolcalls import ToolCallRequest, ToolErrorType
from tavern_tools.calls.audit import CallAudit
from tavern_tools.calls.call import UNKNOWN, Call
from tavern_tools.catalog.catalog import Tool
from tavern_tools.catalog.failures import ToolFailure

pytestmark = pytest.mark.asyncio(loop_scope="module")

CALL = CallContext(principal=Principal(kind="agent", id="writer"))
PARAMETERS = {"path": {"type": "string"}, "code": {"type": "string", "writeOnly": True}, "token": {"type": "string"}}


def tool(read_only: bool, *, plugin: str | None = "acme", service: str = "plugins", method: str = "get") -> Tool:
    how = ToolImplementation(kind="service", service=service, method=method)
    schema = {"type": "object", "properties": PARAMETERS}
    work = ToolDefinition(id="acme:work", implementation=how, parameters=schema, read_only=read_only, plugin=plugin)
    return Tool(work, method=known_method(service, method))


ACTING, READING = tool(False), tool(True)


def call(what: Tool | str, call_id: str = "c1", context: CallContext = CALL, **arguments: Any) -> Call:
    """Return a call of a tool, or of an id that no tool has."""
    found, tool_id = (UNKNOWN, what) if isinstance(what, str) else (what, what.definition.id)
    request = ToolCallRequest(tool_id=tool_id, arguments=arguments)
    return Call(call_id, request, context, None, time.perf_counter(), tool=found, milliseconds=1.5)


class Bench:
    """A running host with what records calls of its tools, of which a test sees those of its own."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.audit = CallAudit(host._manager.active["tavern-tools"].context)
        self._before = 0
        self._before = len(self.entries())

    async def deny(self, denied: Call, reason: str = "nobody may") -> None:
        await self.audit.deny(denied, ToolFailure(ToolErrorType.PERMISSION_DENIED, reason))

    def on_disk(self) -> list[AuditEntry]:
        entries = [entry for entry in tail(self.host.audit.path, 20_000) if entry.action.startswith("tool.")]
        return entries[self._before :]

    def entries(self) -> list[AuditEntry]:
        self.host.audit.flush()
        return self.on_disk()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Host]:
    place = tmp_path_factory.mktemp("audit")
    async with Host(place / "project", folders=Folders(place / "c", place / "s", place / "d")) as opened:
        yield opened


@pytest.fixture
def bench(host: Host) -> Bench:
    return Bench(host)


def shown(entry: AuditEntry) -> tuple[str, str, str, dict[str, Any]]:
    """Return the parts of an entry, without how long a call took."""
    details = dict(entry.details)
    assert details.pop("ms", 1) > 0  # type: ignore[operator]
    return str(entry.actor), entry.action, entry.subject, details


async def test_acting_calls_are_on_disk_before_they_are_made(bench: Bench) -> None:
    work = call(ACTING, path="a", token="x")
    await bench.audit.begin(work)
    (begun,) = bench.on_disk()
    about = ("agent:writer", "tool.called", "acme:work")
    assert shown(begun) == (*about, {"call": "c1", "arguments": {"path": "a", "token": MASK}})
    bench.audit.end(work, "done")
    _, ended = bench.entries()
    assert shown(ended) == ("agent:writer", "tool.ended", "acme:work", {"call": "c1", "outcome": "done"})


async def test_reading_calls_have_one_entry_soon(bench: Bench) -> None:
    look = call(READING, context=CallContext(principal=CALL.principal, run_id="run_1"), path="a", code="x")
    await bench.audit.begin(look)
    assert bench.entries() == []
    bench.audit.end(look, "error")
    await until(bench.on_disk, "the entry is on disk without being asked for")
    (entry,) = bench.entries()
    details = {"call": "c1", "run": "run_1", "outcome": "error", "arguments": {"path": "a", "code": MASK}}
    assert shown(entry) == ("agent:writer", "tool.called", "acme:work", details)
    # a project cannot call an acting method reading
    await bench.audit.begin(call(tool(True, plugin=None)))
    assert len(bench.entries()) == 1
    await bench.audit.begin(call(tool(True, plugin=None, service="executionEngine", method="run")))
    assert [entry.action for entry in bench.on_disk()] == ["tool.called"] * 2


async def test_denied_calls_are_on_disk_and_secrets_hidden(bench: Bench) -> None:
    for number, what in enumerate(("acme:gone", READING, ACTING)):
        await bench.deny(call(what, path="a", token="s3cret", n={"password": "s3cret"}, code="s3cret"))
        *_, entry = bench.on_disk()
        hidden = {"path": "a", "token": MASK, "n": {"password": MASK}, "code": MASK if number else "s3cret"}
        details = {"call": "c1", "reason": "PermissionDenied: nobody may", "arguments": hidden}
        assert shown(entry) == ("agent:writer", "tool.denied", "acme:work" if number else "acme:gone", details)
    for what in (READING, ACTING):
        secret = call(what, code="s4cret")
        await bench.audit.begin(secret)
        bench.audit.end(secret, "done")
    assert len(bench.entries()) == 6
    for path in bench.host.audit.path.parent.iterdir():
        assert b"s4cret" not in path.read_bytes(), path


async def test_a_call_that_cannot_be_recorded_is_not_made(bench: Bench) -> None:
    with kept_locked(bench.host.audit):
        with pytest.raises(ServiceUnavailable, match="another process did not release it"):
            await bench.audit.begin(call(ACTING))
        await bench.audit.begin(call(READING, "c2"))
        await bench.deny(call(ACTING, "c3"))
    assert [(entry.details["call"], entry.action, entry.details.get("outcome")) for entry in bench.entries()] == [
        *(("c1", "tool.called", None), ("c1", "tool.ended", "not made"), ("c3", "tool.denied", None))
    ]
    waiting = asyncio.create_task(bench.audit.begin(call(ACTING)))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert [entry.details.get("outcome") for entry in bench.entries()[3:]] == [None, "not made"]


async def test_floods_and_odd_values_spoil_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = '"},"x":"\n{"seq":1,"time":"'
    await bench.deny(call(odd, odd, **{odd: odd, "n": {odd: [odd]}}), odd)
    bench.audit.end(call(READING, odd, path=odd, share=float("nan")), odd)
    denied, called = bench.entries()
    assert (denied.subject, denied.details["reason"]) == (odd, f"PermissionDenied: {odd}")
    assert shown(called)[3] == {"call": odd, "outcome": odd, "arguments": {"path": odd, "share": "<nan>"}}
    look = call(READING, path="x" * 900)
    for _ in range(6_000):
        await bench.audit.begin(look)
        bench.audit.end(look, "done")
    bench.host.audit.flush()
    assert (bench.host.audit.lost, verify(bench.host.audit.path, bench.host.audit.anchor).problem) == (0, None)

    flushes: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (flushes.append(file), real(file))[1])
    before = len(bench.on_disk())
    await asyncio.gather(*(bench.audit.begin(call(ACTING, str(n), path=str(n))) for n in range(100)))
    assert len(bench.on_disk()) == before + 100
    assert len(flushes) < 40  # calls at once share flushes
