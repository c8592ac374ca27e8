"""Keeps conversations and the runs of agents in a SQLite database. Decides nothing about what an agent does.

What a method wrote has survived the end of the process when it returns. Methods raise `TavernError` where the database
cannot be read or written.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tavern_agents.rows import (
    RUN,
    Kept,
    KeptRun,
    RunEntry,
    add_messages,
    insert_run,
    message_body,
    micros,
    moment,
    read_kept_run,
    read_latest,
    read_message,
    read_run,
    unknown_run,
)
from tavern_agents.schema import AGENTS
from tavern_host.context import PluginContext
from tavern_host.contracts.agents import (
    AgentRun,
    AgentRunFilter,
    AgentStatus,
    AgentTrace,
)
from tavern_host.contracts.calls import new_id
from tavern_host.contracts.errors import Conflict
from tavern_host.contracts.histories import HistoryMessage, HistorySummary
from tavern_host.contracts.llm import ChatMessage
from tavern_host.contracts.toolcalls import ToolResult
from tavern_host.storage.process_locks import ProcessLocks
from tavern_host.storage.sqlite import DatabaseThread

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")

_STATE = "agents.store"


@dataclass
class Progress:
    """What one step of a run adds, written in one transaction, and how the run stands then.

    `begun` are the places of calls in the last of the `messages`, `begun_later` calls of earlier ones by message and
    place, as `tasks` and `results` are. The inbox was `heard` up to this number.
    """

    run: AgentRun
    messages: Sequence[ChatMessage] = ()
    begun: Iterable[int] = ()
    begun_later: Iterable[tuple[int, int]] = ()
    tasks: dict[tuple[int, int], str] = field(default_factory=dict)
    results: dict[tuple[int, int], ToolResult] = field(default_factory=dict)
    steps: Sequence[AgentTrace] = ()
    heard: int = 0


def store_of(context: PluginContext) -> AgentStore:
    """Return the store that the services of this plugin share in one host."""
    store = context.state.get(_STATE)
    if not isinstance(store, AgentStore):
        store = context.state[_STATE] = AgentStore(context.operator_dir / "agents", context.log)
    return store


class AgentStore:
    """One project's conversations and runs, as one host sees them. They are the operator's: who sends a project cannot
    send runs to be resumed, with rights, along with it."""

    def __init__(self, folder: Path, log: logging.Logger) -> None:
        self.host = new_id("host")
        self._database = DatabaseThread(folder, AGENTS, log, "store of agents")
        self._hosts = ProcessLocks(folder / "hosts")

    async def close(self) -> None:
        """Finish what was begun and let go."""
        await self._database.close(self._hosts.close)

    # --- conversations ----------------------------------------------------------------------------

    async def histories(self, limit: int, offset: int) -> list[HistorySummary]:
        """Return conversations, the latest changed first."""

        def work(connection: sqlite3.Connection) -> list[HistorySummary]:
            rows = connection.execute(
                "SELECT id, messages, created, changed FROM histories ORDER BY changed DESC, id LIMIT ? OFFSET ?",
                (limit, offset),
            )
            return [
                HistorySummary(id=row[0], messages=row[1], created_at=moment(row[2]), changed_at=moment(row[3]))
                for row in rows
            ]

        return await self._database.read(work, [])

    async def messages(self, history: str, last: int | None = None, run: str | None = None) -> list[HistoryMessage]:
        """Return the messages that lead to the latest one, or those of a run, oldest first."""

        def work(connection: sqlite3.Connection) -> list[HistoryMessage]:
            rows = connection.execute(
                "SELECT m.id, p.id, m.created, m.run, m.body FROM messages m LEFT JOIN messages p ON p.seq = m.parent "
                f"WHERE {'m.history' if run is None else 'm.run'} = ? ORDER BY m.seq DESC LIMIT ?",
                (history if run is None else run, -1 if last is None else last),
            ).fetchall()
            return [
                HistoryMessage(
                    id=id, parent_id=parent, created_at=moment(created), run_id=run, message=read_message(body)
                )
                for id, parent, created, run, body in reversed(rows)
            ]

        return await self._database.read(work, [])

    async def conversation(self, history: str) -> tuple[str, list[Kept]]:
        """Return the summary of what was said first, empty where there is none, and the messages after that."""

        def work(connection: sqlite3.Connection) -> tuple[str, list[Kept]]:
            row = connection.execute("SELECT until, body FROM summaries WHERE history = ?", (history,)).fetchone()
            until, summary = row or (0, "")
            rows = connection.execute(
                "SELECT seq, id, body, run FROM messages WHERE history = ? AND seq > ? ORDER BY seq", (history, until)
            )
            return summary, [Kept(seq, id, read_message(body), run) for seq, id, body, run in rows]

        return await self._database.read(work, ("", []))

    async def append(
        self, history: str, messages: Sequence[ChatMessage], parent: str | None, run: str | None
    ) -> list[HistoryMessage]:
        """Keep messages behind the latest one. Raises `Conflict` where `parent` is another, `InvalidInput`."""
        bodies = [message_body(message) for message in messages]

        def work(connection: sqlite3.Connection) -> list[HistoryMessage]:
            latest = read_latest(connection, history)
            before = None if latest is None else latest[1]
            if parent is not None and parent != before:
                raise Conflict(
                    f"the latest message of the conversation {history!r} is {before}, not {parent}; load it again"
                )
            added = []
            for seq, id in add_messages(connection, history, bodies, run):
                (created, body) = connection.execute(
                    "SELECT created, body FROM messages WHERE seq = ?", (seq,)
                ).fetchone()
                added.append(
                    HistoryMessage(
                        id=id, parent_id=before, created_at=moment(created), run_id=run, message=read_message(body)
                    )
                )
                before = id
            return added

        return await self._database.write(work)

    async def summarise(self, history: str, until: int, text: str) -> None:
        """Keep a summary of the messages up to `until`."""
        await self._execute("INSERT OR REPLACE INTO summaries VALUES (?, ?, ?)", (history, until, text))

    async def delete(self, history: str) -> bool:
        """Forget a conversation with its runs. Raises `Conflict` while an agent works on it."""

        def work(connection: sqlite3.Connection) -> bool:
            busy = connection.execute(
                "SELECT id FROM runs WHERE conversation = ? AND is_open = 1", (history,)
            ).fetchone()
            if busy is not None:
                raise Conflict(
                    f"the run {busy[0]} of an agent works on the conversation {history!r}; interrupt it first"
                )
            runs = "(SELECT id FROM runs WHERE conversation = ?)"
            connection.execute(f"DELETE FROM steps WHERE run IN {runs}", (history,))
            connection.execute(f"DELETE FROM calls WHERE run IN {runs}", (history,))
            connection.execute(f"DELETE FROM inbox WHERE run IN {runs}", (history,))
            for table, column in (("runs", "conversation"), ("messages", "history"), ("summaries", "history")):
                connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (history,))
            return connection.execute("DELETE FROM histories WHERE id = ?", (history,)).rowcount > 0

        return await self._database.write(work)

    # --- runs -------------------------------------------------------------------------------------

    async def begin(
        self, run: AgentRun, entry: RunEntry, messages: Sequence[ChatMessage], steps: Sequence[AgentTrace]
    ) -> list[Kept]:
        """Keep a new run of this host with its first messages and steps. Raises `Conflict` where another works on the
        conversation."""
        bodies = [message_body(message) for message in messages]
        json_entry = entry.model_dump_json()

        def work(connection: sqlite3.Connection) -> list[Kept]:
            self._hosts.hold(self.host)
            busy = connection.execute(
                "SELECT id FROM runs WHERE conversation = ? AND is_open = 1", (run.conversation_id,)
            ).fetchone()
            if busy is not None:
                raise Conflict(
                    f"the run {busy[0]} works on the conversation {run.conversation_id!r} already; say it to that run"
                )
            insert_run(connection, run, json_entry, self.host)
            connection.executemany(
                "INSERT INTO steps VALUES (?, ?, ?)", [(run.id, step.seq, step.model_dump_json()) for step in steps]
            )
            added = add_messages(connection, run.conversation_id, bodies, run.id)
            return [Kept(seq, id, message, run.id) for (seq, id), message in zip(added, messages, strict=True)]

        return await self._database.write(work)

    async def claim(self, run_id: str) -> KeptRun | None:
        """Make a run this host's, to be resumed; None where another living host works on it. Raises `NotFound`."""

        def work(connection: sqlite3.Connection) -> KeptRun | None:
            owner = connection.execute("SELECT owner FROM runs WHERE id = ?", (run_id,)).fetchone()
            kept = read_kept_run(connection, run_id)
            if owner[0] not in (None, self.host) and not kept.run.status.is_final and not self._hosts.is_gone(owner[0]):
                return None
            busy = connection.execute(
                "SELECT id FROM runs WHERE conversation = ? AND is_open = 1 AND id != ?",
                (kept.run.conversation_id, run_id),
            ).fetchone()
            if busy is not None:
                raise Conflict(f"the run {busy[0]} works on the conversation {kept.run.conversation_id!r}")
            self._hosts.hold(self.host)
            connection.execute("UPDATE runs SET owner = ?, is_open = 1 WHERE id = ?", (self.host, run_id))
            return kept

        return await self._database.write(work)

    async def give_up(self, run: AgentRun, reason: str, status: AgentStatus = AgentStatus.ERROR) -> None:
        """Keep that a claimed run ended without having been at work."""
        ended = {"status": status, "reason": reason, "finished_at": datetime.now(UTC)}
        await self.write(Progress(run=run.model_copy(update=ended)))

    async def abandoned(self) -> list[str]:
        """Return the runs that have not ended and whose host has."""

        def work(connection: sqlite3.Connection) -> list[str]:
            rows = connection.execute("SELECT id, owner FROM runs WHERE is_open = 1 ORDER BY seq").fetchall()
            gone = {owner: owner is None or self._hosts.is_gone(owner) for _, owner in rows if owner != self.host}
            return [id for id, owner in rows if owner != self.host and gone[owner]]

        return await self._database.read(work, [])

    async def write(self, progress: Progress) -> list[Kept]:
        """Keep what a step of a run added; return the messages as they are kept."""
        run, messages = progress.run, progress.messages
        bodies = [message_body(message) for message in messages]
        steps = [(run.id, step.seq, step.model_dump_json()) for step in progress.steps]
        results = [(r.model_dump_json(), *place) for place, r in progress.results.items()]

        def work(connection: sqlite3.Connection) -> list[Kept]:
            added = add_messages(connection, run.conversation_id, bodies, run.id) if bodies else []
            if added:
                calls = [(added[-1][0], place, run.id) for place in progress.begun]
                connection.executemany("INSERT INTO calls (message, place, run) VALUES (?, ?, ?)", calls)
            later = [(message, place, run.id) for message, place in progress.begun_later]
            connection.executemany("INSERT OR IGNORE INTO calls (message, place, run) VALUES (?, ?, ?)", later)
            tasks = [(task, *place) for place, task in progress.tasks.items()]
            connection.executemany("UPDATE calls SET task = ? WHERE message = ? AND place = ?", tasks)
            connection.executemany("UPDATE calls SET result = ? WHERE message = ? AND place = ?", results)
            connection.executemany("INSERT OR REPLACE INTO steps VALUES (?, ?, ?)", steps)
            if progress.heard:
                connection.execute("DELETE FROM inbox WHERE run = ? AND seq <= ?", (run.id, progress.heard))
            is_open = not run.status.is_final
            connection.execute(
                "UPDATE runs SET status = ?, is_open = ?, finished = ?, usage = ?, text = ?, reason = ? WHERE id = ?",
                (
                    run.status.value,
                    is_open,
                    None if run.finished_at is None else micros(run.finished_at),
                    run.usage.model_dump_json(),
                    run.text,
                    run.reason,
                    run.id,
                ),
            )
            return [Kept(seq, id, message, run.id) for (seq, id), message in zip(added, messages, strict=True)]

        return await self._database.write(work)

    async def say(self, run_id: str, message: ChatMessage) -> None:
        """Put a message into the inbox of a run. Raises `NotFound`, `Conflict` for one that has ended."""
        body = message_body(message)

        def work(connection: sqlite3.Connection) -> None:
            if read_kept_run(connection, run_id).run.status.is_final:
                raise Conflict(f"the run {run_id} has ended; give the agent a new message in its conversation")
            connection.execute("INSERT INTO inbox (run, body) VALUES (?, ?)", (run_id, body))

        await self._database.write(work)

    async def inbox(self, run_id: str) -> tuple[int, list[ChatMessage]]:
        """Return the messages in the inbox of a run, and the number of the last one."""

        def work(connection: sqlite3.Connection) -> tuple[int, list[ChatMessage]]:
            rows = connection.execute("SELECT seq, body FROM inbox WHERE run = ? ORDER BY seq", (run_id,)).fetchall()
            return (rows[-1][0] if rows else 0), [read_message(body) for _, body in rows]

        return await self._database.read(work, (0, []))

    async def run(self, run_id: str) -> KeptRun:
        """Return a run. Raises `NotFound`."""
        found = await self._database.read(lambda connection: read_kept_run(connection, run_id), None)
        if found is None:
            raise unknown_run(run_id)
        return found

    async def runs(self, filter: AgentRunFilter) -> list[AgentRun]:
        """Return runs, newest first."""
        where, values = ["1"], list[Any]()
        for column, value in (("profile", filter.profile_id), ("conversation", filter.conversation_id)):
            if value is not None:
                where.append(f"{column} = ?")
                values.append(value)
        if filter.statuses:
            where.append(f"status IN ({', '.join('?' * len(filter.statuses))})")
            values += [status.value for status in filter.statuses]
        query = f"SELECT {RUN} FROM runs WHERE {' AND '.join(where)} ORDER BY seq DESC LIMIT ? OFFSET ?"
        values += [filter.limit, filter.offset]
        return await self._database.read(
            lambda connection: [read_run(row)[0] for row in connection.execute(query, values)], []
        )

    async def steps(self, run_id: str, after: int) -> list[AgentTrace]:
        """Return the kept steps of a run, oldest first."""

        def work(connection: sqlite3.Connection) -> list[AgentTrace]:
            rows = connection.execute("SELECT body FROM steps WHERE run = ? AND seq > ? ORDER BY seq", (run_id, after))
            return [AgentTrace.model_validate_json(body) for (body,) in rows]

        return await self._database.read(work, [])

    async def results(self, run_id: str) -> list[ToolResult]:
        """Return the results of a run's calls, in order."""

        def work(connection: sqlite3.Connection) -> list[ToolResult]:
            rows = connection.execute(
                "SELECT result FROM calls WHERE run = ? AND result IS NOT NULL ORDER BY message, place", (run_id,)
            )
            return [ToolResult.model_validate_json(body) for (body,) in rows]

        return await self._database.read(work, [])

    async def _execute(self, statement: str, values: Sequence[Any]) -> None:
        await self._database.write(lambda connection: connection.execute(statement, values))
