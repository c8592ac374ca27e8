"""Follows the audit log, publishes alarms, and sends them to the webhook."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from tavern_alarms.patterns import Alarm, Limits, Patterns
from tavern_host import PluginContext
from tavern_host.contracts.audit import AUDIT, AuditEntry
from tavern_host.contracts.errors import TavernError
from tavern_host.storage.files import make_folder, write_atomic

LOOK = 1.0
"""Seconds between two looks at the log."""
MOST_ENTRIES = 1000
"""How many new entries are looked at each time; of more, the newest."""
TRIES = (1.0, 5.0, 30.0)
"""Seconds after which a webhook that does not answer is asked again."""
WAITING = 100
"""How many alarms may wait for the webhook; further ones are not sent to it."""

_HOSTS = "hosts.json"
_ANSWER = 10.0


async def follow(context: PluginContext) -> None:
    """Look for alarms until cancelled."""
    file = context.operator_dir / _HOSTS  # a project that comes from elsewhere does not say which hosts are known
    patterns = Patterns(await asyncio.to_thread(_read, file))
    sending: asyncio.Queue[Alarm] = asyncio.Queue(WAITING)
    context.tasks.spawn(_send(context, sending), name="send alarms to the webhook")
    seen = max((entry.seq for entry in await _newest(context, 1)), default=0)
    while True:
        await asyncio.sleep(LOOK)
        newest = await _newest(context, 1)
        if not newest or newest[0].seq == seen:
            continue
        seen = seen if newest[0].seq > seen else 0  # a new log was begun
        new = [entry for entry in await _newest(context, min(newest[0].seq - seen, MOST_ENTRIES)) if entry.seq > seen]
        seen = newest[0].seq
        known = len(patterns.hosts)
        for alarm in patterns.see(new, _limits(context)):
            context.log.warning("%s", alarm.message)
            context.events.publish("ALARM", alarm.to_json())
            with contextlib.suppress(asyncio.QueueFull):
                sending.put_nowait(alarm)
        if len(patterns.hosts) != known:
            await asyncio.to_thread(_write, file, list(patterns.hosts))


async def _newest(context: PluginContext, count: int) -> list[AuditEntry]:
    """Return the newest entries; none where the log cannot be read, which the host itself reports."""
    try:
        return await context.services.get(AUDIT).tail(count)
    except TavernError:
        return []


def _limits(context: PluginContext) -> Limits:
    settings = context.settings
    return Limits(int(settings.get("denials", 20)), int(settings.get("failures", 50)), settings.get("newHosts", True))


async def _send(context: PluginContext, sending: asyncio.Queue[Alarm]) -> None:
    """Send alarms one after the other, each a few times, to the address that there is then."""
    while True:
        alarm = await sending.get()
        for pause in (*TRIES, None):
            address = context.settings.get("webhook", "")
            if not address or (problem := await _sent(context, address, alarm)) is None:
                break
            if pause is None:
                context.log.error("the webhook for alarms did not take one: %s", problem)
            else:
                await asyncio.sleep(pause)


async def _sent(context: PluginContext, address: str, alarm: Alarm) -> str | None:
    """Send an alarm; return why it did not arrive, or None."""
    from aiohttp import ClientError, ClientSession, ClientTimeout

    body = json.dumps({"project": context.project.id, **alarm.to_json()}).encode()
    headers = {"Content-Type": "application/json"}
    if secret := context.settings.get("webhookSecret", ""):
        headers["X-Tavern-Signature"] = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    try:
        async with (
            ClientSession(timeout=ClientTimeout(total=_ANSWER)) as session,
            session.post(address, data=body, headers=headers, allow_redirects=False) as answer,
        ):
            return None if answer.status < 300 else f"it answered {answer.status}"
    except (ClientError, TimeoutError, ValueError, OSError) as error:
        return f"{type(error).__name__}: {error}"


def _read(file: Path) -> OrderedDict[str, None]:
    try:
        return OrderedDict.fromkeys(str(host) for host in json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError):  # the first time
        return OrderedDict()


def _write(file: Path, hosts: Sequence[str]) -> None:
    make_folder(file.parent)
    write_atomic(file, json.dumps(hosts).encode())
