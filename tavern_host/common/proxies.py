"""Through which proxy an address is reached: as the operator's `host.yaml` says, or else as the environment does."""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

from pydantic import Field, field_validator

from tavern_host.contracts.errors import Misconfigured, describe
from tavern_host.contracts.wire import Model

_ADDRESS = re.compile(r"https?://[^/\s]+/?")
_HERE = "localhost,127.0.0.1,::1"


class ProxySettings(Model):
    """The proxies for addresses with `http` and `https`; `except_` are hosts and domains (`inn.example`, `.example`,
    `*`) that are reached directly, as in `NO_PROXY`."""

    http: str | None = None
    https: str | None = None
    except_: list[str] = Field(default_factory=list, alias="except")

    @field_validator("http", "https")
    @classmethod
    def _is_of_http(cls, value: str | None) -> str | None:
        if value is not None and (wrong := _wrong(value)):
            raise ValueError(wrong)
        return value


def proxy_for(address: str, settings: ProxySettings | None = None) -> str | None:
    """Return the proxy through which an address is reached, None where it is reached directly. Without `settings` the
    variables `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` hold, in small letters too. This machine has none. Raises
    `Misconfigured` for a proxy of another kind."""
    from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

    parts = urlsplit(address)
    host = parts.hostname or ""
    if host in ("localhost", "::1") or host.startswith("127."):
        return None
    found = _found(settings)
    if not found.get(parts.scheme) or proxy_bypass_environment(parts.netloc.rpartition("@")[2], found):
        return None
    return _proxy(parts.scheme, found)


def proxy_variables(settings: ProxySettings | None = None) -> dict[str, str]:
    """Return the variables with which a program reaches what it reaches as `proxy_for` says; it must have no others of
    proxies. Raises `Misconfigured`."""
    found = _found(settings)
    if found.get("no") == "*":
        return {}
    named = {f"{scheme.upper()}_PROXY": _proxy(scheme, found) for scheme in ("http", "https") if found.get(scheme)}
    return named | {"NO_PROXY": ",".join(filter(None, (found.get("no"), _HERE)))} if named else {}


def through(proxy: str | None, error: BaseException | None = None) -> str:
    """Return the clause of a message about the way: the proxy, without its credentials, or that none is set, where an
    error is that a name has no address; else empty."""
    if proxy is None:
        return f", as its name has no address, and {NO_PROXY_HINT}" if _is_unknown_name(error) else ""
    parts = urlsplit(proxy)
    return f" through the proxy {urlunsplit((parts.scheme, parts.netloc.rpartition('@')[2], '', '', ''))}"


def failed(proxy: str | None, error: BaseException) -> str:
    """Return the clause of a message after "it cannot be reached": the way, and the reason."""
    status = getattr(error, "status", None)  # of a proxy's answer: the text of that error has the credentials
    return f"{through(proxy, error)}: {describe(error) if status is None else f'it answered {status}'}"


NO_PROXY_HINT = "no proxy is set for it (HTTPS_PROXY, HTTP_PROXY, or `proxy` in host.yaml)"
"""What a message says of a name that cannot be resolved, where it would be looked up directly."""


def _found(settings: ProxySettings | None) -> dict[str, str]:
    from urllib.request import getproxies_environment

    if settings is None:
        return dict(getproxies_environment())
    return {"no": ",".join(settings.except_), "http": settings.http or "", "https": settings.https or ""}


def _proxy(scheme: str, found: dict[str, str]) -> str:
    named = found[scheme]
    proxy = named if "://" in named else f"http://{named}"
    if wrong := _wrong(proxy):
        raise Misconfigured(f"{scheme.upper()}_PROXY {wrong}")
    return proxy


def _wrong(proxy: str) -> str:
    if _ADDRESS.fullmatch(proxy):
        return ""
    shown = f"{proxy.partition('://')[0]}://{proxy.partition('://')[2].rpartition('@')[2]}"
    return f"names {shown}, and must be http://HOST:PORT or https://HOST:PORT; proxies of the kind SOCKS are not used"


def _is_unknown_name(error: BaseException | None) -> bool:
    """Return whether the cause of an error is a name without an address, however clients wrap that."""
    from socket import gaierror

    for _ in range(9):
        if error is None or isinstance(error, gaierror):
            break
        error = getattr(error, "os_error", None) or error.__cause__ or error.__context__
    return isinstance(error, gaierror)
