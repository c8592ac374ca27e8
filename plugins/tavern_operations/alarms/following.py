"""Follows the audit log and publishes alarms; sends them, and advisories, to the webhook.

It signs as Standard Webhooks 1.0.0 does (standardwebhooks.com): HMAC-SHA256 of the id, the time and the body, so that a
message that somebody saw cannot be sent again later.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tavern_host import PluginContext, clock
from tavern_host.common.proxies import failed
from tavern_host.contracts.audit import AUDIT, AuditEntry
from tavern_host.contracts.errors import Misconfigured, TavernError
from tavern_host.contracts.events import Event
from tavern_host.storage.files import make_folder, write_atomic
from tavern_operations.alarms.patterns import Limits, Patterns
from tavern_operations.api.advisories import ADVISORY

LOOK = 1.0
"""Seconds between two looks at the log."""
MOST_ENTRIES = 1000
"""How many new entries are looked at each time; of more, the newest."""
TRIES = (1.0, 5.0, 30.0)
"""Seconds after which a webhook that does not answer is asked again."""
WAITING = 100
"""How many alarms may wait for the webhook; further ones are not sent to it."""

_Message = dict[str, Any]
_HOSTS = "hosts.json"
_ANSWER = 10.0


async def follow(context: PluginContext) -> None:
    """Look for alarms until cancelled."""
    file = context.operator_dir / _HOSTS  # a project that comes from elsewhere does not say which hosts are known
    patterns = Patterns(await asyncio.to_thread(_read, file))
    sending: asyncio.Queue[_Message] = asyncio.Queue(WAITING)
    context.tasks.spawn(_send(context, sending), name="send alarms to the webhook")
    context.tasks.spawn(_pass_on_advisories(context, sending), name="send advisories to the webhook")
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
            _put(sending, alarm.to_json())
        if len(patterns.hosts) != known:
            await asyncio.to_thread(_write, file, list(patterns.hosts))


async def _newest(context: PluginContext, count: int) -> list[AuditEntry]:
    """Return the newest entries; none where the log cannot be read, which the host itself reports."""
    try:
        return await context.services.get(AUDIT).tail(count)
    except TavernError:
        return []


def _limits(context: PluginContext) -> Limits:
    get = context.settings.get
    return Limits(int(get("alarmDenials", 20)), int(get("alarmFailures", 50)), get("alarmNewHosts", True))


async def _pass_on_advisories(context: PluginContext, sending: asyncio.Queue[_Message]) -> None:
    async for event in context.events.subscribe(ADVISORY):
        if isinstance(event, Event):
            message = f"{event.payload.get('package')} {event.payload.get('version')}: {event.payload.get('id')}"
            _put(sending, {"kind": "advisory", "message": message, "advisory": event.payload})


def _put(sending: asyncio.Queue[_Message], message: _Message) -> None:
    with contextlib.suppress(asyncio.QueueFull):
        sending.put_nowait(message)


async def _send(context: PluginContext, sending: asyncio.Queue[_Message]) -> None:
    """Send messages one after the other, each a few times under the same id, to the address that there is then."""
    while True:
        body = json.dumps({"project": context.project.id, **await sending.get()}).encode()
        message_id = "msg_" + secrets.token_hex(16)
        for pause in (*TRIES, None):
            address = context.settings.get("webhook", "")
            if not address or (problem := await _sent(context, address, message_id, body)) is None:
                break
            if pause is None:
                context.log.error("the webhook for alarms did not take one: %s", problem)
            else:
                await asyncio.sleep(pause)


async def _sent(context: PluginContext, address: str, message_id: str, body: bytes) -> str | None:
    """Send a message; return why it did not arrive, or None."""
    from aiohttp import ClientError, ClientTimeout

    headers = {
        "Content-Type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(int(clock.seconds())),
    }
    try:
        if secret := context.settings.get("webhookSecret", ""):
            headers["webhook-signature"] = signature(secret, message_id, headers["webhook-timestamp"], body)
        sending = context.http.session().post(
            address, data=body, headers=headers, allow_redirects=False, timeout=ClientTimeout(total=_ANSWER)
        )
        async with sending as answer:
            return None if answer.status < 300 else f"it answered {answer.status}"
    except Misconfigured as error:
        return error.message
    except (ClientError, TimeoutError, ValueError, OSError) as error:
        return f"it cannot be reached{failed(context.http.proxy(address), error)}"


def signature(secret: str, message_id: str, timestamp: str, body: bytes) -> str:
    """Return the signature of a message, as Standard Webhooks has it. Of a secret that begins with `whsec_` the rest is
    the key in base64; any other is the key itself. Raises `ValueError` where that is no base64."""
    encoded = secret.removeprefix("whsec_")
    key = secret.encode() if encoded == secret else base64.b64decode(encoded, validate=True)
    signed = hmac.new(key, b".".join((message_id.encode(), timestamp.encode(), body)), hashlib.sha256)
    return "v1," + base64.b64encode(signed.digest()).decode()


def _read(file: Path) -> OrderedDict[str, None]:
    try:
        return OrderedDict.fromkeys(str(host) for host in json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError):  # the first time
        return OrderedDict()


def _write(file: Path, hosts: Sequence[str]) -> None:
    make_folder(file.parent)
    write_atomic(file, json.dumps(hosts).encode())
