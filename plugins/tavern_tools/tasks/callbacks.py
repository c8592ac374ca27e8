"""Notifies addresses that the operator allows of the ends of tasks: signed, retried, never redirected.

The body is JSON. `X-Tavern-Signature` is `sha256=` and the HMAC-SHA256, in hex, of the timestamp in
`X-Tavern-Timestamp` (seconds since 1970), a dot and the body, keyed with the operator's secret. A receiver checks it,
refuses timestamps that are more than a few minutes off, and takes each `X-Tavern-Delivery` once: after a crash a
delivery may come again.
"""

from __future__ import annotations

import asyncio
import fnmatch
import hashlib
import hmac
import ipaddress
import json
import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from tavern_host import clock
from tavern_host.common.proxies import NO_PROXY_HINT, failed
from tavern_host.context import Http, Settings
from tavern_host.contracts.errors import InvalidInput, PermissionDenied, TavernError
from tavern_tools.api.toolcalls import TaskCallback, ToolTask

if TYPE_CHECKING:
    import aiohttp

HOSTS, SECRET = "callbackHosts", "callbackSecret"
"""The settings with the allowed hosts and with the secret."""

SECONDS = 10.0
"""How long an attempt may take."""

PAUSES = (1, 4, 16, 64, 256, 1024)
"""How many seconds pass after each failed attempt but the last."""

_LAYERS = ("operator", "environment")
_PORTS = {"http": 80, "https": 443}
_LATER = (408, 425, 429)
_MAX_URL = 2000
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


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
        parts = self._allowed(url)
        if not self._secret():
            raise PermissionDenied(f"callbacks are not set up: the operator's setting {SECRET} is empty")
        return TaskCallback(url=f"{parts.scheme}://{parts.netloc}{parts.path}" + ("?…" if parts.query else ""))

    async def tell(self, url: str, task: ToolTask) -> Delivery:
        """Try to notify of the end of a task once, and return the outcome."""
        before = task.callback or TaskCallback(url=url)
        attempts = before.attempts + 1
        try:
            await self._post(url, task)
        except Exception as error:
            message = error.message if isinstance(error, TavernError) else ""
            message = message or f"it cannot be reached{failed(self._http.proxy(url), error)}"
            is_over = isinstance(error, _Refused | InvalidInput | PermissionDenied) or attempts > len(PAUSES)
            status = "failed" if is_over else "waiting"
            after = before.model_copy(update={"status": status, "attempts": attempts, "error": message[:300]})
            return Delivery(after, None if is_over else PAUSES[attempts - 1])
        update = {"status": "delivered", "attempts": attempts, "delivered_at": clock.now(), "error": None}
        return Delivery(before.model_copy(update=update))

    async def _post(self, url: str, task: ToolTask) -> None:
        import aiohttp

        parts = self._allowed(url)
        if not (secret := self._secret()):
            raise _Refused(f"the operator's setting {SECRET} is empty")
        body = _body(task)
        async with asyncio.timeout(SECONDS):
            proxy = self._http.proxy(url)  # which looks the name up, and to which addresses nothing can be held
            resolver = None if proxy is not None else _fixed(await self._addresses(parts))
            connector = aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False, force_close=True)
            headers = _headers(task.id, body, secret)
            async with (
                aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session,
                session.post(url, data=body, headers=headers, allow_redirects=False, proxy=proxy) as answer,
            ):
                status = answer.status
        if status >= 300:
            message = f"{_host_port(parts)} answered {status}"
            raise (TavernError if status >= 500 or status in _LATER else _Refused)(message)

    def _allowed(self, url: str) -> SplitResult:
        """Return the parts of an address that the operator allows."""
        parts = _split(url)
        place = _host_port(parts)
        is_name = _address(parts.hostname or "") is None  # an address is listed in full: no pattern matches it
        if not any(place == listed or (is_name and fnmatch.fnmatchcase(place, listed)) for listed in self._hosts()):
            raise PermissionDenied(f"callbacks to {place} are not allowed: the operator's setting {HOSTS} lists hosts")
        return parts

    async def _addresses(self, parts: SplitResult) -> list[tuple[int, str]]:
        """Return the addresses of a host that may be connected to: private ones only where they are listed."""
        port = _port(parts)
        try:
            found = await asyncio.get_running_loop().getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
        except OSError as error:
            why = f"{error.strerror or error}; {NO_PROXY_HINT}"
            raise TavernError(f"{parts.hostname} was not found: {why}") from None
        addresses: list[tuple[int, str]] = [(family, str(where[0])) for family, _, _, _, where in found]
        listed = set(self._hosts())
        is_own = parts.hostname == "localhost" and _host_port(parts) in listed
        allowed = [(f, a) for f, a in addresses if is_own or _is_public(a) or _place(a, port) in listed]
        if not allowed:
            raise _Refused(
                f"{parts.hostname} leads to the private address {addresses[0][1]}, which the operator's setting"
                f" {HOSTS} does not list itself"
            )
        return allowed

    def _hosts(self) -> list[str]:
        value = self._operators(HOSTS)
        return [text.strip().lower() for text in value if isinstance(text, str)] if isinstance(value, list) else []

    def _secret(self) -> str:
        value = self._operators(SECRET)
        return value if isinstance(value, str) else ""

    def _operators(self, key: str) -> Any:
        """Return a setting as the operator or the environment has it: a project must not send itself anywhere."""
        layers = self._settings.layers(key)
        return next((layers[name] for name in reversed(_LAYERS) if name in layers), None)


def _fixed(addresses: list[tuple[int, str]]) -> aiohttp.abc.AbstractResolver:
    """Return a resolver of every name to the addresses that were checked: a second answer changes nothing."""
    from aiohttp.abc import AbstractResolver, ResolveResult

    class Fixed(AbstractResolver):
        async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
            flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
            return [
                {"hostname": host, "host": address, "port": port, "family": kind, "proto": 0, "flags": flags}
                for kind, address in addresses
            ]

        async def close(self) -> None:
            """Nothing is held."""

    return Fixed()


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


def _split(url: str) -> SplitResult:
    if len(url) > _MAX_URL:
        raise InvalidInput(f"a callback's address has at most {_MAX_URL} characters, got {len(url)}")
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise InvalidInput(f"a callback's address is plain ASCII, got {url!r:.80}")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidInput(f"{url!r:.80} is no address: {error}") from None
    if parts.scheme not in _PORTS or not parts.hostname or port == 0:
        raise InvalidInput(f"a callback's address is http://… or https://…, got {url!r:.80}")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise InvalidInput("a callback's address holds no name, password or fragment")
    if _address(parts.hostname) is None and _NUMBER.fullmatch(parts.hostname.rstrip(".").rpartition(".")[2]):
        raise InvalidInput(f"{parts.hostname!r:.80} is no host: write an address in its usual form")
    return parts


def _host_port(parts: SplitResult) -> str:
    return _place(parts.hostname or "", _port(parts))


def _place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _port(parts: SplitResult) -> int:
    return parts.port or _PORTS[parts.scheme]


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_public(text: str) -> bool:
    address = _address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        within = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if within is None and address in _NAT64:
            within = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if within is not None and not _is_public(str(within)):
            return False
    return address is not None and address.is_global and not address.is_multicast


_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
