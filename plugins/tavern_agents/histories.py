"""The `chatHistory` service: conversations and their branches, in the agents' database.

Each change is one transaction, and an event `CHAT_HISTORY` once it is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from tavern_agents import State
from tavern_agents.api.histories import (
    ChatHistory,
    HistoryDetails,
    HistoryExport,
    HistoryMessage,
    HistoryNode,
    HistorySummary,
)
from tavern_agents.history_exchange import export_history, import_history
from tavern_agents.history_titles import read_summaries
from tavern_agents.history_tree import (
    Place,
    add_messages,
    check_idle,
    exists,
    find_branch,
    find_end,
    find_message,
    find_place,
    latest_below,
    move_branch,
    named,
    read_children,
    read_details,
    read_path,
    read_tree,
    rename_branch,
    require,
    turn_start,
)
from tavern_agents.pictures import hold_pictures, keep_pictures, with_pictures
from tavern_agents.rows import message_body
from tavern_host import clock
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import Conflict, InvalidInput, NotFound
from tavern_llm.api.llm import ChatMessage

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")

EVENT = "CHAT_HISTORY"

Addition = tuple[Place, Sequence[ChatMessage], Sequence[str]]
"""Where messages are added, which, and the ids of those that they are copies of."""

MAX_NODES = 10_000
"""The most messages of a tree that are returned at once."""


class Histories(ChatHistory):
    """The conversations of the project."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._store = context.own(State).store
        self._database = self._store.database

    async def list_histories(self, *, limit: int = 50, offset: int = 0) -> list[HistorySummary]:
        """Return conversations, the latest changed first."""
        values = (max(1, min(limit, 1000)), max(0, offset))

        def work(connection: sqlite3.Connection) -> list[HistorySummary]:
            return read_summaries(connection, "ORDER BY h.changed DESC, h.id LIMIT ? OFFSET ?", values)

        return await self._database.read(work, [])

    async def load(self, history_id: str, *, last: int | None = None) -> list[HistoryMessage]:
        """Return the messages of the active branch, oldest first."""
        return await self.load_branch(history_id, last=last)

    async def load_branch(
        self, history_id: str, branch: str | None = None, *, leaf: str | None = None, last: int | None = None
    ) -> list[HistoryMessage]:
        """Return the messages of a branch, or those that lead to one, oldest first. Raises `NotFound`."""

        def work(connection: sqlite3.Connection) -> list[HistoryMessage]:
            place = find_branch(connection, history_id, branch)
            if place is None:
                return []
            end = place.head if leaf is None else find_message(connection, history_id, leaf)
            return read_path(connection, end, None if last is None else max(0, last))

        return await self._database.read(work, [])

    async def get_history(self, history_id: str) -> HistoryDetails:
        """Return a conversation's branches. Raises `NotFound`."""
        return await self._of(history_id, read_details)

    async def children(self, history_id: str, message_id: str | None = None) -> list[HistoryMessage]:
        """Return the messages right behind one. Raises `NotFound`."""

        def work(connection: sqlite3.Connection, history: str) -> list[HistoryMessage]:
            at = None if message_id is None else find_message(connection, history, message_id)
            return read_children(connection, history, at)

        return await self._of(history_id, work)

    async def tree(self, history_id: str, *, limit: int = 1000, offset: int = 0) -> list[HistoryNode]:
        """Return the messages of all branches. Raises `NotFound`."""
        most, first = max(1, min(limit, MAX_NODES)), max(0, offset)
        return await self._of(history_id, lambda connection, history: read_tree(connection, history, most, first))

    async def append(
        self,
        history_id: str,
        messages: list[ChatMessage],
        *,
        parent_id: str | None = None,
        run_id: str | None = None,
        call: CallContext | None = None,
    ) -> list[HistoryMessage]:
        """Keep messages. Raises `Conflict`, `InvalidInput`."""
        return await self.add(history_id, messages, head=parent_id, run_id=run_id)

    async def add(
        self,
        history_id: str,
        messages: list[ChatMessage],
        *,
        branch: str | None = None,
        parent_id: str | None = None,
        head: str | None = None,
        run_id: str | None = None,
        call: CallContext | None = None,
    ) -> list[HistoryMessage]:
        """Keep messages behind one. Raises `Conflict`, `NotFound`, `InvalidInput`."""
        history = named(history_id, "the id of a conversation")
        await hold_pictures(self._context, history, messages)
        return await self._add(
            history, lambda c: (find_place(c, history, branch, parent_id, head), messages, ()), run_id, "added"
        )

    async def edit(
        self,
        history_id: str,
        message_id: str,
        content: str,
        *,
        head: str,
        branch: str | None = None,
        keep_rest: bool = False,
        call: CallContext | None = None,
    ) -> list[HistoryMessage]:
        """Keep a changed copy of a message beside it. Raises `Conflict`, `NotFound`, `InvalidInput`."""

        def prepare(connection: sqlite3.Connection) -> Addition:
            place = find_place(connection, history_id, branch, message_id, head)
            (old,) = read_path(connection, place.parent, 1)
            copied = [old]
            if keep_rest:
                path = read_path(connection, place.head)
                at = next((n for n, message in enumerate(path) if message.id == message_id), None)
                if at is None:
                    raise InvalidInput(f"the message {message_id!r} is not in the branch {place.branch!r}")
                copied += path[at + 1 :]
            before = None if old.parent_id is None else find_message(connection, history_id, old.parent_id)
            edited = old.message.model_copy(update={"content": content})
            messages = [edited, *(message.message for message in copied[1:])]
            return replace(place, parent=before), messages, [message.id for message in copied]

        return await self._add(history_id, prepare, None, "edited")

    async def swipe(
        self,
        history_id: str,
        message_id: str,
        messages: list[ChatMessage],
        *,
        head: str,
        branch: str | None = None,
        run_id: str | None = None,
        call: CallContext | None = None,
    ) -> list[HistoryMessage]:
        """Keep another answer beside one. Raises `Conflict`, `NotFound`, `InvalidInput`."""

        def prepare(connection: sqlite3.Connection) -> Addition:
            place = find_place(connection, history_id, branch, message_id, head)
            assert place.parent is not None
            return replace(place, parent=turn_start(connection, place.parent)), messages, ()

        await hold_pictures(self._context, history_id, messages)
        return await self._add(history_id, prepare, run_id, "swiped")

    async def activate(
        self,
        history_id: str,
        branch: str | None = None,
        *,
        message_id: str | None = None,
        head: str | None = None,
        exactly: bool = False,
        call: CallContext | None = None,
    ) -> HistoryDetails:
        """Make a branch the active one, or move it. Raises `Conflict`, `NotFound`."""

        def work(connection: sqlite3.Connection) -> HistoryDetails:
            place = find_place(connection, history_id, branch, message_id, head)
            if place.parent is not None and message_id is not None:
                to = place.parent if exactly else latest_below(connection, history_id, place.parent)
                if to != place.head:
                    check_idle(connection, history_id, place.branch)
                    move_branch(connection, history_id, place.branch, to, clock.microseconds())
            connection.execute("UPDATE histories SET active = ? WHERE id = ?", (place.branch, history_id))
            return read_details(connection, history_id)

        return await self._change(history_id, work, "activated")

    async def fork(
        self, history_id: str, name: str, *, message_id: str | None = None, call: CallContext | None = None
    ) -> HistoryDetails:
        """Make a branch. Raises `Conflict`, `NotFound`, `InvalidInput`."""
        new = named(name, "the name of a branch")

        def work(connection: sqlite3.Connection) -> HistoryDetails:
            at = clock.microseconds()
            row = (history_id, new, find_end(connection, history_id, None, message_id), at, at)
            if connection.execute("INSERT OR IGNORE INTO branches VALUES (?, ?, ?, ?, ?)", row).rowcount == 0:
                raise Conflict(f"the conversation {history_id!r} has a branch {new!r} already")
            return read_details(connection, history_id)

        return await self._change(history_id, work, "forked")

    async def fork_history(
        self, history_id: str, new_id: str, *, message_id: str | None = None, call: CallContext | None = None
    ) -> HistoryDetails:
        """Begin a conversation with copies of messages. Raises `Conflict`, `NotFound`, `InvalidInput`."""
        new = named(new_id, "the id of a conversation")
        copied: list[ChatMessage] = []

        def work(connection: sqlite3.Connection) -> HistoryDetails:
            require(connection, history_id)
            if exists(connection, new):
                raise Conflict(f"there is a conversation {new!r} already")
            messages = read_path(connection, find_end(connection, history_id, None, message_id))
            bodies = [message_body(message.message) for message in messages]
            add_messages(connection, new, Place(), bodies, None, [message.id for message in messages])
            copied.extend(message.message for message in messages)
            return read_details(connection, new)

        details = await self._change(new, work, "added")
        await hold_pictures(self._context, new, copied)
        return details

    async def rename_branch(
        self, history_id: str, branch: str, name: str, *, call: CallContext | None = None
    ) -> HistoryDetails:
        """Give a branch another name. Raises `Conflict`, `NotFound`, `InvalidInput`."""
        new = named(name, "the name of a branch")

        def work(connection: sqlite3.Connection) -> HistoryDetails:
            require(connection, history_id)
            find_branch(connection, history_id, branch)
            rename_branch(connection, history_id, branch, new)
            return read_details(connection, history_id)

        return await self._change(history_id, work, "renamed")

    async def rename_history(
        self, history_id: str, title: str | None, *, call: CallContext | None = None
    ) -> HistoryDetails:
        """Give a conversation a title. Raises `NotFound`, `InvalidInput`."""
        given = None if title is None else named(title, "the title of a conversation")

        def work(connection: sqlite3.Connection) -> HistoryDetails:
            connection.execute("UPDATE histories SET title = ? WHERE id = ?", (given, history_id))
            return read_details(connection, history_id)

        return await self._change(history_id, work, "renamed")

    async def delete_branch(self, history_id: str, branch: str, *, call: CallContext | None = None) -> HistoryDetails:
        """Forget the name of a branch. Raises `Conflict`, `NotFound`."""

        def work(connection: sqlite3.Connection) -> HistoryDetails:
            if read_details(connection, history_id).active == branch:
                raise Conflict(f"the branch {branch!r} is the active one; activate another before you delete it")
            find_branch(connection, history_id, branch)
            check_idle(connection, history_id, branch)
            connection.execute("DELETE FROM branches WHERE history = ? AND name = ?", (history_id, branch))
            return read_details(connection, history_id)

        return await self._change(history_id, work, "forgotten")

    async def delete(self, history_id: str, *, call: CallContext | None = None) -> bool:
        """Forget a conversation. Raises `Conflict` while an agent works on it."""
        found = await self._store.forget(history_id)
        self._say(history_id, "deleted")
        return found

    async def export_history(self, history_id: str) -> HistoryExport:
        """Return a whole conversation. Raises `NotFound`."""
        return await with_pictures(self._context, await self._of(history_id, export_history))

    async def import_history(
        self, exported: HistoryExport, *, history_id: str | None = None, call: CallContext | None = None
    ) -> HistoryDetails:
        """Keep an exported conversation. Raises `Conflict`, `InvalidInput`."""
        new = named(exported.id if history_id is None else history_id, "the id of a conversation")
        await keep_pictures(self._context, new, exported)
        return await self._change(new, lambda connection: import_history(connection, exported, new), "imported")

    # --- how --------------------------------------------------------------------------------------

    async def _of(self, history: str, work: Callable[[sqlite3.Connection, str], T]) -> T:
        def looked(connection: sqlite3.Connection) -> T | None:
            require(connection, history)
            return work(connection, history)

        found = await self._database.read(looked, None)
        if found is None:
            raise NotFound(f"there is no conversation {history!r}", history=history)
        return found

    async def _add(
        self,
        history: str,
        prepare: Callable[[sqlite3.Connection], Addition],
        run_id: str | None,
        what: str,
    ) -> list[HistoryMessage]:
        def work(connection: sqlite3.Connection) -> list[HistoryMessage]:
            place, messages, copied = prepare(connection)
            check_idle(connection, history, place.branch)
            bodies = [message_body(message) for message in messages]
            added = add_messages(connection, history, place, bodies, run_id, copied)
            return read_path(connection, added[-1][0], len(added)) if added else []

        return await self._change(history, work, what)

    async def _change(self, history: str, work: Callable[[sqlite3.Connection], T], what: str) -> T:
        done = await self._database.write(work)
        self._say(history, what)
        return done

    def _say(self, history: str, what: str) -> None:
        changed(self._context, history, what)


def changed(context: PluginContext, history: str, what: str) -> None:
    """Publish that a conversation has changed."""
    context.events.publish(EVENT, {"historyId": history, "change": what})
