"""Keeps conversations and the runs of agents in SQLite, or in a database that hosts share.

Decides nothing about what an agent does.

What a method wrote has survived the end of the process when it returns. Methods raise `TavernError` where the database
cannot be read or written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from tavern_agents.api.agents import AgentRun, AgentRunFilter, AgentStatus, AgentTrace
from tavern_agents.conversation import Conversation
from tavern_agents.history_tree import (
    Place,
    add_messages,
    called_beside,
    check_idle,
    delete_history,
    find_branch,
    find_place,
    id_of,
    read_added,
    read_conversation,
    turn_start,
)
from tavern_agents.pictures import hold_pictures, release_pictures
from tavern_agents.recent import RecentConversations
from tavern_agents.rows import (
    RUN,
    InnerCall,
    Kept,
    KeptRun,
    RunEntry,
    insert_run,
    keep_steps,
    message_body,
    micros,
    read_inner_calls,
    read_kept_run,
    read_message,
    read_run,
    read_steps,
    unknown_run,
)
from tavern_agents.schema import AGENTS
from tavern_host.context import PluginContext
from tavern_host.contracts.calls import new_id
from tavern_host.contracts.errors import Conflict, InvalidInput
from tavern_host.contracts.wire import Model
from tavern_host.storage.databases import Database, HostNames, shared_database
from tavern_host.storage.process_locks import ProcessLocks
from tavern_host.storage.sqlite import DatabaseThread
from tavern_llm.api.llm import ChatMessage
from tavern_tools.api.toolcalls import ToolResult

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")


@dataclass
class Progress:
    """What one step of a run adds, written in one transaction, and how the run stands then.

    `begun` are the places of calls in the last of the `messages`, `begun_later` calls of earlier ones by message and
    place, as `tasks` and `results` are. The inbox was `heard` up to this number. A run does not end with a reply while
    it `has_mail`: that is set, and the run is stored as one that continues. `recorded` are deliberations, and the
    texts in them by their keys. `inner` are calls that are new, which get their numbers, or have changed; those of the
    message `dropped` are forgotten.
    """

    run: AgentRun
    messages: Sequence[ChatMessage] = ()
    begun: Iterable[int] = ()
    begun_later: Iterable[tuple[int, int]] = ()
    tasks: dict[tuple[int, int], str] = field(default_factory=dict)
    results: dict[tuple[int, int], ToolResult] = field(default_factory=dict)
    steps: Sequence[AgentTrace] = ()
    recorded: tuple[Sequence[bytes], Mapping[str, bytes]] = ((), MappingProxyType({}))
    heard: int = 0
    has_mail: bool = False
    inner: Sequence[InnerCall] = ()
    dropped: int | None = None


@dataclass(frozen=True)
class Begun:
    """A run that has begun: the message that it works on, the conversation up to it, and the tools that answers beside
    its own have called."""

    run: AgentRun
    first: str
    conversation: Conversation
    repeated: list[str]


class AgentStore:
    """One project's conversations and runs, as one host sees them. They are the operator's: who sends a project cannot
    send runs to be resumed, with rights, along with it."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        folder = context.operator_dir / "agents"
        shared = shared_database(context.services, "agents", folder / AGENTS.file, AGENTS.migrations)
        self.host = new_id("host")
        self.database: Database = shared or DatabaseThread(folder, AGENTS, context.log, "store of agents")
        self.recent = RecentConversations()
        self._hosts: HostNames = ProcessLocks(folder / "hosts") if shared is None else shared.names

    async def close(self) -> None:
        """Finish the writes in flight, and close the store."""
        await self.database.close(self._hosts.close)

    # --- conversations ----------------------------------------------------------------------------

    async def conversation(self, run_id: str) -> Conversation:
        """Return the conversation of a run, up to where the run stands."""

        def work(connection: sqlite3.Connection) -> Conversation:
            return read_conversation(connection, stand_of(connection, run_id)[1])

        return await self.database.read(work, Conversation())

    async def called_beside(self, run: AgentRun, first: str) -> list[str]:
        """Return the tools that answers beside that of a run have called."""
        return await self.database.read(
            lambda connection: called_beside(connection, run.conversation_id, first, run.id), []
        )

    async def messages(self, run: AgentRun) -> list[ChatMessage]:
        """Return the messages that a run added to its conversation, oldest first."""
        return await self.database.read(lambda connection: read_added(connection, run.id), [])

    async def forget(self, history: str) -> bool:
        """Forget a conversation with its runs; return whether there was one. Raises `Conflict` while an agent works on
        it."""
        found = await self.database.write(lambda connection: delete_history(connection, history))
        self.recent.forget(history)
        await release_pictures(self._context, history)
        return found

    async def summarise(self, until: int, text: str) -> None:
        """Keep a summary of the messages that lead to `until`, itself among them."""
        keep = "INSERT INTO summaries VALUES (?, ?) ON CONFLICT (until) DO UPDATE SET body = excluded.body"
        await self.database.write(lambda connection: connection.execute(keep, (until, text)))

    # --- runs -------------------------------------------------------------------------------------

    async def begin(self, run: AgentRun, entry: RunEntry, steps: Sequence[AgentTrace]) -> Begun:
        """Keep a new run of this host with its first messages and steps. Raises `Conflict` where another works on the
        branch or its head is not the one that the caller knows, `NotFound`, `InvalidInput`."""
        request, history = entry.request, run.conversation_id
        asked = ChatMessage(role="user", content=request.message, images=tuple(request.images))
        if not entry.is_replay:
            await hold_pictures(self._context, history, [*request.history, asked])

        def work(connection: sqlite3.Connection) -> Begun:
            self._hosts.hold(self.host)
            place = find_place(connection, history, request.branch, request.parent_id, request.head)
            check_idle(connection, history, place.branch)
            said = [asked]
            is_again = request.parent_id is not None and not (request.message or request.images)
            if is_again and place.parent is not None:
                said, place = [], replace(place, parent=turn_start(connection, place.parent))
                if place.parent is None:
                    raise InvalidInput(f"the message {request.parent_id!r} answers nothing; give the agent a message")
            elif place.parent is None:
                said = [*request.history, *said]
            else:
                said = [*_unheard(connection, history, place.parent), *said]
            conversation = self.recent.take(connection, place.parent) or read_conversation(connection, place.parent)
            at = add_messages(connection, history, place, [message_body(message) for message in said], run.id)
            conversation.extend(Kept(*place, message, run.id) for place, message in zip(at, said, strict=True))
            last = conversation.kept[-1]
            repeated = called_beside(connection, history, last.id, run.id)
            begun = Begun(run.model_copy(update={"branch": place.branch}), last.id, conversation, repeated)
            kept_entry = entry.model_copy(update={"first": begun.first})
            insert_run(connection, begun.run, last.seq, _json(kept_entry), self.host)
            keep_steps(connection, run.id, steps)
            return begun

        return await self.database.write(work)

    async def claim(self, run_id: str) -> KeptRun | None:
        """Make a run this host's, to be resumed; None where another living host works on it. Raises `NotFound`."""

        def work(connection: sqlite3.Connection) -> KeptRun | None:
            owner = connection.execute("SELECT owner FROM runs WHERE id = ?", (run_id,)).fetchone()
            kept = read_kept_run(connection, run_id)
            if owner[0] not in (None, self.host) and not kept.run.status.is_final and not self._hosts.is_gone(owner[0]):
                return None
            check_idle(connection, kept.run.conversation_id, kept.run.branch, run_id)
            _check_stands(connection, kept.run)
            self._hosts.hold(self.host)
            status = (AgentStatus.RUNNING if kept.run.status.is_final else kept.run.status).value  # for other hosts
            claimed = "UPDATE runs SET owner = ?, is_open = 1, status = ?, finished = NULL WHERE id = ?"
            connection.execute(claimed, (self.host, status, run_id))
            return kept

        return await self.database.write(work)

    async def abandoned(self) -> list[str]:
        """Return the runs that have not ended and whose host has, and those of this host."""

        def work(connection: sqlite3.Connection) -> list[str]:
            rows = connection.execute("SELECT id, owner FROM runs WHERE is_open = 1 ORDER BY seq").fetchall()
            gone = {owner: owner in (None, self.host) or self._hosts.is_gone(owner) for _, owner in rows}
            return [id for id, owner in rows if gone[owner]]

        return await self.database.read(work, [])

    async def write(self, progress: Progress) -> list[Kept]:
        """Keep what a step of a run added; return the messages as they are kept."""
        run, messages = progress.run, progress.messages
        bodies = [message_body(message) for message in messages]
        results = [(_json(r), *place) for place, r in progress.results.items()]
        new = [one for one in progress.inner if not one.number]
        changed = [
            (one.task, None if one.result is None else _json(one.result), one.number)
            for one in progress.inner
            if one.number
        ]

        def work(connection: sqlite3.Connection) -> list[Kept]:
            added: list[tuple[int, str]] = []
            if bodies:
                branch, head = stand_of(connection, run.id)
                added = add_messages(connection, run.conversation_id, Place(branch, head, head), bodies, run.id)
                calls = [(added[-1][0], place, run.id) for place in progress.begun]
                connection.executemany("INSERT INTO calls (message, place, run) VALUES (?, ?, ?)", calls)
            later = [(message, place, run.id) for message, place in progress.begun_later]
            connection.executemany("INSERT OR IGNORE INTO calls (message, place, run) VALUES (?, ?, ?)", later)
            tasks = [(task, *place) for place, task in progress.tasks.items()]
            connection.executemany("UPDATE calls SET task = ? WHERE message = ? AND place = ?", tasks)
            connection.executemany("UPDATE calls SET result = ? WHERE message = ? AND place = ?", results)
            for one in new:
                insert = "INSERT INTO inner_calls (run, message, request) VALUES (?, ?, ?) RETURNING seq"
                (one.number,) = connection.execute(insert, (run.id, one.message, _json(one.request))).fetchone()
            connection.executemany("UPDATE inner_calls SET task = ?, result = ? WHERE seq = ?", changed)
            if progress.dropped is not None:
                gone = (run.id, progress.dropped)
                connection.execute("DELETE FROM inner_calls WHERE run = ? AND message = ?", gone)
            keep_steps(connection, run.id, progress.steps)
            rows, texts = progress.recorded
            connection.executemany("INSERT INTO recordings (run, body) VALUES (?, ?)", [(run.id, row) for row in rows])
            connection.executemany(
                "INSERT OR IGNORE INTO texts VALUES (?, ?, ?)", [(run.conversation_id, *text) for text in texts.items()]
            )
            if progress.heard:
                connection.execute("DELETE FROM inbox WHERE run = ? AND seq <= ?", (run.id, progress.heard))
            stands = run
            if run.status is AgentStatus.REPLY and _has_mail(connection, run.id):
                progress.has_mail = True
                stands = run.model_copy(update={"status": AgentStatus.RUNNING, "finished_at": None})
            ends = ", is_open = 0" if stands.status.is_final else ""  # else the index of open runs is written, too
            connection.execute(
                f"UPDATE runs SET status = ?, finished = ?, usage = ?, text = ?, reason = ?, "
                f"head = coalesce(?, head){ends} WHERE id = ?",
                (
                    stands.status.value,
                    None if stands.finished_at is None else micros(stands.finished_at),
                    run.usage.model_dump_json(),
                    run.text,
                    run.reason,
                    added[-1][0] if added else None,
                    run.id,
                ),
            )
            return [Kept(seq, id, message, run.id) for (seq, id), message in zip(added, messages, strict=True)]

        return await self.database.write(work)

    async def say(self, run_id: str, message: ChatMessage) -> None:
        """Put a message into the inbox of a run. Raises `NotFound`, `Conflict` for one that has ended."""
        body = message_body(message)

        def work(connection: sqlite3.Connection) -> None:
            if read_kept_run(connection, run_id).run.status.is_final:
                raise Conflict(f"the run {run_id} has ended; give the agent a new message in its conversation")
            connection.execute("INSERT INTO inbox (run, body) VALUES (?, ?)", (run_id, body))

        await self.database.write(work)

    async def inbox(self, run_id: str) -> tuple[int, list[ChatMessage]]:
        """Return the messages in the inbox of a run, and the number of the last one."""

        def work(connection: sqlite3.Connection) -> tuple[int, list[ChatMessage]]:
            rows = connection.execute("SELECT seq, body FROM inbox WHERE run = ? ORDER BY seq", (run_id,)).fetchall()
            return (rows[-1][0] if rows else 0), [read_message(body) for _, body in rows]

        return await self.database.read(work, (0, []))

    async def run(self, run_id: str) -> KeptRun:
        """Return a run. Raises `NotFound`."""
        found = await self.database.read(lambda connection: read_kept_run(connection, run_id), None)
        if found is None:
            raise unknown_run(run_id)
        return found

    async def runs(self, filter: AgentRunFilter) -> list[AgentRun]:
        """Return runs, newest first."""
        where, values = ["TRUE"], list[Any]()
        for column, value in (("profile", filter.profile_id), ("conversation", filter.conversation_id)):
            if value is not None:
                where.append(f"{column} = ?")
                values.append(value)
        if filter.statuses:
            where.append(f"status IN ({', '.join('?' * len(filter.statuses))})")
            values += [status.value for status in filter.statuses]
        query = f"SELECT {RUN} FROM runs WHERE {' AND '.join(where)} ORDER BY seq DESC LIMIT ? OFFSET ?"
        values += [filter.limit, filter.offset]
        return await self.database.read(
            lambda connection: [read_run(row)[0] for row in connection.execute(query, values)], []
        )

    async def steps(self, run_id: str, after: int) -> list[AgentTrace]:
        """Return the kept steps of a run, oldest first."""

        return await self.database.read(lambda connection: read_steps(connection, run_id, after), [])

    async def path_above(self, run: AgentRun) -> list[str]:
        """Return the agents that called each other up to a run, the first one first."""
        query = (
            "WITH RECURSIVE above (id, profile, parent, depth) AS ("
            "SELECT id, profile, parent, 0 FROM runs WHERE id = ? UNION ALL "
            "SELECT r.id, r.profile, r.parent, depth + 1 FROM runs r JOIN above ON r.id = above.parent) "
            "SELECT profile FROM above ORDER BY depth DESC"
        )
        return await self.database.read(
            lambda connection: [profile for (profile,) in connection.execute(query, (run.parent_run_id,))], []
        )

    async def open_below(self, parent: str) -> list[str]:
        """Return the runs of sub-agents of a run that have not ended."""
        query = "SELECT id FROM runs WHERE parent = ? AND is_open = 1"
        return await self.database.read(lambda c: [id for (id,) in c.execute(query, (parent,))], [])

    async def sub_run(self, parent: str, profile: str, said: str, message: int) -> str | None:
        """Return the run of another agent that a call in a message of the run `parent` began, None where none did."""
        query = "SELECT id, entry FROM runs WHERE parent = ? AND profile = ? ORDER BY seq DESC"
        later = "SELECT 1 FROM messages WHERE id = ? AND seq > ?"

        def work(connection: sqlite3.Connection) -> str | None:
            for run_id, body in connection.execute(query, (parent, profile)).fetchall():
                entry = RunEntry.model_validate_json(body)
                is_later = connection.execute(later, (entry.first, message)).fetchone() is not None
                if is_later and entry.request.message == said:
                    return str(run_id)
            return None

        return await self.database.read(work, None)

    async def result(self, history: str, message: int, place: int) -> ToolResult | None:
        """Return the result of a call of a conversation, None where it has no such."""
        query = (
            "SELECT c.result FROM calls c JOIN messages m ON m.seq = c.message "
            "WHERE c.message = ? AND c.place = ? AND m.history = ?"
        )

        def work(connection: sqlite3.Connection) -> ToolResult | None:
            row = connection.execute(query, (message, place, history)).fetchone()
            return None if row is None or row[0] is None else ToolResult.model_validate_json(row[0])

        return await self.database.read(work, None)

    async def inner_calls(self, run_id: str, since: int) -> list[InnerCall]:
        """Return the inner calls of a run that were made since it stood at a message."""
        return await self.database.read(lambda connection: read_inner_calls(connection, run_id, since), [])

    async def results(self, run_id: str) -> list[ToolResult]:
        """Return the results of a run's calls, in order."""

        def work(connection: sqlite3.Connection) -> list[ToolResult]:
            rows = connection.execute(
                "SELECT result FROM (SELECT run, message, 0 AS is_own, seq AS place, result FROM inner_calls UNION ALL "
                "SELECT run, message, 1, place, result FROM calls) AS made WHERE run = ? AND result IS NOT NULL "
                "ORDER BY message, is_own, place",
                (run_id,),
            )
            return [ToolResult.model_validate_json(body) for (body,) in rows]

        return await self.database.read(work, [])


