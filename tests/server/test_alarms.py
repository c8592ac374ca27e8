"""Alarms: what is unusual in the audit log, as events and at a webhook."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer
from helpers.repetition import Failures

from tavern_host import Host, clock
from tavern_host.contracts.audit import AuditEntry
from tavern_host.contracts.events import Event
from tavern_host.testing.http import served
from tavern_operations.alarms import following
from tavern_operations.alarms.patterns import Limits, Patterns

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def entry(second: float, action: str, subject: str = "t", actor: str = "agent:a", **details: Any) -> AuditEntry:
    moment = BEGIN + timedelta(seconds=second)
    return AuditEntry(seq=1, time=moment, actor=actor, action=action, subject=subject, details=details)


def seen(*entries: AuditEntry, denials: int = 3, failures: int = 3, new_hosts: bool = True) -> list[tuple[str, str]]:
    limits = Limits(denials, failures, new_hosts)
    return [(alarm.kind, alarm.subject) for alarm in Patterns().see(entries, limits)]


def test_what_is_unusual_is_seen_once() -> None:
    denied = [entry(second, "tool.denied", subject=f"t{second}") for second in range(5)]
    later = [entry(500 + second, "tool.denied") for second in range(3)]
    mixed = [entry(0, kind) for kind in ("tool.denied", "script.kept-out", "tool.denied")]
    refused = [entry(0, "account.login_refused", subject=name, client="192.0.2.1") for name in "abc"]
    failed = [entry(s, "tool.ended", actor=f"user:{s}", outcome="ScriptError") for s in range(3)]
    fine = [entry(s, "tool.ended", outcome=how) for s, how in enumerate(("done", "done", "interrupted", "accepted"))]
    begun = [entry(s, "tool.called") for s in range(9)]
    reached = [entry(0, "script.connected", host=f"{name}.example") for name in "aba"]
    alarm, no_limit = ("denials", "agent:a"), {"denials": 0, "new_hosts": False}
    rows: list[tuple[str, list[AuditEntry], dict[str, Any], list[tuple[str, str]]]] = [
        ("two denials", denied[:2], {}, []),
        ("denials of one caller", denied, {}, [alarm]),
        ("of as many callers", [entry(s, "tool.denied", actor=f"agent:{s}") for s in range(9)], {}, []),
        ("one in 40 seconds", [entry(s * 40, "tool.denied") for s in range(9)], {}, []),
        ("again later", [*denied, *later], {}, [alarm] * 2),
        ("not looked for", [*denied, *reached], no_limit, []),
        ("of two kinds", mixed, {}, [alarm]),
        ("logins from one address", refused, {}, [("denials", "a login from 192.0.2.1")]),
        ("failures of one tool", failed, {}, [("failures", "t")]),
        ("too few failures", [*fine, *begun, *failed[:2]], {}, []),
        ("a host is new once", reached, {}, [("new-host", "a.example"), ("new-host", "b.example")]),
    ]
    with Failures() as failures:
        for name, entries, limits, alarms in rows:
            with failures.row(name):
                assert seen(*entries, **limits) == alarms


async def test_alarms_are_events_and_reach_a_webhook(tmp_path: Path) -> None:
    got: asyncio.Queue[tuple[bytes, str, str, str]] = asyncio.Queue()
    answers = iter((500, 302))

    async def take(request: web.Request) -> web.Response:
        signed = [request.headers[f"webhook-{name}"] for name in ("id", "timestamp", "signature")]
        got.put_nowait((await request.read(), signed[0], signed[1], signed[2]))
        return web.Response(status=next(answers, 200))

    app = web.Application()
    app.router.add_post("/alarm", take)
    ours = "extensions.tavern-operations"
    async with TestServer(app) as webhook:
        settings = {
            f"{ours}.alarmDenials": 3,
            f"{ours}.webhook": str(webhook.make_url("/alarm")),
            f"{ours}.webhookSecret": "s3cret",
        }
        async with Host(tmp_path / "inn", serving=True, settings=settings) as host, served(host) as site:
            events = host.events.subscribe("ALARM")
            for _ in range(3):
                await site.post("/api/tools/execute", json={"toolId": "absent", "arguments": {}})
            event = await anext(aiter(events))
            assert isinstance(event, Event)
            assert (event.payload["kind"], event.payload["subject"]) == ("denials", "user:operator")
            sent = [await got.get() for _ in range(3)]  # two tries failed
            host.events.publish("ADVISORY", {"id": "GHSA-1", "package": "beer", "version": "1.0"})
            advisory = await got.get()
            assert json.loads(sent[0][0]) == {"project": host.project.id, **event.payload}
            assert {(body, message_id) for body, message_id, _, _ in sent} == {sent[0][:2]}
            told = {"id": "GHSA-1", "package": "beer", "version": "1.0"}
            wanted = {"project": host.project.id, "kind": "advisory", "message": "beer 1.0: GHSA-1", "advisory": told}
            assert json.loads(advisory[0]) == wanted
            assert advisory[1] != sent[0][1]
            for body, message_id, moment, signature in (*sent, advisory):
                assert abs(int(moment) - clock.seconds()) < 300
                digest = hmac.new(b"s3cret", f"{message_id}.{moment}.".encode() + body, hashlib.sha256).digest()
                assert signature == f"v1,{base64.b64encode(digest).decode()}"


def test_a_signature_is_that_of_standard_webhooks() -> None:
    """The example of the specification's own libraries."""
    secret, message_id = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek"
    signed = following.signature(secret, message_id, "1614265330", b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
