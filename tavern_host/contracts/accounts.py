"""Who may enter a server beside its operator: users with roles, their sessions and tokens.

Without a user there is the operator alone, with the token of `tavern serve`.
"""

from __future__ import annotations

from datetime import datetime
from fnmatch import fnmatchcase
from typing import Literal

from pydantic import Field

from tavern_host.contracts.calls import CallContext
from tavern_host.contracts.errors import Forbidden
from tavern_host.contracts.http import Access
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads
from tavern_host.contracts.wire import Model

_MANAGE = "Add and remove users, and change their roles, passwords, sessions and tokens."
_LOG_IN = "Try passwords, and begin sessions of users."


class User(Model):
    """A user. `role` is `admin`, `creator`, `viewer`, or one that the operator defined."""

    name: str
    role: str
    created_at: datetime


class Session(Model):
    """A login (`session`) or an API token (`token`, which has a `name`) of a user, known by its `id`."""

    id: str
    user: str
    kind: Literal["session", "token"]
    name: str = ""
    created_at: datetime
    expires_at: datetime


class NewSession(Model):
    """A session that has just begun, with its token: it is shown this once, and only a hash of it is kept."""

    token: str
    session: Session


class Login(Model):
    """A login that succeeded; `client` is the address that it came from."""

    user: str
    role: str
    client: str = ""


class Identity(Model):
    """Whose token it is. `permissions` are those of the role, each `ACCESS` or `ACCESS:PATTERN`; see `may`."""

    user: str
    role: str
    permissions: list[str] = Field(default_factory=list)
    session: str = ""

    def may(self, access: Access, where: str) -> bool:
        """Return whether the user may use a route, or a message `/ws/TYPE`, that needs `access`.

        `where` is the route's path as it was registered, with its `{names}`; `*` in a pattern stands for any text.
        """
        if access == "public":
            return True
        given = (permission.partition(":") for permission in self.permissions)
        return any(name == access and (not colon or fnmatchcase(where, pattern)) for name, colon, pattern in given)

    def require(self, access: Access, where: str) -> None:
        """Raise `Forbidden` unless the user may use a route or message; see `may`."""
        if not self.may(access, where):
            raise Forbidden(f"user:{self.user} is {self.role!r}, which may not use {where}: that needs {access!r}")


class Accounts(ServiceInterface, name="accounts", records=["account"]):
    """The users of this operator's servers. They are the same in all projects."""

    @reads
    async def list_users(self) -> list[User]:
        """Return all users by name."""

    @reads
    async def roles(self) -> dict[str, list[str]]:
        """Return the permissions of every role."""

    @reads
    async def sessions(self, user: str) -> list[Session]:
        """Return a user's sessions and tokens that have not expired, the latest first."""

    @reads
    async def identify(self, token: str) -> Identity | None:
        """Return whose token it is; None for one that is unknown, expired or revoked."""

    @acts("accounts:login", _LOG_IN)
    async def log_in(
        self, name: str, password: str, *, client: str = "", call: CallContext | None = None
    ) -> NewSession:
        """Begin a session. Raises `Unauthorized`, and `LimitReached` after too many that failed for this name or from
        this `client`."""

    @acts("accounts:manage", _MANAGE, level="override")
    async def add_user(
        self, name: str, password: str, *, role: str = "creator", call: CallContext | None = None
    ) -> User:
        """Add a user. Raises `Conflict` for a name that is taken, `InvalidInput` for one that is none, an unknown role
        and a password of fewer than 8 characters."""

    @acts("accounts:manage", _MANAGE, level="override")
    async def remove_user(self, name: str, *, call: CallContext | None = None) -> None:
        """Remove a user with all sessions and tokens. Raises `NotFound`."""

    @acts("accounts:manage", _MANAGE, level="override")
    async def set_role(self, name: str, role: str, *, call: CallContext | None = None) -> User:
        """Give a user another role, at once. Raises `NotFound`, `InvalidInput` for an unknown role."""

    @acts("accounts:manage", _MANAGE, level="override")
    async def set_password(
        self, name: str, password: str, *, current: str | None = None, call: CallContext | None = None
    ) -> None:
        """Give a user another password, and end all sessions and tokens. With `current`, only where that is right.
        Raises `NotFound`, `InvalidInput`, `Unauthorized`, and `LimitReached` as `log_in`."""

    @acts("accounts:manage", _MANAGE, level="override")
    async def make_token(self, user: str, name: str, *, days: int = 90, call: CallContext | None = None) -> NewSession:
        """Make an API token with the user's rights, for up to 3650 days. Raises `NotFound`, `InvalidInput`."""

    @acts("accounts:manage", _MANAGE, level="override")
    async def end_sessions(self, user: str, session: str | None = None, *, call: CallContext | None = None) -> int:
        """End one session or token of a user; without `session` all sessions, but no tokens. Return how many ended.
        Raises `NotFound` where the user has no such one."""


ACCOUNTS = ServiceKey(Accounts)
