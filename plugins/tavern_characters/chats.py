"""Chats of SillyTavern (JSON Lines) as conversations and back: swipes are versions of a message."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tavern_agents.api.histories import ExportedBranch, ExportedMemory, HistoryExport, HistoryMessage
from tavern_agents.api.memory import KeptMemory
from tavern_characters.conversations import PERSONA, USER
from tavern_host import clock
from tavern_host.contracts.calls import new_id
from tavern_host.contracts.documents import json_type, read_json
from tavern_host.contracts.errors import InvalidInput
from tavern_knowledge.api.containers import in_utf8
from tavern_llm.api.llm import ChatMessage

MAX_MESSAGES = 50_000
"""How many messages a chat may have, its swipes among them."""

_KNOWN = {"name", "is_user", "is_system", "send_date", "mes", "swipes", "swipe_id", "swipe_info"}
_NUMBERS = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})\s*@\s*(\d{1,2})h\s*(\d{1,2})m(?:\s*(\d{1,2})s)?")
_WORDS = ("%B %d, %Y %I:%M%p", "%B %d, %Y %H:%M")


@dataclass
class ReadChat:
    """A chat: whose it is, its messages, each with its swipes, which of them is shown and when it was said, and what
    has no place here."""

    user: str
    character: str
    messages: list[tuple[list[ChatMessage], int, datetime]] = field(default_factory=list)
    unsupported: list[str] = field(default_factory=list)


def read_chat(content: bytes) -> ReadChat:
    """Return the chat that a file holds. Raises `InvalidInput` naming the line."""
    try:
        lines = in_utf8(content).decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the chat is not UTF-8 text (byte {error.start})") from None
    objects = [(n, _object(line, n)) for n, line in enumerate(lines, 1) if line.strip()]
    if not objects or not {"user_name", "character_name", "chat_metadata", "mes"} & objects[0][1].keys():
        raise InvalidInput(
            "the file is no chat of SillyTavern: its first line says neither user_name nor character_name"
        )
    head = objects[0][1] if "mes" not in objects[0][1] else {}
    said = [one for _, one in objects if "mes" in one]
    named, asked = ([one for one in said if bool(one.get("is_user")) is is_user] for is_user in (False, True))
    user = _text(head, "user_name", 1) or (_text(asked[0], "name", 1) if asked else "")
    found = ReadChat(
        user=user[:100].strip() or "User",
        character=_text(head, "character_name", 1) or (_text(named[0], "name", 1) if named else ""),
    )
    count, odd, now = 0, Counter[str](), clock.now()
    for number, one in objects[1 if head else 0 :]:
        extra = one.get("extra")
        is_narrated = isinstance(extra, dict) and extra.get("type") == "narrator"
        if one.get("is_system") is True and not is_narrated:
            odd["hidden messages"] += 1
            continue
        odd.update(key for key, value in one.items() if key not in _KNOWN and value not in (None, "", [], {}, False))
        swipes, shown = _swipes(one, number)
        if (count := count + len(swipes)) > MAX_MESSAGES:
            raise InvalidInput(f"the chat has more than {MAX_MESSAGES:,} messages with their swipes")
        role: Any = "user" if one.get("is_user") is True else "system" if is_narrated else "assistant"
        name = None if role == "system" else _text(one, "name", number)[:200] or None
        made = [ChatMessage(role=role, content=text, name=name if role == "assistant" else None) for text in swipes]
        found.messages.append((made, shown, _moment(one.get("send_date"), now)))
    found.unsupported = sorted(f"{name}: {times}" for name, times in odd.items())
    return found


def as_history(chat: ReadChat, conversation: str, agent: str, title: str) -> HistoryExport | None:
    """Return a chat as a conversation; None where nothing was said in it."""
    messages: list[HistoryMessage] = []
    parent: str | None = None
    for versions, shown, at in chat.messages:
        made = [HistoryMessage(id=new_id("msg"), parent_id=parent, message=one, created_at=at) for one in versions]
        messages += made
        parent = made[shown].id
    if parent is None:
        return None
    first = messages[0].created_at
    state = KeptMemory(state={USER: chat.user, PERSONA: ""})
    roots = [one.id for one in messages if one.parent_id is None]
    return HistoryExport(
        id=conversation,
        title=title[:200],
        created_at=first,
        changed_at=clock.now(),
        active="main",
        branches=[ExportedBranch(name="main", head=parent, created_at=first, changed_at=clock.now())],
        messages=messages,
        memories=[ExportedMemory(message_id=root, agents={agent: state}) for root in roots],
    )


def as_chat(history: HistoryExport, branch: str | None = None) -> bytes:
    """Return a branch of a conversation as a chat, the messages beside one as its swipes; calls of tools and their
    results are left out."""
    by_id = {one.id: one for one in history.messages}
    at: str | None = next(one.head for one in history.branches if one.name == (branch or history.active))
    path: list[HistoryMessage] = []
    while at is not None:
        path.append(by_id[at])
        at = by_id[at].parent_id
    beside: dict[tuple[str | None, str], list[HistoryMessage]] = {}
    for one in history.messages:
        beside.setdefault((one.parent_id, one.message.role), []).append(one)
    states = [state for memory in history.memories for state in memory.agents.values()]
    user = next((str(one.state[USER]) for one in states if isinstance(one.state.get(USER), str)), "User")
    names = [one.message.name for one in path if one.message.role == "assistant" and one.message.name]
    character = names[0] if names else history.title or "Assistant"
    lines: list[dict[str, Any]] = [
        {"user_name": user, "character_name": character, "create_date": _iso(history.created_at), "chat_metadata": {}}
    ]
    for one in reversed(path):
        if _is_said(one):
            versions = [other for other in beside[one.parent_id, one.message.role] if _is_said(other)]
            lines.append(_line(one, versions, user, character))
    return "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines).encode("utf-8", "replace")


def _is_said(one: HistoryMessage) -> bool:
    text = one.message.content
    return one.message.role != "tool" and bool(text.strip()) and not text.startswith("<OBSERVATION>")


def _line(one: HistoryMessage, versions: list[HistoryMessage], user: str, character: str) -> dict[str, Any]:
    is_user, is_narrated = one.message.role == "user", one.message.role == "system"
    line: dict[str, Any] = {
        "name": user if is_user else "System" if is_narrated else one.message.name or character,
        "is_user": is_user,
        "is_system": False,
        "send_date": _iso(one.created_at),
        "mes": one.message.content,
        "extra": {"type": "narrator"} if is_narrated else {},
    }
    if not is_user and not is_narrated:
        line |= {"swipe_id": versions.index(one), "swipes": [other.message.content for other in versions]}
    return line


def _object(line: str, number: int) -> dict[str, Any]:
    found = read_json(line, f"line {number}")
    if not isinstance(found, dict):
        raise InvalidInput(f"line {number}: expected an object, got {json_type(found)}")
    return found


def _text(one: dict[str, Any], key: str, number: int) -> str:
    found = one.get(key)
    if found is not None and not isinstance(found, str):
        raise InvalidInput(f"line {number}: {key}: expected text, got {json_type(found)}")
    return found or ""


def _swipes(one: dict[str, Any], number: int) -> tuple[list[str], int]:
    """Return the texts of a message, and which of them is shown: the one that its `mes` is."""
    said, swipes = _text(one, "mes", number), one.get("swipes")
    if one.get("is_user") is True or not isinstance(swipes, list) or not swipes:
        return [said], 0
    if not all(isinstance(text, str) for text in swipes):
        raise InvalidInput(f"line {number}: swipes: expected a list of texts")
    shown = one.get("swipe_id")
    if not isinstance(shown, int) or isinstance(shown, bool) or not 0 <= shown < len(swipes):
        return ([*swipes, said], len(swipes)) if said not in swipes else (swipes, swipes.index(said))
    return [*swipes[:shown], said, *swipes[shown + 1 :]], shown  # a message that was edited since is what it says


def _moment(value: Any, otherwise: datetime) -> datetime:
    """Return a time as chats have it: ISO 8601, milliseconds, or one of SillyTavern's own forms."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value)
        if not isinstance(value, str):
            return otherwise
        if match := _NUMBERS.search(value):
            year, month, day, hour, minute, second = (int(part or 0) for part in match.groups())
            return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
        if value[:4].isdigit():
            found = datetime.fromisoformat(value)
            return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        for form in _WORDS:
            try:
                return datetime.strptime(value, form).replace(tzinfo=UTC)
            except ValueError:
                continue
    except (ValueError, OverflowError):
        pass
    return otherwise


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
