"""How clients reach a server: where it listens, under which names, whether with TLS, and through which proxies."""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from aiohttp import web

from tavern_host import clock
from tavern_host.contracts.errors import InvalidInput

ADDRESS = "127.0.0.1"
_EVERYWHERE = "0.0.0.0"
_THIS_MACHINE = (ipaddress.ip_network("127.0.0.0/8"),)
_LOOPBACK = frozenset({ADDRESS, "localhost", "[::1]"})
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[1-9][0-9]{0,4})?")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:]*)(?::([0-9]*))?")
_BASE = re.compile(r"(/[\w.~-]+)*", re.ASCII)

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
T = TypeVar("T")

_log = logging.getLogger("tavern.server")


@dataclass(frozen=True)
class Reach:
    """Where a server listens, and what its clients may call it.

    `names` are those in the Host header besides the address itself, each for this port or with another. `base_path` is
    what all its paths begin with for clients, such as `/tavern`; a proxy may take it away. `proxies` are believed when
    they say for whom they ask (`X-Forwarded-For`, `X-Forwarded-Proto`).
    """

    port: int
    address: str = ADDRESS
    names: tuple[str, ...] = ()
    base_path: str = ""
    proxies: tuple[_Network, ...] = ()
    tls: ssl.SSLContext | None = None
    files: tuple[str, str] | None = None

    def reload(self) -> None:
        """Read the certificate and its key again; where they are none, those from before stay in use."""
        if self.tls is not None and self.files is not None:
            try:
                load_certificate(self.tls, *self.files)
            except InvalidInput as error:
                _log.error("%s; the certificate from before stays in use", error.message)

    def knows(self, host: str, *, by_proxy: bool = False) -> bool:
        """Return whether a Host header names this server. This machine's names have any port, as a forwarded one is not
        the server's; so have `names` where a proxy has passed it on. DNS rebinding brings a name that is none of these.
        """
        name = _split(host)[0]
        return name in _LOOPBACK or (by_proxy and name in self.names) or self.is_exactly(host)

    def is_exactly(self, host: str) -> bool:
        """Return whether that is what this server is called, with its port: pages of other ports are not its own."""
        name, port = _split(host)
        if host.lower() in self.names or (name in self.names and port == str(self.port)):
            return True
        return port == str(self.port) and name in {self.address, ADDRESS, "localhost"} - {_EVERYWHERE}

    def is_foreign(self, request: web.Request) -> bool:
        """Return whether a page that is not this server's sends a request: it has to bring a token of its own, since a
        browser lets it use the cookies of all ports of a machine."""
        if (origin := request.headers.get("Origin")) is None:
            return False
        scheme = "https" if self.is_secure(request) else "http"
        if origin == f"{scheme}://{request.host}":
            return False
        return not (origin.startswith(f"{scheme}://") and self.is_exactly(origin[len(scheme) + 3 :]))

    @property
    def local_url(self) -> str:
        """The address for programs of this machine."""
        address = ADDRESS if self.address == _EVERYWHERE else self.address
        return f"{'https' if self.tls is not None else 'http'}://{address}:{self.port}"

    @property
    def url(self) -> str:
        """The address of the first page, without a slash at its end, for who has started the server."""
        if not self.names:
            return self.local_url + self.base_path
        if self.proxies:
            return f"https://{self.names[0]}{self.base_path}"
        return f"{self.local_url.partition('//')[0]}//{self.names[0]}:{self.port}{self.base_path}"

    def admits(self, request: web.Request) -> bool:
        """Return whether a client may speak to this server: without TLS only its proxies and this machine may."""
        is_open = self.tls is None and not self.address.startswith("127.")
        return not is_open or self.is_from_proxy(request) or _is_in(request.remote, _THIS_MACHINE)

    def is_from_proxy(self, request: web.Request) -> bool:
        """Return whether a request comes from a proxy that is believed."""
        return bool(self.proxies) and _is_in(request.remote, self.proxies)

    def client(self, request: web.Request) -> str:
        """Return the address of the client that a request is from: the last one that no proxy has vouched for."""
        if not self.is_from_proxy(request):
            return request.remote or ""
        chain = request.headers.getall("X-Forwarded-For", [])
        hops = [request.remote or "", *reversed([hop.strip() for one in chain for hop in one.split(",")])]
        return next((hop for hop in hops if not _is_in(hop, self.proxies)), hops[-1])

    def is_secure(self, request: web.Request) -> bool:
        """Return whether the client speaks TLS, with this server or with a proxy before it."""
        return self.tls is not None or (
            self.is_from_proxy(request) and request.headers.get("X-Forwarded-Proto", "") == "https"
        )

    def base(self, request: web.Request) -> str:
        """Return the address of the first page for the client of a request, without a slash at its end."""
        return f"{'https' if self.is_secure(request) else 'http'}://{request.host}{self.base_path}"


