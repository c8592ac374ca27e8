"""Notifies addresses that the operator allows of the ends of tasks: signed, retried, never redirected.

The body is JSON. `X-Tavern-Signature` is `sha256=` and the HMAC-SHA256, in hex, of the timestamp in
`X-Tavern-Timestamp` (seconds since 1970), a dot and the body, keyed with the operator's secret. A receiver checks it,
refuses timestamps that are more than a few minutes off, and takes each `X-Tavern-Delivery` once: after a crash a
delivery may come again.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Any

from tavern_host import clock
from tavern_host.context import Http, Settings
from tavern_host.contracts.errors import InvalidInput, PermissionDenied, TavernError, describe
from tavern_scripts.api.allowlist import AllowList
from tavern_scripts.api.outgoing import Outgoing
from tavern_tools.api.toolcalls import TaskCallback, ToolTask

HOSTS, SECRET = "callbackHosts", "callbackSecret"
"""The settings with the allowed hosts and with the secret."""

SECONDS = 10.0
"""How long an attempt may take."""

PAUSES = (1, 4, 16, 64, 256, 1024)
"""How many seconds pass after each failed attempt but the last."""

_LAYERS = ("operator", "environment")
_LATER = (408, 425, 429)


class _Refused(TavernError):
    """A callback that is not to be tried again."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """How an attempt went; `pause` is after how many seconds to try again, None for not at all."""

    callback: TaskCallback
    pause: float | None = None


class Callbacks:
    """Where callbacks may go is looked up for each, in the operator's and the environment's settings alone."""

    def __init__(self, settings: Settings, http: Http) -> None:
        self._settings = settings
        self._http = http

    def accept(self, url: str) -> TaskCallback:
        """Return a callback that is to be delivered. Raises `InvalidInput` or `PermissionDenied`."""
        address, _ = self._outgoing().check(url)
        if not self._secret():
            raise PermissionDenied(f"callbacks are not set up: the operator's setting {SECRET} is empty")
        return TaskCallback(url=f"{address.with_query(None)}" + ("?…" if address.query_string else ""))

    async def tell(self, url: str, task: ToolTask) -> Delivery:
        """Try to notify of the end of a task once, and return the outcome."""
        before = task.callback or TaskCallback(url=url)
        attempts = before.attempts + 1
        try:
            await self._post(url, task)
        except Exception as error:
            message = error.message if isinstance(error, TavernError) else f"it cannot be reached: {describe(error)}"
            is_over = isinstance(error, _Refused | InvalidInput | PermissionDenied) or attempts > len(PAUSES)
            status = "failed" if is_over else "waiting"
            after = before.model_copy(update={"status": status, "attempts": attempts, "error": message[:300]})
            return Delivery(after, None if is_over else PAUSES[attempts - 1])
        update = {"status": "delivered", "attempts": attempts, "delivered_at": clock.now(), "error": None}
        return Delivery(before.model_copy(update=update))

    async def _post(self, url: str, task: ToolTask) -> None:
        outgoing = self._outgoing()
        _, target = outgoing.check(url)
        if not (secret := self._secret()):
            raise _Refused(f"the operator's setting {SECRET} is empty")
        body = _body(task)
        async with asyncio.timeout(SECONDS):
            async with outgoing.request("POST", url, data=body, headers=_headers(task.id, body, secret)) as answer:
                status = answer.status
        if status >= 300:
            raise (TavernError if status >= 500 or status in _LATER else _Refused)(f"{target} answered {status}")

    def _outgoing(self) -> Outgoing:
        value = self._operators(HOSTS)
        try:
            allowed = AllowList([one for one in value if isinstance(one, str)] if isinstance(value, list) else [])
        except InvalidInput as error:
            raise PermissionDenied(f"the operator's setting {HOSTS} cannot be used: {error.message}") from None
        return Outgoing(self._http, allowed, setting=f"the operator's setting {HOSTS}", what="callbacks")

    def _secret(self) -> str:
        value = self._operators(SECRET)
        return value if isinstance(value, str) else ""

    def _operators(self, key: str) -> Any:
        """Return a setting as the operator or the environment has it: a project must not send itself anywhere."""
        layers = self._settings.layers(key)
        return next((layers[name] for name in reversed(_LAYERS) if name in layers), None)


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return the value of `X-Tavern-Signature` for a body that is sent at a time."""
    digest = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256)
    return f"sha256={digest.hexdigest()}"


def _body(task: ToolTask) -> bytes:
    shown = task.model_copy(update={"callback": None}).to_json()
    return json.dumps({"type": "toolTask.ended", "task": shown}).encode()


def _headers(task_id: str, body: bytes, secret: str) -> dict[str, str]:
    timestamp = str(int(clock.seconds()))
    return {
        "Content-Type": "application/json",
        "User-Agent": "tavern-host",
        "X-Tavern-Delivery": task_id,
        "X-Tavern-Timestamp": timestamp,
        "X-Tavern-Signature": signature(secret, timestamp, body),
    }
