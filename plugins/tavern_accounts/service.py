"""The service `accounts`: what users, passwords and roles have to be, and who is told of what they do."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from tavern_accounts.limits import LoginLimits
from tavern_accounts.store import AccountStore
from tavern_host import PluginContext
from tavern_host.contracts.accounts import Accounts, Identity, Login, NewSession, Session, User
from tavern_host.contracts.calls import CallContext, Principal
from tavern_host.contracts.errors import InvalidInput, NotFound, Unauthorized
from tavern_host.contracts.names import did_you_mean

T = TypeVar("T")

ROLES = {"admin": ["read", "create", "operate"], "creator": ["read", "create"], "viewer": ["read"]}
"""The roles that are there without the operator's doing."""
_OWN = [
    "read:/api/me",
    "read:/api/me/*",
    "read:/api/logout",
    "read:/api/logout/*",
    "read:/api/tokens",
    "read:/api/tokens/*",
]
"""What everybody may who is logged in."""
_RESERVED = frozenset({"operator", "nobody"})
_NAME = re.compile(r"[a-z0-9][a-z0-9._@-]{0,63}")
_PERMISSION = re.compile(r"(read|create|operate)(:/\S+)?")
_LENGTHS = range(8, 1025)
"""How many characters a password may have."""
_WRONG = "the name or the password is wrong"
_HASHES_AT_ONCE = 2
"""How many passwords are hashed at the same time; each takes 19 MiB meanwhile."""
_PASSES, _MEMORY = 2, 19 * 1024
"""What OWASP recommends for argon2id (memory in KiB); about 30 ms. A hash says with what it was made."""


