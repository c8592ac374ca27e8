"""Requests over HTTP to the hosts that an operator has listed: names are looked up once, a private address is reached
only where it is listed itself, and redirects are checked as the first address was."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING

from tavern_host.common.proxies import NO_PROXY_HINT, failed
from tavern_host.common.redaction import without_credentials
from tavern_host.context import Http
from tavern_host.contracts.errors import InvalidInput, PermissionDenied, ServiceUnavailable
from tavern_scripts.api.allowlist import Address, AllowList, Scheme, Target, parse_target

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

SCHEMES: dict[str, Scheme] = {"http": "http", "https": "connect"}
MAX_URL = 8_000
"""How many characters an address has at most."""
_MOVED = frozenset({301, 302, 303, 307, 308})


class Outgoing:
    """Sends requests to listed hosts; `setting` is what messages call the list, `what` what is sent."""

    def __init__(self, http: Http, allowed: AllowList, *, setting: str, what: str) -> None:
        self._http = http
        self._allowed = allowed
        self._setting = setting
        self._what = what

    def check(self, url: str | URL, *, secret: bool = False) -> tuple[URL, Target]:
        """Return an address that may be asked, and its host. Raises `InvalidInput` for what is no address, and
        `PermissionDenied` where its host is not listed; for what is `secret` and not encrypted, with its port."""
        address, target = self._read(url)
        is_open = secret and address.scheme == "http"
        if not self._allowed.allows(target, None if is_open else SCHEMES[address.scheme]):
            how = " with its port, as plain http needs" if is_open else ""
            raise PermissionDenied(f"{self._what} to {target} are not allowed: {self._setting} does not list it{how}")
        return address, target

    @asynccontextmanager
    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        data: bytes | None = None,
        redirects: int = 0,
        kept: frozenset[str] = frozenset(),
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request, and give its answer within the block; how long that may take is for the caller to say.

        At most so many `redirects` are followed; of those to another origin only the headers in `kept`, in small
        letters, go along. Raises as `check` does, `PermissionDenied` where a name leads to a private address that is
        not listed, and `ServiceUnavailable`."""
        import aiohttp
        from yarl import URL

        sent, (address, target) = dict(headers), self.check(url)
        while True:
            proxy = self._http.proxy(str(address))  # it looks the name up, so no address can be held to
            resolver = None if proxy is not None else _fixed(await self._addresses(target, SCHEMES[address.scheme]))
            connector = aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False, force_close=True)
            async with aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), timeout=aiohttp.ClientTimeout(total=None)
            ) as session:
                try:
                    answer = await session.request(
                        method, address, data=data, headers=sent, allow_redirects=False, proxy=proxy
                    )
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    raise ServiceUnavailable(f"{target} cannot be reached{failed(proxy, error)}") from None
                async with answer:
                    location = answer.headers.get("Location", "")
                    if redirects <= 0 or answer.status not in _MOVED or not location:
                        yield answer
                        return
                    redirects, status = redirects - 1, answer.status
            before = address
            try:
                address, target = self.check(before.join(URL(location)))
            except ValueError as error:
                raise InvalidInput(f"{target} leads to {_shown(location)}, which is no address: {error}") from None
            if status == 303 or (status in (301, 302) and method == "POST"):
                method, data = ("HEAD" if method == "HEAD" else "GET"), None  # RFC 9110, 15.4
                sent = {key: value for key, value in sent.items() if not key.lower().startswith("content-")}
            if address.origin() != before.origin():
                sent = {key: value for key, value in sent.items() if key.lower() in kept}

    def _read(self, url: str | URL) -> tuple[URL, Target]:
        from yarl import URL

        text = str(url)
        if len(text) > MAX_URL:
            raise InvalidInput(f"an address has at most {MAX_URL:,} characters, got {len(text):,}")
        if not text.isprintable() or " " in text or "\\" in text:
            raise InvalidInput(f"{_shown(text)} is no address: a space or backslash in it is written as %20 or %5C")
        try:
            address = URL(text)
            port = address.port
        except ValueError as error:
            raise InvalidInput(f"{_shown(text)} is no address: {error}") from None
        if address.scheme not in SCHEMES or not address.raw_host or not port:
            raise InvalidInput(f"an address is http://… or https://…, got {_shown(text)}")
        if address.raw_user is not None or address.raw_password is not None:
            raise InvalidInput("an address holds no name or password")
        host = f"[{address.raw_host}]" if ":" in address.raw_host else address.raw_host
        target = parse_target(f"{host}:{port}")
        if isinstance(target, str):
            raise InvalidInput(f"{_shown(text)} is no address: {target}")
        return address.with_fragment(None), target

    async def _addresses(self, target: Target, scheme: Scheme) -> list[Address]:
        """Return the addresses of a host that may be connected to."""
        if target.address is not None:
            return [target.address]
        try:
            found = await asyncio.get_running_loop().getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            why = f"{getattr(error, 'strerror', None) or error}; {NO_PROXY_HINT}"
            raise ServiceUnavailable(f"{target.host} was not found: {why}") from None
        addresses = [ip_address(str(where[0]).partition("%")[0]) for *_, where in found]
        if not (usable := self._allowed.usable(target, addresses, scheme)):
            reason = f"{target.host} leads to the private address {addresses[0]}"
            raise PermissionDenied(f"{reason}, which {self._setting} does not list itself")
        return usable


def _shown(address: str) -> str:
    return f"{without_credentials(address)!r:.80}"


def _fixed(addresses: list[Address]) -> aiohttp.abc.AbstractResolver:
    """Return a resolver of every name to the addresses that were checked: a second answer changes nothing."""
    from aiohttp.abc import AbstractResolver, ResolveResult

    class Fixed(AbstractResolver):
        async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
            flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
            kinds = {4: socket.AF_INET, 6: socket.AF_INET6}
            return [
                {
                    "hostname": host,
                    "host": str(one),
                    "port": port,
                    "family": kinds[one.version],
                    "proto": 0,
                    "flags": flags,
                }
                for one in addresses
            ]

        async def close(self) -> None:
            """Nothing is held."""

    return Fixed()