def reach(
    port: int,
    *,
    address: str = ADDRESS,
    names: Iterable[str] = (),
    base_path: str = "",
    proxies: Iterable[str] = (),
    certificate: str | None = None,
    key: str | None = None,
) -> Reach:
    """Return the reach that the options of `tavern serve` ask for. Raises `InvalidInput` that names the option."""
    trusted = tuple(_read(f"--trusted-proxy {one}", ipaddress.ip_network, one) for one in proxies)
    is_open = not _read(f"--address {address}", ipaddress.IPv4Address, address).is_loopback
    if is_open and certificate is None and not trusted:
        what = "give --tls-cert and --tls-key, or the proxy before it that has a certificate as --trusted-proxy"
        raise InvalidInput(f"--address {address}: the token could be read on its way; {what}")
    for name in names:
        if not _NAME.fullmatch(name):
            raise InvalidInput(f"--name {name}: a name is such as inn.example or inn.example:9000, in lower case")
    if not _BASE.fullmatch(base_path):
        raise InvalidInput(f"--base-path {base_path}: a base path is such as /tavern, without a slash at its end")
    if certificate is None and key is None:
        return Reach(port, address, tuple(names), base_path, trusted)
    if certificate is None or key is None:
        raise InvalidInput("--tls-cert and --tls-key are given together")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    load_certificate(tls, certificate, key)
    return Reach(port, address, tuple(names), base_path, trusted, tls, (certificate, key))


def load_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Read a certificate and its key into a context, for the connections from then on. Raises `InvalidInput`."""
    try:
        context.load_cert_chain(certificate, key, password="")  # one with a password is refused, not asked for
    except ssl.SSLError as error:
        why = error.reason.replace("_", " ").lower() if error.reason else "these are no certificate and its key in PEM"
        raise InvalidInput(f"--tls-cert {certificate}, --tls-key {key}: {why}") from None
    except OSError as error:
        missing = next((file for file in (certificate, key) if not os.access(file, os.R_OK)), certificate)
        raise InvalidInput(f"{missing} cannot be read: {error.strerror}") from None
    from cryptography.x509 import load_pem_x509_certificate

    ends = load_pem_x509_certificate(Path(certificate).read_bytes()).not_valid_after_utc
    if ends < clock.now():
        _log.warning("the certificate %s was valid until %s: clients refuse it", certificate, ends.isoformat(" "))


def _split(host: str) -> tuple[str, str]:
    """Return the name and the port of a Host header, the port empty where there is none."""
    found = _HOST.fullmatch(host.lower())
    return (found[1], found[2] or "") if found is not None else (host, "")


def _read(option: str, read: Callable[[str], T], text: str) -> T:
    try:
        return read(text)
    except ValueError as error:
        raise InvalidInput(f"{option}: {error}") from None


def _is_in(address: str | None, networks: Iterable[_Network]) -> bool:
    try:
        found = ipaddress.ip_address(address or "")
    except ValueError:
        return False
    return any(found in network for network in networks)
