"""Through which proxy an address is reached: as the operator's `host.yaml` says, or else as the environment does."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from pydantic import Field

from tavern_host.contracts.wire import Model

_ADDRESS = r"^https?://[^/\s]+/?$"


class ProxySettings(Model):
    """The proxies for addresses with `http` and `https`; `except_` are hosts and domains (`inn.example`, `.example`,
    `*`) that are reached directly, as in `NO_PROXY`."""

    http: str | None = Field(default=None, pattern=_ADDRESS)
    https: str | None = Field(default=None, pattern=_ADDRESS)
    except_: list[str] = Field(default_factory=list, alias="except")


def proxy_for(address: str, settings: ProxySettings | None = None) -> str | None:
    """Return the proxy through which an address is reached, None where it is reached directly. Without `settings` the
    variables `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` hold, in small letters too. This machine has none."""
    from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

    parts = urlsplit(address)
    host = parts.hostname or ""
    if host in ("localhost", "::1") or host.startswith("127."):
        return None
    if settings is None:
        found = getproxies_environment()
    else:
        found = {"no": ",".join(settings.except_), "http": settings.http or "", "https": settings.https or ""}
    proxy = found.get(parts.scheme, "")
    if not proxy or proxy_bypass_environment(parts.netloc.rpartition("@")[2], found):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def through(proxy: str | None) -> str:
    """Return what a message says of a proxy, without its credentials; nothing where there is none."""
    if proxy is None:
        return ""
    parts = urlsplit(proxy)
    return f" through the proxy {urlunsplit((parts.scheme, parts.netloc.rpartition('@')[2], '', '', ''))}"


NO_PROXY_HINT = "no proxy is set for it (HTTPS_PROXY, HTTP_PROXY, or `proxy` in host.yaml)"
"""What a message says of a name that cannot be resolved, where it would be looked up directly."""
