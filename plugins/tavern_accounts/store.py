"""Keeps users, their sessions and tokens in a SQLite database among the operator's files.

Of passwords and tokens there are hashes alone. What is written has survived the end of the machine when a method
returns.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import sqlite3
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from tavern_host import clock
from tavern_host.contracts.accounts import Member, Members, NewSession, Session, User
from tavern_host.contracts.calls import Admission, new_id
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
_SECOND = (
    "CREATE TABLE closed (project TEXT PRIMARY KEY)",
    # Members stay while a project is open, so that closing it again shuts none of them out.
    "CREATE TABLE members (project TEXT NOT NULL, user TEXT NOT NULL REFERENCES users (name) ON DELETE CASCADE, "
    "role TEXT NOT NULL, PRIMARY KEY (project, user))",
    # Who a user is at a provider of OpenID Connect.
    "CREATE TABLE identities (issuer TEXT NOT NULL, subject TEXT NOT NULL, user TEXT NOT NULL REFERENCES users (name) "
    "ON DELETE CASCADE, PRIMARY KEY (issuer, subject))",
)
_SCHEMA = Schema("accounts.sqlite3", (_FIRST, _SECOND), synchronous="FULL", secure_delete=True)
Found = tuple[str, str, str, dict[str, str | None]]
"""A user's name and role, the id of the session, and the role in each project that is closed (see `_closed`)."""
_SESSION = "id, user, kind, label, created, expires"


class AccountStore:
    """The users of one operator, as one host sees them."""

    def __init__(self, folder: Path, log: logging.Logger) -> None:
        self._database = DatabaseThread(folder, _SCHEMA, log, "store of accounts")

    async def close(self) -> None:
        """Finish the writes in flight, and close the store."""
        await self._database.close()

    async def users(self) -> list[User]:
        """Return all users by name."""

        def work(connection: sqlite3.Connection) -> list[User]:
            rows = connection.execute("SELECT name, role, created FROM users ORDER BY name")
            return [User(name=name, role=role, created_at=datetime.fromisoformat(made)) for name, role, made in rows]

        return await self._database.read(work, [])

    async def add(self, user: User, password: str) -> None:
        """Keep a new user with the hash of a password. Raises `Conflict`."""
        await self._database.write(lambda connection: _add(connection, user, password))

    async def of_identity(self, issuer: str, subject: str, new: User) -> tuple[User, bool]:
        """Return the user that somebody is at a provider, and whether it is this `new` one, who has no password. Raises
        `Conflict` where the name is another user's."""

        def work(connection: sqlite3.Connection) -> tuple[User, bool]:
            query = "SELECT user FROM identities WHERE issuer = ? AND subject = ?"
            row = connection.execute(query, (issuer, subject)).fetchone()
            if row is not None:
                return _user(connection, row[0]), False
            _add(connection, new, "")
            connection.execute("INSERT INTO identities VALUES (?, ?, ?)", (issuer, subject, new.name))
            return new, True

        return await self._database.write(work)

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
        token, now = _PREFIX + secrets.token_urlsafe(32), clock.now()
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
        now = clock.now().isoformat()
        return await self._database.read(lambda c: [_session(row) for row in c.execute(query, (user, now))], [])

    async def of_token(self, token: str) -> Found | None:
        """Return whose token it is; None for one that is none now."""
        if not token.startswith(_PREFIX):
            return None
        query = "SELECT name, role, id FROM sessions JOIN users ON user = name WHERE token = ? AND expires > ?"
        values = (_hash(token), clock.now().isoformat())

        def work(connection: sqlite3.Connection) -> Found | None:
            row = connection.execute(query, values).fetchone()
            return None if row is None else (*row, _closed(connection, row[0]))

        return await self._database.read(work, None)

    async def of_user(self, name: str) -> Found:
        """Return who a user is, without a session. Raises `NotFound`."""

        def work(connection: sqlite3.Connection) -> Found:
            return name, _user(connection, name).role, "", _closed(connection, name)

        return await self._database.read(work, (name, "", "", {}))

    async def of_admission(self, admission: Admission) -> Found | None:
        """Return who a user is that sent a request; None where that user is gone, or the token that was sent with it. A
        session may end."""

        def work(connection: sqlite3.Connection) -> Found | None:
            query = "SELECT created, role FROM users WHERE name = ?"
            row = connection.execute(query, (admission.user,)).fetchone()
            if row is None or datetime.fromisoformat(row[0]) > admission.at:  # another of this name
                return None
            if admission.session.startswith("token_"):
                query = "SELECT 1 FROM sessions WHERE id = ? AND user = ? AND expires > ?"
                values = (admission.session, admission.user, clock.now().isoformat())
                if connection.execute(query, values).fetchone() is None:
                    return None
            return admission.user, row[1], admission.session, _closed(connection, admission.user)

        return await self._database.read(work, None)

    async def changes(self) -> int:
        """Return a number that is another when other programs or hosts have changed something."""
        return await self._database.read(lambda c: int(c.execute("PRAGMA data_version").fetchone()[0]), 0)

    async def members(self, project: str) -> Members:
        """Return who may enter a project."""

        def work(connection: sqlite3.Connection) -> Members:
            is_closed = connection.execute("SELECT 1 FROM closed WHERE project = ?", (project,)).fetchone()
            rows = connection.execute("SELECT user, role FROM members WHERE project = ? ORDER BY user", (project,))
            members = [Member(user=user, role=role) for user, role in rows]
            return Members(open=not is_closed, members=members)

        return await self._database.read(work, Members())

    async def set_member(self, project: str, member: Member) -> None:
        """Let a user enter a project, which is closed from now on. Raises `NotFound`."""

        def work(connection: sqlite3.Connection) -> None:
            _user(connection, member.user)
            connection.execute("INSERT OR IGNORE INTO closed VALUES (?)", (project,))
            connection.execute("INSERT OR REPLACE INTO members VALUES (?, ?, ?)", (project, member.user, member.role))

        await self._database.write(work)

    async def remove_member(self, project: str, user: str) -> None:
        """Let a user no longer enter a project. Raises `NotFound`."""

        def work(connection: sqlite3.Connection) -> None:
            query = "DELETE FROM members WHERE project = ? AND user = ?"
            if not connection.execute(query, (project, user)).rowcount:
                raise NotFound(f"{user!r} is no member of this project")

        await self._database.write(work)

    async def set_open(self, project: str, is_open: bool) -> None:
        """Open a project to all users, or close it to all but its members."""
        query = "DELETE FROM closed WHERE project = ?" if is_open else "INSERT OR IGNORE INTO closed VALUES (?)"
        await self._database.write(lambda connection: connection.execute(query, (project,)))

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


