"""The Bot API of Telegram (https://core.telegram.org/bots/api): one call, and what may be wrong with it."""

from __future__ import annotations

import json
from typing import Any

import aiohttp

from tavern_host import PluginContext

POLL_SECONDS = 50
SECONDS = aiohttp.ClientTimeout(total=70)
MOST_CHARACTERS = 4096  # of one message


class TelegramError(Exception):
    """A call that failed. `wait` is after how many seconds to ask again, 0 where Telegram does not say; `is_refused`
    that it certainly did nothing, so that the call may be repeated. The token is in no message."""

    def __init__(self, message: str, *, wait: float = 0, is_refused: bool = False) -> None:
        super().__init__(message)
        self.wait, self.is_refused = wait, is_refused


async def call(context: PluginContext, method: str, **parameters: Any) -> Any:
    """Call a method of the Bot API and return its result. Raises `TelegramError`."""
    address = str(context.settings.get("address")).rstrip("/")
    url = f"{address}/bot{context.settings.get('token')}/{method}"
    try:
        async with context.http.session().post(url, json=parameters, timeout=SECONDS, allow_redirects=False) as answer:
            body = await answer.read()
    except aiohttp.ClientConnectorError:
        raise TelegramError(f"{address} cannot be reached", is_refused=True) from None
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise TelegramError(f"{method} got no proper answer ({type(error).__name__})") from None
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    if isinstance(said, dict) and said.get("ok") is True:
        return said.get("result")
    said = said if isinstance(said, dict) else {}
    wait = (said.get("parameters") or {}).get("retry_after") or 0
    message = f"{method} was answered with {answer.status}: {str(said.get('description') or 'no reason')[:200]}"
    raise TelegramError(message, wait=float(wait), is_refused=answer.status in (429, 502, 503))


def parts(text: str) -> list[str]:
    """Return a text in parts that fit into messages; there is always one."""
    return [text[at : at + MOST_CHARACTERS] for at in range(0, len(text), MOST_CHARACTERS)] or ["(no text)"]
