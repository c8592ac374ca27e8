"""Which hosts scripts and requests may reach: patterns, the names and addresses that they cover, and the addresses that
no name may lead to. Looks nothing up and opens no connection."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Literal

from tavern_host.contracts.errors import InvalidInput

Address = IPv4Address | IPv6Address
Scheme = Literal["connect", "http"]

DEFAULT_PORTS: dict[Scheme, int] = {"connect": 443, "http": 80}
"""The port that a pattern without one allows, for tunnels and for plain HTTP."""

_NAME = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*"
)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[0-9]{1,5}")

_SPECIAL_4: tuple[IPv4Network, ...] = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",
    )
)
_GLOBAL_6 = IPv6Network("2000::/3")
_SPECIAL_6: tuple[IPv6Network, ...] = tuple(
    IPv6Network(network) for network in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
)
_NAT64 = IPv6Network("64:ff9b::/96")


@dataclass(frozen=True)
class HostPattern:
    """One entry of an allow-list. `host` is a name, an address, or `*` for any name; `wildcard` means the names below
    `host`, not `host` itself. Without `port`, the default port of the scheme."""

    host: str
    port: int | None = None
    wildcard: bool = False
    address: Address | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if isinstance(self.address, IPv6Address) else self.host
        return ("*." if self.wildcard else "") + host + (f":{self.port}" if self.port is not None else "")


@dataclass(frozen=True)
class Target:
    """What is to be reached: a name in lower case, or an address; and a port."""

    host: str
    port: int
    address: Address | None = None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if isinstance(self.address, IPv6Address) else f"{self.host}:{self.port}"


class AllowList:
    """Decides which targets may be reached and over which addresses."""

    def __init__(self, patterns: Iterable[str]) -> None:
        """Take patterns. Raises `InvalidInput` for one that is none."""
        self._patterns = tuple(dict.fromkeys(parse_pattern(pattern) for pattern in patterns))

    def allows(self, target: Target, scheme: Scheme | None) -> bool:
        """Return whether a pattern covers `target`; an address is covered by that very address only. Without a scheme,
        the pattern has to say the port."""
        return any(_matches(pattern, target, scheme) for pattern in self._patterns)

    def usable(self, target: Target, found: Iterable[Address], scheme: Scheme) -> list[Address]:
        """Return the addresses at which a name may be reached: those of the public internet, and those that are listed
        themselves."""

        def is_listed(address: Address) -> bool:
            return self.allows(Target(host=str(address), port=target.port, address=address), scheme)

        return [address for address in dict.fromkeys(found) if not is_special(address) or is_listed(address)]


def parse_pattern(text: str) -> HostPattern:
    """Return the pattern that `text` is: `host`, `host:port`, `*.example.com`, `127.0.0.1:8080`, `[::1]:8080`, `*`.

    Raises `InvalidInput` saying what is wrong.
    """
    pattern = _pattern(text)
    if isinstance(pattern, str):
        raise InvalidInput(
            f"{text[:120]!r} is no host that can be allowed: {pattern}; "
            "write `host`, `host:port`, `*.example.com` or an address"
        )
    return pattern


def parse_target(text: str, default_port: int | None = None) -> Target | str:
    """Return the target that `text` (`host:port`, `[::1]:443`) names, or the mistake in it. Numbers that only some
    programs take for an address (`127.1`, `0x7f000001`) are refused."""
    split = _split_port(text)
    if isinstance(split, str):
        return split
    host, port = split
    port = port if port is not None else default_port
    if port is None:
        return "the port is missing"
    parsed = _host(host)
    if isinstance(parsed, str):
        return parsed
    name, address = parsed
    return Target(host=name, port=port, address=address)


def covers(wide: str, narrow: str) -> bool:
    """Return whether everything that the pattern `narrow` allows is allowed by the pattern `wide` too.

    `*` and a wildcard cover no address. Raises `InvalidInput`.
    """
    outer, inner = parse_pattern(wide), parse_pattern(narrow)
    if outer.port != inner.port:
        return False
    if outer.address is not None or inner.address is not None:
        return outer.address == inner.address
    if outer.host == "*":
        return True
    if outer.wildcard:
        return inner.host.endswith(f".{outer.host}") or (inner.wildcard and inner.host == outer.host)
    return not inner.wildcard and inner.host == outer.host


def is_special(address: Address) -> bool:
    """Return whether `address` is anything but an ordinary one of the public internet: private, loopback, link-local,
    multicast, reserved, or one that holds an IPv4 address in a way that could lead elsewhere."""
    if isinstance(address, IPv4Address):
        return any(address in network for network in _SPECIAL_4)
    if address in _NAT64:
        return is_special(IPv4Address(int(address) & 0xFFFFFFFF))
    return address not in _GLOBAL_6 or any(address in network for network in _SPECIAL_6)


def _matches(pattern: HostPattern, target: Target, scheme: Scheme | None) -> bool:
    port = DEFAULT_PORTS[scheme] if pattern.port is None and scheme is not None else pattern.port
    if target.port != port:
        return False
    if target.address is not None or pattern.address is not None:
        return target.address == pattern.address
    if pattern.host == "*":
        return True
    if pattern.wildcard:
        return target.host.endswith(f".{pattern.host}")
    return target.host == pattern.host


@lru_cache(maxsize=1024)
def _pattern(text: str) -> HostPattern | str:
    if not text or len(text) > 300:
        return "it is empty" if not text else "it is too long"
    split = _split_port(text)
    if isinstance(split, str):
        return split
    host, port = split
    if host == "*":
        return HostPattern(host="*", port=port)
    wildcard = host.startswith("*.")
    parsed = _host(host.removeprefix("*."))
    if isinstance(parsed, str):
        return parsed
    name, address = parsed
    if wildcard and address is not None:
        return "a wildcard cannot stand before an address"
    return HostPattern(host=name, port=port, wildcard=wildcard, address=address)


def _split_port(text: str) -> tuple[str, int | None] | str:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            return "a `]` is missing or followed by something else than a port"
        host, rest = f"[{host}]", rest[1:] if rest else ""
        has_port = text.endswith(f"]:{rest}")
    else:
        host, colon, rest = text.partition(":")
        has_port = bool(colon)
    if not has_port:
        return host, None
    if not _PORT.fullmatch(rest) or not 1 <= int(rest) <= 65535:
        return "what follows the `:` is no port from 1 to 65535; an IPv6 address stands in `[…]`"
    return host, int(rest)


def _host(text: str) -> tuple[str, Address | None] | str:
    if text.startswith("["):
        try:
            address = IPv6Address(text[1:-1])
        except ValueError:
            return "what stands in `[…]` is no IPv6 address"
        return "an address with a zone cannot be reached" if address.scope_id else (str(address), address)
    name = text.removesuffix(".")
    if not name.isascii():
        try:
            name = name.encode("idna").decode("ascii")
        except UnicodeError:
            return "it is no host name"
    name = name.lower()
    if not _NAME.fullmatch(name):
        return "it is no host name"
    if not _NUMBER.fullmatch(name.rpartition(".")[2]):
        return name, None
    try:
        numeric = ip_address(name)
    except ValueError:
        return "it is neither a host name nor an IPv4 address in its usual form"
    return str(numeric), numeric
