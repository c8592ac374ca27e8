"""The tables of conversations and of the runs of agents, version by version.

What was committed survives the end of the process. Nothing is stored twice: a run refers to its conversation, and what
it was about to do follows from the last messages there and from its calls.
"""

from __future__ import annotations

from tavern_host.storage.sqlite import Schema

_FIRST = (
    # Times are in microseconds since 1970; `body`, `entry`, `usage` and `result` are JSON.
    "CREATE TABLE histories (id TEXT PRIMARY KEY, created INTEGER NOT NULL, changed INTEGER NOT NULL, "
    "messages INTEGER NOT NULL, latest INTEGER)",
    "CREATE INDEX histories_by_change ON histories (changed)",
    "CREATE TABLE messages (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, history TEXT NOT NULL, parent INTEGER, "
    "created INTEGER NOT NULL, run TEXT, body BLOB NOT NULL)",
    "CREATE INDEX messages_of ON messages (history, seq)",
    "CREATE INDEX messages_of_run ON messages (run, seq)",
    # The messages of a conversation up to `until` are summarised by `body`.
    "CREATE TABLE summaries (history TEXT PRIMARY KEY, until INTEGER NOT NULL, body TEXT NOT NULL)",
    "CREATE TABLE runs (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, profile TEXT NOT NULL, "
    "conversation TEXT NOT NULL, parent TEXT, status TEXT NOT NULL, is_open INTEGER NOT NULL, owner TEXT, "
    "started INTEGER NOT NULL, finished INTEGER, usage TEXT NOT NULL, text TEXT NOT NULL, reason TEXT, "
    "entry BLOB NOT NULL)",
    "CREATE INDEX runs_of ON runs (conversation, seq)",
    "CREATE INDEX runs_open ON runs (owner) WHERE is_open = 1",
    "CREATE TABLE steps (run TEXT NOT NULL, seq INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (run, seq)) "
    "WITHOUT ROWID",
    # A call of the message `message`. Without a result it was begun, or waits as the task `task`.
    "CREATE TABLE calls (message INTEGER NOT NULL, place INTEGER NOT NULL, run TEXT NOT NULL, task TEXT, result BLOB, "
    "PRIMARY KEY (message, place)) WITHOUT ROWID",
    "CREATE INDEX calls_of ON calls (run)",
    # What was said to a run and is not yet in its conversation.
    "CREATE TABLE inbox (seq INTEGER PRIMARY KEY, run TEXT NOT NULL, body BLOB NOT NULL)",
)

_BRANCHES = (
    # A message's number is above that of its parent; `depth` counts the messages that lead to it, itself among them.
    "CREATE TABLE tree (seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, history TEXT NOT NULL, parent INTEGER, "
    "depth INTEGER NOT NULL, created INTEGER NOT NULL, run TEXT, body BLOB NOT NULL)",
    "INSERT INTO tree SELECT seq, id, history, parent, row_number() OVER (PARTITION BY history ORDER BY seq), created, "
    "run, body FROM messages",
    # The branches of conversations; `head` is a message.
    "CREATE TABLE branches (history TEXT NOT NULL, name TEXT NOT NULL, head INTEGER NOT NULL, "
    "created INTEGER NOT NULL, changed INTEGER NOT NULL, PRIMARY KEY (history, name)) WITHOUT ROWID",
    "INSERT INTO branches SELECT id, 'main', latest, created, changed FROM histories WHERE latest IS NOT NULL",
    "CREATE TABLE conversations (id TEXT PRIMARY KEY, created INTEGER NOT NULL, changed INTEGER NOT NULL, "
    "messages INTEGER NOT NULL, active TEXT NOT NULL)",
    "INSERT INTO conversations SELECT id, created, changed, messages, 'main' FROM histories WHERE latest IS NOT NULL",
    # The messages that lead to `until`, itself among them, are summarised by `body`.
    "CREATE TABLE shortened (until INTEGER PRIMARY KEY, body TEXT NOT NULL)",
    "INSERT INTO shortened SELECT until, body FROM summaries",
    # The branch that a run works on, and the message at which it stands.
    "ALTER TABLE runs ADD COLUMN branch TEXT NOT NULL DEFAULT 'main'",
    "ALTER TABLE runs ADD COLUMN head INTEGER",
    "UPDATE runs SET head = (SELECT max(seq) FROM messages WHERE run = runs.id)",
    "UPDATE runs SET entry = json_remove(entry, '$.number')",
    "DROP TABLE messages",
    "DROP TABLE histories",
    "DROP TABLE summaries",
    "ALTER TABLE tree RENAME TO messages",
    "ALTER TABLE conversations RENAME TO histories",
    "ALTER TABLE shortened RENAME TO summaries",
    "CREATE INDEX messages_of ON messages (history, parent)",
    "CREATE INDEX messages_of_run ON messages (run, seq)",
    "CREATE INDEX histories_by_change ON histories (changed)",
    "DROP INDEX runs_open",
    "CREATE INDEX runs_open ON runs (conversation) WHERE is_open = 1",
)

_MEMORIES = (
    # What the agents of a conversation remember at a message, and at those behind it until it changes; JSON by agent.
    "CREATE TABLE states (seq INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL)",
    "ALTER TABLE messages ADD COLUMN state INTEGER",
    "CREATE INDEX messages_with_state ON messages (state) WHERE state IS NOT NULL",
)

_RECORDINGS = (
    # The situation and the answer of each deliberation of a run; `texts` are parts that are often the same.
    "CREATE TABLE recordings (seq INTEGER PRIMARY KEY, run TEXT NOT NULL, body BLOB NOT NULL)",
    "CREATE INDEX recordings_of ON recordings (run)",
    "CREATE TABLE texts (history TEXT NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (history, key)) "
    "WITHOUT ROWID",
)

_INNER_CALLS = (
    # Calls that a deliberation made itself, or a call while it ran, when the run stood at `message`.
    "CREATE TABLE inner_calls (seq INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL, message INTEGER NOT NULL, "
    "request BLOB NOT NULL, task TEXT, result BLOB)",
    "CREATE INDEX inner_calls_of ON inner_calls (run, message)",
)

_FEWER_PAGES = (
    # The messages of a run are found from the one at which it stands.
    "DROP INDEX messages_of_run",
)
"""From here on a row of `steps` is a list of those that were kept at once, under the number of the first."""

_TITLES = ("ALTER TABLE histories ADD COLUMN title TEXT",)

AGENTS = Schema("agents.sqlite3", (_FIRST, _BRANCHES, _MEMORIES, _RECORDINGS, _INNER_CALLS, _FEWER_PAGES, _TITLES))
