"""The search: one request to the service that is set up, whose answer becomes titles, addresses and snippets."""

from __future__ import annotations

import html
import json
import re
from typing import Annotated, Any

import aiohttp

from tavern_host import NodeContext, PluginContext, Slot, node
from tavern_host.contracts.errors import Misconfigured, ServiceUnavailable

BRAVE = "https://api.search.brave.com/res/v1/web/search"
SECONDS = aiohttp.ClientTimeout(total=20)
MOST_BYTES = 2_000_000
MOST_CHARACTERS = {"title": 200, "address": 2000, "snippet": 500}


@node(category="Web", display_name="Search the web", cached=False)
async def search(
    context: NodeContext, query: Annotated[str, Slot("What to search for.")]
) -> Annotated[list[dict[str, str]], Slot("Objects with title, address and snippet, the best first.", key="results")]:
    """Searches the web."""
    plugin = context.plugin
    if plugin.settings.get("service") == "brave":
        found = ((await _asked(plugin, BRAVE, {"q": query})).get("web") or {}).get("results")
        keys = ("title", "url", "description")
    else:
        found = (await _asked(plugin, "", {"q": query, "format": "json"})).get("results")
        keys = ("title", "url", "content")
    items = [item for item in found or [] if isinstance(item, dict) and item.get("url")]
    return [
        {name: _plain(item.get(key))[:most] for (name, most), key in zip(MOST_CHARACTERS.items(), keys, strict=True)}
        for item in items[: int(plugin.settings.get("most"))]
    ]


async def _asked(plugin: PluginContext, address: str, query: dict[str, str]) -> dict[str, Any]:
    """Return the service's answer. Raises `Misconfigured`, `ServiceUnavailable`; neither says the key."""
    address = str(plugin.settings.get("address") or address).rstrip("/")
    if not address.startswith(("http://", "https://")):
        raise Misconfigured("no search service is set up: set web-search.address, or web-search.service to brave")
    if "format" in query and not address.endswith("/search"):
        address += "/search"
    headers = {"Accept": "application/json"}
    if key := plugin.settings.get("key"):
        headers["X-Subscription-Token"] = key
    try:
        async with plugin.http.session().get(
            address, params=query, headers=headers, timeout=SECONDS, allow_redirects=False
        ) as answer:
            if answer.status != 200:
                hint = " (is the format json allowed there, and the host here?)" if answer.status == 403 else ""
                raise ServiceUnavailable(f"the search service answered with {answer.status}{hint}")
            body = bytearray()
            async for part in answer.content.iter_any():
                body += part
                if len(body) > MOST_BYTES:
                    raise ServiceUnavailable(f"the search service sent more than {MOST_BYTES:,} bytes")
        read = json.loads(body)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise ServiceUnavailable(f"the search service cannot be reached: {error or 'no answer in time'}") from None
    except ValueError:
        raise ServiceUnavailable("the search service answered with something that is not JSON") from None
    if not isinstance(read, dict):
        raise ServiceUnavailable("the search service answered with JSON that is not an object")
    return read


def _plain(text: object) -> str:
    """Return a text without tags, entities and line breaks."""
    return " ".join(html.unescape(re.sub(r"<[^<>]{0,200}>", "", str(text or ""))).split())
