"""Failures of a model as one line, with secrets redacted. Decides nothing about when to try again."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from tavern_host import clock
from tavern_host.common.proxies import NO_PROXY_HINT, through
from tavern_host.common.redaction import redacted
from tavern_host.contracts.errors import PluginFailure, one_line
from tavern_llm.chat_wire import WireError, error_message, parse_json
from tavern_llm.dialects import is_overflow

if TYPE_CHECKING:
    import aiohttp

    from tavern_llm.openai_options import OpenAiOptions

UNKNOWN = "?"
"""What stands for a model that is not chosen yet: its server is asked what it has."""

_LIKE_A_KEY = 8
"""From how many characters on what an own header holds is taken for a key."""

SECRET_OPTIONS = ("api_key", "api_key_env")
"""Options of a model that hold a key, or name the environment variable that does."""

_PASSES = re.compile(r"overloaded|rate.?limit|try again|temporar|unavailable|time[sd]? ?out|disconnect", re.IGNORECASE)
"""What servers say that will be well later, where they give no status."""


_RETRY_INFO = re.compile(r'"retryDelay"\s*:\s*"(\d+(?:\.\d+)?)s"')
"""How servers of Google say when to come back (google.rpc.RetryInfo)."""


class RetryableFailure(PluginFailure):
    """The model could not be reached or was busy; the same request may succeed later."""

    retryable = True


def secrets_of(options: Mapping[str, Any]) -> list[str]:
    """Return the keys that a model's options hold or point to."""
    key, variable, headers = (options.get(name) for name in (*SECRET_OPTIONS, "headers"))
    found = [key, os.environ.get(variable) if isinstance(variable, str) else None]
    if isinstance(headers, dict):
        found += [one for one in headers.values() if isinstance(one, str) and len(one) >= _LIKE_A_KEY]
    return [secret for secret in found if isinstance(secret, str) and secret]


class ServerFailures:
    """What goes wrong with one server, as errors that name the model and the server."""

    def __init__(self, options: OpenAiOptions, proxy: Callable[[str], str | None]) -> None:
        self._options = options
        self._proxy = proxy

    def refusal(self, response: aiohttp.ClientResponse, body: str) -> PluginFailure:
        """Return the failure that a status other than 200 means; `body` is what came with it."""
        status = response.status
        if 300 <= status < 400:
            return self.failure(
                f"redirects elsewhere ({status}), which is not followed; use that address", status=status
            )
        try:
            said = error_message(parse_json(body)) or ""
        except WireError:
            said = "" if body.lstrip().startswith("<") else body[:2000].strip()
        has_no_credit = status == 402 or (status == 429 and "insufficient_quota" in body)
        retryable = (status in (408, 409, 425, 429) or status >= 500) and not has_no_credit
        meaning = {
            401: "refuses the API key" if self._options.key() else "wants an API key",
            402: "has no credit left",
            403: "refuses the API key, or the key may not use this model",
            404: "knows no such model or address; check the address and the model's name",
            429: "has no quota left" if has_no_credit else "is asked too often, or the quota is used up",
        }.get(status, "has failed" if status >= 500 else "refuses the request")
        details: dict[str, Any] = {"status": status}
        asked = _RETRY_INFO.search(body)
        wait = _seconds(response.headers.get("Retry-After", asked.group(1) if asked else ""))
        if retryable and wait is not None:
            details["retry_after"] = wait
        text = f"{meaning} ({status}){f': {said}' if said else ''}"
        if status in (407, 502, 503, 504):  # a proxy may have said so
            text += self._through()
        if is_overflow(body, status):
            return self.failure(f"takes no prompt of this length ({status}): {said}", status=status, overflow=True)
        return self.failure(text, retryable=retryable, **details)

    def said(self, message: str, status: int | None) -> PluginFailure:
        """Return the failure that an error object in an answer means; `status` is what it names."""
        details: dict[str, Any] = {"status": status} if status is not None else {}
        overflow = {"overflow": True} if is_overflow(message, status) else {}
        may_pass = status in (408, 429) or (status or 0) >= 500 or (status is None and _PASSES.search(message))
        retryable = not overflow and bool(may_pass)
        return self.failure(f"answered with an error: {message}", retryable=retryable, **details, **overflow)

    def broken(self, error: BaseException, *, answered: bool, seconds: float) -> PluginFailure:
        """Return the failure that a broken or impossible connection means, or `seconds` of silence."""
        import aiohttp

        if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
            return self.failure("has a certificate that is not trusted, or speaks no TLS")
        if isinstance(error, aiohttp.ClientHttpProxyError):
            why = f"which answered {error.status} {error.message}; may it reach the address?"
            return self.failure(f"cannot be reached{self._through()}, {why}", retryable=error.status >= 500)
        if isinstance(error, aiohttp.ClientConnectorError) and (through := self._through()):
            reason = os.strerror(error.os_error.errno or 0) if error.os_error.errno else "is it there?"
            return self.failure(f"cannot be reached{through}, which cannot be reached itself: {reason}", retryable=True)
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            text = f"cannot be found: its name has no address, and {NO_PROXY_HINT}; check the address"
            return self.failure(text, retryable=True)
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return self.failure("cannot be reached: nobody took the connection; does it run there?", retryable=True)
        if isinstance(error, TimeoutError):
            return self.failure(f"stayed silent for {seconds:g} s", retryable=True)
        if isinstance(error, aiohttp.ClientConnectorError):
            reason = os.strerror(error.os_error.errno) if error.os_error.errno else "no connection"
            return self.failure(f"cannot be reached: {reason}; does it run there?", retryable=True)
        if isinstance(error, aiohttp.InvalidURL):
            return self.failure("is not an address that can be reached; check the address")
        where = "in the middle of its answer" if answered else "before it answered"
        return self.failure(f"broke the connection {where}", retryable=True)

    def _through(self) -> str:
        return through(self._proxy(self._options.base_url))

    def failure(self, text: str, *, retryable: bool = False, **details: Any) -> PluginFailure:
        """Return a failure in one line, without keys."""
        options = self._options
        line = redacted(one_line(text), secrets_of(options.model_dump()))
        kind = RetryableFailure if retryable else PluginFailure
        who = "the server" if options.model == UNKNOWN else f"the model {options.model!r}"
        return kind(f"{who} at {options.origin()} {line}", **details)


def _seconds(wait: str) -> float | None:
    """Return a `Retry-After` (RFC 9110 §10.2.3), seconds or a date, in seconds."""
    try:
        seconds = float(wait)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(wait).timestamp() - clock.seconds()
        except (ValueError, TypeError):
            return None
    return min(max(seconds, 0.0), 1e6) if seconds == seconds else None