class HostAccounts(Accounts):
    """Provides the service for one host; the users are those of the operator."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        # Beside what the operator decided about projects, since it is one set of users for all of them.
        self._store = AccountStore(context.operator_dir.parents[3] / "accounts", context.log)
        self._limits = LoginLimits()
        self._hashing = asyncio.Semaphore(_HASHES_AT_ONCE)
        self._hash_of_nobody: str | None = None

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()

    async def list_users(self) -> list[User]:
        """Return all users by name."""
        return await self._store.users()

    async def roles(self) -> dict[str, list[str]]:
        """Return the permissions of every role."""
        return {**self._own_roles(), **ROLES}

    async def sessions(self, user: str) -> list[Session]:
        """Return a user's sessions and tokens, the latest first."""
        return await self._store.sessions(user)

    async def identify(self, token: str) -> Identity | None:
        """Return whose token it is."""
        found = await self._store.of_token(token)
        return None if found is None else self._identity(*found)

    async def log_in(
        self, name: str, password: str, *, client: str = "", call: CallContext | None = None
    ) -> NewSession:
        """Begin a session."""
        name = name.strip().lower()
        hashed, role = await self._check(name, password, client)
        days = float(self._context.settings.get("sessionDays", 14))
        try:
            session = await self._store.begin(name, "session", "", days, password=hashed)
        except NotFound:  # removed, or given another password, while this one was checked
            raise Unauthorized(_WRONG) from None
        who = CallContext(principal=Principal(kind="user", id=name), project=self._context.project.id)
        self._context.audit.record("account.logged_in", subject=name, details={"client": client}, call=who)
        login = Login(user=name, role=role, client=client)
        await self._context.hooks.collect("tavern_on_login", login=login, call=who)
        return session

    async def add_user(
        self, name: str, password: str, *, role: str = "creator", call: CallContext | None = None
    ) -> User:
        """Add a user."""
        name = name.strip().lower()
        if not _NAME.fullmatch(name) or name in _RESERVED:
            message = f"{name!r} cannot be the name of a user: it has lower-case letters, digits and . _ @ -"
            raise InvalidInput(f"{message}, up to 64, and is none of {', '.join(sorted(_RESERVED))}")
        self._check_role(role)
        user = User(name=name, role=role, created_at=datetime.now(UTC))
        await self._store.add(user, await self._hash(password))
        self._record("account.added", name, call, role=role)
        return user

    async def remove_user(self, name: str, *, call: CallContext | None = None) -> None:
        """Remove a user with all sessions and tokens."""
        await self._store.remove(name)
        self._record("account.removed", name, call)

    async def set_role(self, name: str, role: str, *, call: CallContext | None = None) -> User:
        """Give a user another role."""
        self._check_role(role)
        user = await self._store.set_role(name, role)
        self._record("account.role_changed", name, call, role=role)
        return user

    async def set_password(
        self, name: str, password: str, *, current: str | None = None, call: CallContext | None = None
    ) -> None:
        """Give a user another password, and end all sessions and tokens."""
        known = None if current is None else (await self._check(name, current, ""))[0]
        if not await self._store.set_password(name, await self._hash(password), known):
            raise Unauthorized(_WRONG)
        self._record("account.password_changed", name, call)

    async def make_token(self, user: str, name: str, *, days: int = 90, call: CallContext | None = None) -> NewSession:
        """Make an API token."""
        if not 1 <= days <= 3650:
            raise InvalidInput(f"a token holds for 1 to 3650 days, not {days}")
        if not name.strip() or len(name) > 100 or not name.isprintable():
            raise InvalidInput("a token has a name of up to 100 characters, which says what it is for")
        made = await self._store.begin(user, "token", name.strip(), days)
        self._record("account.token_made", user, call, id=made.session.id, days=days)
        return made

    async def end_sessions(self, user: str, session: str | None = None, *, call: CallContext | None = None) -> int:
        """End one session or token, or all sessions."""
        ended = await self._store.end(user, session)
        self._record("account.logged_out", user, call, sessions=ended)
        return ended

    def _identity(self, user: str, role: str, session: str) -> Identity:
        permissions = ROLES.get(role) or self._own_roles().get(role, [])
        return Identity(user=user, role=role, permissions=[*permissions, *_OWN], session=session)

    def _own_roles(self) -> dict[str, list[str]]:
        """Return the operator's roles; one that is not right has no permissions, and is reported."""
        given = self._context.settings.get("roles", {})
        roles: dict[str, list[str]] = {}
        for name, permissions in given.items() if isinstance(given, dict) else ():
            fits = isinstance(permissions, list) and all(
                isinstance(one, str) and _PERMISSION.fullmatch(one) for one in permissions
            )
            if not fits:
                self._context.log.warning(
                    "the role %s has no permissions: they are texts such as create:/api/runs*", name
                )
            roles[name] = permissions if fits else []
        return roles

    def _check_role(self, role: str) -> None:
        known = [*ROLES, *self._own_roles()]
        if role not in known:
            raise InvalidInput(f"there is no role {role!r}{did_you_mean(role, known)}; known are {', '.join(known)}")

    def _record(self, action: str, name: str, call: CallContext | None, **details: Any) -> None:
        self._context.audit.record(action, subject=name, details=details, call=call)

    async def _check(self, name: str, password: str, client: str) -> tuple[str, str]:
        """Return the hash of a user's password, if it is this one, and the role. Raises `Unauthorized` after as much
        work for a name that nobody has, and `LimitReached`."""
        succeeded = self._limits.begin(name[:64], client)
        found = await self._store.password(name)
        if found is None and self._hash_of_nobody is None:
            self._hash_of_nobody = await self._hash("a password of nobody")
        role, hashed = found or ("", self._hash_of_nobody or "")
        is_right = await self._hashed(partial(_verify, hashed, password[: _LENGTHS.stop]))
        if found is None or not is_right:
            self._context.audit.record("account.login_refused", subject=name[:64], details={"client": client})
            raise Unauthorized(_WRONG)
        succeeded()
        return hashed, role

    async def _hash(self, password: str) -> str:
        """Return the hash of a new password. Raises `InvalidInput` for one that is too short or too long."""
        if len(password) not in _LENGTHS:
            raise InvalidInput(f"a password has {_LENGTHS.start} to {_LENGTHS.stop - 1} characters")
        return await self._hashed(partial(_hash, password))

    async def _hashed(self, work: Callable[[], T]) -> T:
        async with self._hashing:
            return await asyncio.to_thread(work)


def _hash(password: str) -> str:
    from argon2 import PasswordHasher

    hasher = PasswordHasher(time_cost=_PASSES, memory_cost=_MEMORY, parallelism=1)
    return hasher.hash(password.encode("utf-8", "surrogatepass"))


def _verify(hashed: str, password: str) -> bool:
    from argon2 import PasswordHasher
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        return PasswordHasher().verify(hashed, password.encode("utf-8", "surrogatepass"))
    except (VerificationError, InvalidHashError):
        return False