def _closed(connection: sqlite3.Connection, user: str) -> dict[str, str | None]:
    """Return the user's role in each project that is closed, None where the user is no member."""
    query = "SELECT project, (SELECT role FROM members m WHERE m.project = c.project AND user = ?) FROM closed c"
    return dict(connection.execute(query, (user,)))


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()


def _user(connection: sqlite3.Connection, name: str) -> User:
    """Return a user. Raises `NotFound`."""
    row = connection.execute("SELECT role, created FROM users WHERE name = ?", (name,)).fetchone()
    if row is None:
        names = [known for (known,) in connection.execute("SELECT name FROM users")]
        raise NotFound(f"there is no user {name!r}{did_you_mean(name, names)}")
    return User(name=name, role=row[0], created_at=datetime.fromisoformat(row[1]))


def _add(connection: sqlite3.Connection, user: User, password: str) -> None:
    """Keep a new user. Raises `Conflict`."""
    values = (user.name, user.role, password, user.created_at.isoformat())
    try:
        connection.execute("INSERT INTO users VALUES (?, ?, ?, ?)", values)
    except sqlite3.IntegrityError:
        raise Conflict(f"there is a user {user.name!r} already") from None


def _session(row: tuple[str, ...]) -> Session:
    id, user, kind, label, created, expires = row
    return Session.model_validate(
        {"id": id, "user": user, "kind": kind, "name": label, "created_at": created, "expires_at": expires}
    )
