"""Keeps users, their sessions and tokens in a SQLite database among the operator's files.

Of passwords and tokens there are hashes alone. What is written has survived the end of the machine when a method
returns.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from tavern_host.contracts.accounts import NewSession, Session, User
from tavern_host.contracts.calls import new_id
from tavern_host.contracts.errors import Conflict, NotFound
from tavern_host.contracts.names import did_you_mean
from tavern_host.storage.sqlite import DatabaseThread, Schema

_PREFIX = "tavern_"
"""What each token begins with, so that scanners for leaked secrets find it."""

_FIRST = (
    "CREATE TABLE users (name TEXT PRIMARY KEY, role TEXT NOT NULL, password TEXT NOT NULL, created TEXT NOT NULL)",
    # `token` is the SHA-256 of a token of 256 random bits, which needs no slower hash.
    "CREATE TABLE sessions (token BLOB PRIMARY KEY, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, label TEXT NOT NULL, "
    "user TEXT NOT NULL REFERENCES users (name) ON DELETE CASCADE, created TEXT NOT NULL, expires TEXT NOT NULL)",
    "CREATE INDEX sessions_by_user ON sessions (user)",
)
_SCHEMA = Schema("accounts.sqlite3", (_FIRST,), synchronous="FULL", secure_delete=True)
_SESSION = "id, user, kind, label, created, expires"


class AccountStore:
    """The users of one operator, as one host sees them."""

    def __init__(self, folder: Path, log: logging.Logger) -> None:
        self._database = DatabaseThread(folder, _SCHEMA, log, "store of accounts")

    async def close(self) -> None:
        """Finish what was begun and let go."""
        await self._database.close()

    async def users(self) -> list[User]:
        """Return all users by name."""

        def work(connection: sqlite3.Connection) -> list[User]:
            rows = connection.execute("SELECT name, role, created FROM users ORDER BY name")
            return [User(name=name, role=role, created_at=datetime.fromisoformat(made)) for name, role, made in rows]

        return await self._database.read(work, [])

    async def add(self, user: User, password: str) -> None:
        """Keep a new user with the hash of a password. Raises `Conflict`."""
        values = (user.name, user.role, password, user.created_at.isoformat())

        def work(connection: sqlite3.Connection) -> None:
            try:
                connection.execute("INSERT INTO users VALUES (?, ?, ?, ?)", values)
            except sqlite3.IntegrityError:
                raise Conflict(f"there is a user {user.name!r} already") from None

        await self._database.write(work)

    async def remove(self, name: str) -> None:
        """Remove a user with all sessions. Raises `NotFound`."""

        def work(connection: sqlite3.Connection) -> None:
            _user(connection, name)
            connection.execute("DELETE FROM users WHERE name = ?", (name,))

        await self._database.write(work)

    async def set_role(self, name: str, role: str) -> User:
        """Give a user another role. Raises `NotFound`."""

        def work(connection: sqlite3.Connection) -> User:
            user = _user(connection, name)
            connection.execute("UPDATE users SET role = ? WHERE name = ?", (role, name))
            return user.model_copy(update={"role": role})

        return await self._database.write(work)

    async def password(self, name: str) -> tuple[str, str] | None:
        """Return the role of a user and the hash of the password; None for no user."""
        query = "SELECT role, password FROM users WHERE name = ?"
        found: tuple[str, str] | None = await self._database.read(lambda c: c.execute(query, (name,)).fetchone(), None)
        return found

    async def set_password(self, name: str, password: str, instead_of: str | None = None) -> bool:
        """Keep the hash of another password, and end all sessions and tokens; False where the hash there is by now not
        `instead_of`. Raises `NotFound`."""

        def work(connection: sqlite3.Connection) -> bool:
            _user(connection, name)
            query = "UPDATE users SET password = ?1 WHERE name = ?2 AND password = coalesce(?3, password)"
            if not connection.execute(query, (password, name, instead_of)).rowcount:
                return False
            connection.execute("DELETE FROM sessions WHERE user = ?", (name,))
            return True

        return await self._database.write(work)

    async def begin(
        self,
        user: str,
        kind: Literal["session", "token"],
        label: str,
        days: float,
        *,
        password: str | None = None,
    ) -> NewSession:
        """Begin a session, and forget those that have expired. Raises `NotFound`, also where the user's hash is no
        longer `password`."""
        token, now = _PREFIX + secrets.token_urlsafe(32), datetime.now(UTC)
        session = Session(
            id=new_id(kind), user=user, kind=kind, name=label, created_at=now, expires_at=now + timedelta(days=days)
        )
        values = (_hash(token), session.id, kind, label, user, now.isoformat(), session.expires_at.isoformat())

        def work(connection: sqlite3.Connection) -> None:
            _user(connection, user)
            if password is not None:
                (hashed,) = connection.execute("SELECT password FROM users WHERE name = ?", (user,)).fetchone()
                if hashed != password:
                    raise NotFound(f"the password of {user!r} has changed")
            connection.execute("DELETE FROM sessions WHERE expires <= ?", (now.isoformat(),))
            connection.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?)", values)

        await self._database.write(work)
        return NewSession(token=token, session=session)

    async def sessions(self, user: str) -> list[Session]:
        """Return a user's sessions that have not expired, the latest first."""
        query = f"SELECT {_SESSION} FROM sessions WHERE user = ? AND expires > ? ORDER BY created DESC"
        now = datetime.now(UTC).isoformat()
        return await self._database.read(lambda c: [_session(row) for row in c.execute(query, (user, now))], [])

    async def of_token(self, token: str) -> tuple[str, str, str] | None:
        """Return the user, the role and the session that a token is of; None for one that is none now."""
        if not token.startswith(_PREFIX):
            return None
        query = "SELECT name, role, id FROM sessions JOIN users ON user = name WHERE token = ? AND expires > ?"
        values = (_hash(token), datetime.now(UTC).isoformat())
        found: tuple[str, str, str] | None = await self._database.read(
            lambda c: c.execute(query, values).fetchone(), None
        )
        return found

    async def end(self, user: str, session: str | None) -> int:
        """End one session or token of a user, or all sessions; return how many. Raises `NotFound`."""

        def work(connection: sqlite3.Connection) -> int:
            _user(connection, user)
            if session is None:
                return connection.execute("DELETE FROM sessions WHERE user = ? AND kind = 'session'", (user,)).rowcount
            ended = connection.execute("DELETE FROM sessions WHERE user = ? AND id = ?", (user, session)).rowcount
            if not ended:
                raise NotFound(f"{user!r} has no session or token {session!r}")
            return ended

        return await self._database.write(work)


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()


def _user(connection: sqlite3.Connection, name: str) -> User:
    """Return a user. Raises `NotFound`."""
    row = connection.execute("SELECT role, created FROM users WHERE name = ?", (name,)).fetchone()
    if row is None:
        names = [known for (known,) in connection.execute("SELECT name FROM users")]
        raise NotFound(f"there is no user {name!r}{did_you_mean(name, names)}")
    return User(name=name, role=row[0], created_at=datetime.fromisoformat(row[1]))


def _session(row: tuple[str, ...]) -> Session:
    id, user, kind, label, created, expires = row
    return Session.model_validate(
        {"id": id, "user": user, "kind": kind, "name": label, "created_at": created, "expires_at": expires}
    )
