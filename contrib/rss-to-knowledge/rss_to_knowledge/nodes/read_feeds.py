"""The node: reads all feeds and writes what is new or changed. Nothing is removed: what a feed drops, the base keeps.

An item is one entry for ever, since its id is made of the feed and of what the feed calls it.
"""

from __future__ import annotations

import asyncio
import calendar
import hashlib
import html
import io
import re
from datetime import UTC, datetime
from typing import Annotated, Any, TypedDict

import aiohttp

from tavern_host import NodeContext, NotFound, PluginContext, Slot, node
from tavern_host.contracts.errors import Misconfigured, ServiceUnavailable
from tavern_knowledge.api.knowledge import (
    KNOWLEDGE_BASE,
    BaseHeader,
    EntryContent,
    KnowledgeBase,
    KnowledgeEntry,
    ManagementMetadata,
)

SECONDS = aiohttp.ClientTimeout(total=30)
MOST_BYTES = 5_000_000
MOST_ITEMS = 500
MOST_CHARACTERS = 20_000
LONGEST_HEAD = 8_000
"""How many bytes may stand before the first element: feedparser's time for them grows with their square, and all of
Python waits for its regular expressions."""
PAGE = 1000


class Read(TypedDict):
    """What the node gives."""

    new: Annotated[int, Slot("How many entries were added.")]
    updated: Annotated[int, Slot("How many entries were changed.")]
    problems: Annotated[list[str], Slot("What is wrong with feeds that could not be read.")]


@node(category="Knowledge", display_name="Read feeds", cached=False)
async def read_feeds(context: NodeContext) -> Read:
    """Reads the feeds of the settings into their knowledge base."""
    plugin = context.plugin
    feeds = list(dict.fromkeys(str(plugin.settings.get("feeds") or "").split()))
    if not feeds:
        raise Misconfigured("no feeds are set up: set rss-to-knowledge.feeds, one address in each line")
    found: dict[str, KnowledgeEntry] = {}
    problems = []
    for done, feed in enumerate(feeds):
        context.progress(done, len(feeds), feed)
        try:
            body = await _fetched(plugin, feed)
            found |= await asyncio.to_thread(_entries, feed, body)
        except ServiceUnavailable as error:
            problems.append(f"{feed}: {error}")
    if len(problems) == len(feeds):
        raise ServiceUnavailable(f"no feed could be read: {'; '.join(problems)}")
    base = str(plugin.settings.get("base"))
    knowledge = plugin.services.get(KNOWLEDGE_BASE)
    known = await _known(knowledge, base)
    written = [entry for entry in (_merged(known.get(key), one) for key, one in found.items()) if entry is not None]
    for start in range(0, len(written), PAGE):
        await knowledge.put(base, written[start : start + PAGE])
    new = len(found.keys() - known.keys())
    return {"new": new, "updated": len(written) - new, "problems": problems}


async def _fetched(plugin: PluginContext, feed: str) -> bytes:
    """Return the content at an address. Raises `ServiceUnavailable`. A redirect is not followed: it may lead
    anywhere."""
    body = bytearray()
    try:
        async with plugin.http.session().get(feed, timeout=SECONDS, allow_redirects=False) as answer:
            if answer.status != 200:
                moved = f", and has moved to {answer.headers['Location']}" if "Location" in answer.headers else ""
                raise ServiceUnavailable(f"the server answered with {answer.status}{moved}")
            async for part in answer.content.iter_any():
                body += part
                if len(body) > MOST_BYTES:
                    raise ServiceUnavailable(f"the feed has more than {MOST_BYTES:,} bytes")
    except (aiohttp.ClientError, ValueError, TimeoutError) as error:
        raise ServiceUnavailable(f"it cannot be reached: {error or 'no answer in time'}") from None
    return bytes(body)


def _entries(feed: str, body: bytes) -> dict[str, KnowledgeEntry]:
    """Return the items of a feed by their ids. Blocking. Raises `ServiceUnavailable` for what is no feed.

    feedparser reads XML by the standard library's expat: it opens no external entity, expat bounds how far entities of
    the document expand, and what is no proper XML is read with plain entities alone.
    """
    import feedparser
    from feedparser.encodings import convert_to_utf8

    body = convert_to_utf8({}, body, {})
    if not re.search(rb"<\w", body[:LONGEST_HEAD]):
        raise ServiceUnavailable("what is there is no RSS or Atom feed")
    read: Any = feedparser.parse(io.BytesIO(body))  # bytes by themselves would be taken for the name of a file
    if not read.version:
        raise ServiceUnavailable("what is there is no RSS or Atom feed")
    name = _plain(read.feed.get("title")) or feed
    entries: dict[str, KnowledgeEntry] = {}
    for item in read.entries[:MOST_ITEMS]:
        called = str(item.get("id") or item.get("link") or item.get("title") or "")
        link = str(item.get("link") or "")
        link = link if link.startswith(("http://", "https://")) else ""  # a guid is taken for one
        if not called:
            continue
        key = f"feed-{hashlib.sha256(f'{feed} {called}'.encode()).hexdigest()[:24]}"
        text = _plain(next((one.value for one in item.get("content", ())), item.get("summary")))
        written, changed = (_moment(item, key) for key in ("published_parsed", "updated_parsed"))
        entries[key] = KnowledgeEntry(
            id=key,
            entry_type="feed_item",
            displayName=_plain(item.get("title"))[:500] or link,
            content=EntryContent(value="\n".join(filter(None, (text[:MOST_CHARACTERS], link))), url=link or None),
            management_metadata=ManagementMetadata(
                tags=[name[:100]], source=feed, created_at=written or changed, updated_at=changed
            ),
        )
    return entries


def _moment(item: Any, key: str) -> str | None:
    """Return a time of an item, which feedparser gives in UTC; None where there is none."""
    if key not in item:  # `get` would give another time in its place
        return None
    return datetime.fromtimestamp(calendar.timegm(item[key]), UTC).isoformat() if item[key] else None


async def _known(knowledge: KnowledgeBase, base: str) -> dict[str, KnowledgeEntry]:
    """Return the entries of a base by their ids; the base is made where it is missing."""
    try:
        page = await knowledge.list_entries(base, limit=PAGE)
    except NotFound:
        await knowledge.save_base(BaseHeader(kb_id=base, kb_displayName="News", kb_description="Items of feeds."))
        return {}
    stored = [*page.entries]
    while len(stored) < page.total and page.entries:
        page = await knowledge.list_entries(base, limit=PAGE, offset=len(stored))
        stored += page.entries
    return {one.entry.id: one.entry for one in stored}


def _merged(known: KnowledgeEntry | None, item: KnowledgeEntry) -> KnowledgeEntry | None:
    """Return the entry to write: None where nothing changed. What people added to it, such as keywords, stays."""
    if known is None:
        return item
    if (known.display_name, known.content.value) == (item.display_name, item.content.value):
        return None
    noted = known.management_metadata.model_copy(update={"updated_at": item.management_metadata.updated_at})
    changed = {"display_name": item.display_name, "content": item.content, "management_metadata": noted}
    return known.model_copy(update=changed)


def _plain(text: object) -> str:
    """Return a text without tags, entities and line breaks."""
    words = re.sub(r"</?(?:p|br|div|li|h[1-6]|tr|td)\b[^<>]*>", " ", str(text or ""))
    return " ".join(html.unescape(re.sub(r"<[^<>]*>", "", words)).split())