def _json(model: Model) -> bytes:
    return model.model_dump_json().encode()


def _has_mail(connection: sqlite3.Connection, run_id: str) -> bool:
    return connection.execute("SELECT 1 FROM inbox WHERE run = ? LIMIT 1", (run_id,)).fetchone() is not None


def _unheard(connection: sqlite3.Connection, history: str, head: int) -> list[ChatMessage]:
    """Take out what was said to runs that ended at a message before they heard it."""
    ended = "run IN (SELECT id FROM runs WHERE conversation = ? AND head = ? AND is_open = 0)"
    rows = connection.execute(f"SELECT body FROM inbox WHERE {ended} ORDER BY seq", (history, head)).fetchall()
    connection.execute(f"DELETE FROM inbox WHERE {ended}", (history, head))
    return [read_message(body) for (body,) in rows]


def stand_of(connection: sqlite3.Connection, run_id: str) -> tuple[str, int]:
    """Return the branch that a run works on, and the message at which it stands."""
    branch, head = connection.execute("SELECT branch, head FROM runs WHERE id = ?", (run_id,)).fetchone()
    return branch, head


def _check_stands(connection: sqlite3.Connection, run: AgentRun) -> None:
    """Raise `Conflict` where the branch of a run has moved to other messages since."""
    branch, head = stand_of(connection, run.id)
    place = find_branch(connection, run.conversation_id, branch)
    if place is None or place.head != head:
        raise Conflict(
            f"the branch {branch!r} of the conversation {run.conversation_id!r} has moved on since the run {run.id}; "
            f"switch it back to the message {id_of(connection, head)} first"
        )
