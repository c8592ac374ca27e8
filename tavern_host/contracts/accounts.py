"""Who may enter a server beside its operator: users with roles, their sessions and tokens.

Without a user there is the operator alone, with the token of `tavern serve`.
"""

from __future__ import annotations

from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

from pydantic import Field

from tavern_host.contracts.calls import Admission, CallContext
from tavern_host.contracts.errors import Forbidden
from tavern_host.contracts.http import Access
from tavern_host.contracts.services import ServiceInterface, ServiceKey, acts, reads, reads_content
from tavern_host.contracts.wire import Model

Kind = Literal["user", "agent", "tool", "plugin"]


KINDS: tuple[Kind, ...] = get_args(Kind)


class WorkFilter(Model):
    """Which work is chosen: what a user began, what an agent does, the calls of a tool, or what needs a plugin. Without
    a `name` everybody's; with `unless_admitted` only what its user may not do any more."""

    kind: Kind
    name: str = ""
    unless_admitted: bool = False

    def covers(self, call: CallContext, *, tool: str = "", plugin: str | None = None) -> bool:
        """Return whether work is chosen that was begun with `call`, calls this `tool`, or is of this `plugin`."""
        who = call.principal
        if self.kind == "user":
            users = {call.admission.user if call.admission is not None else None, who.id if who.kind == "user" else ""}
            return not self.name or self.name in users
        if self.kind == "tool":
            return self.name == tool
        return (who.kind == self.kind and who.id == self.name) or (
            self.kind == "plugin" and self.name in (plugin, call.via)
        )


class SettledWork(Model):
    """How much work of one kind was ended: `cancelled` before it began, `stopped` in the middle of it."""

    kind: str
    cancelled: int = 0
    stopped: int = 0


class Settled(Model):
    """What else a decision about somebody ended."""

    settled: list[SettledWork] = Field(default_factory=list)


def settled_text(settled: list[SettledWork]) -> str:
    """Return a sentence about the work that was ended; empty where there was none."""
    cancelled = [f"{one.cancelled} {one.kind} cancelled" for one in settled if one.cancelled]
    stopped = [f"{one.stopped} {one.kind} stopped" for one in settled if one.stopped]
    said = ", ".join([*cancelled, *stopped])
    return f"Work that was settled: {said}." if said else ""


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


class OpenIdLogin(Model):
    """A login at a provider of OpenID Connect that has begun: the `address` that the browser is sent to, and a `secret`
    that it keeps for when it comes back."""

    address: str
    secret: str


class Login(Model):
    """A login that succeeded; `client` is the address that it came from."""

    user: str
    role: str
    client: str = ""


class Member(Model):
    """A member of a project: a user, and the role there; without one the user's own role holds."""

    user: str
    role: str = ""


class Members(Model):
    """Who may enter a project: where `open`, all users; else its members, and who may `operate` everywhere."""

    open: bool = True
    members: list[Member] = Field(default_factory=list)


_OWN = ("/api/me", "/api/me/*", "/api/logout", "/api/logout/*", "/api/tokens", "/api/tokens/*", "/api/projects")
"""What everybody may `read` who is logged in, in every project."""


class Identity(Model):
    """Whose token it is. `permissions` are those of the role, each `ACCESS` or `ACCESS:PATTERN`; see `may`.

    `projects` has other permissions for the projects, by id, that are open to their members only; none for one that
    the user is no member of.
    """

    user: str
    role: str
    permissions: list[str] = Field(default_factory=list)
    projects: dict[str, list[str]] = Field(default_factory=dict)
    session: str = ""

    def sees(self, project: str) -> bool:
        """Return whether the user may enter a project, by its id."""
        return bool(self.projects.get(project, True))

    def may(self, access: Access, where: str, project: str = "") -> bool:
        """Return whether the user may use a route, or a message `/ws/TYPE`, that needs `access`, in a project.

        `where` is the route's path as it was registered, with its `{names}`; `*` in a pattern stands for any text.
        """
        if access == "public":
            return True
        if self.session and access == "read" and any(fnmatchcase(where, pattern) for pattern in _OWN):
            return True
        granted = [permission.partition(":") for permission in self.projects.get(project, self.permissions)]
        return any(name == access and (not colon or fnmatchcase(where, pattern)) for name, colon, pattern in granted)

    def require(self, access: Access, where: str, project: str = "") -> None:
        """Raise `Forbidden` unless the user may use a route or message; see `may`."""
        if not self.may(access, where, project):
            if not self.sees(project):
                raise Forbidden(f"user:{self.user} is no member of this project, which its members alone may enter")
            raise Forbidden(f"user:{self.user} is {self.role!r}, which may not use {where}: that needs {access!r}")


_READ = "Read who the users are, their roles, sessions and projects."


class ChangedUser(User, Settled):
    """A user whose role was changed."""


class ChangedMember(Member, Settled):
    """A member of a project that was closed to all others, or whose role there was changed."""


class ChangedMembers(Members, Settled):
    """Who may enter a project that was opened or closed."""


class EndedSessions(Settled):
    """How many sessions and tokens ended."""

    ended: int


class Accounts(ServiceInterface, name="accounts", version=2):
    """The users of this operator's servers. They are the same in all projects.

    What takes rights from somebody ends the work in flight that was begun with them, in this project before it
    returns, and returns how much that was; serving hosts of other projects follow.
    """

    @reads_content("accounts:read", _READ)
    async def list_users(self) -> list[User]:
        """Return all users by name."""

    @reads
    async def roles(self) -> dict[str, list[str]]:
        """Return the permissions of every role."""

    @reads_content("accounts:read", _READ)
    async def sessions(self, user: str) -> list[Session]:
        """Return a user's sessions and tokens that have not expired, the latest first."""

    @reads_content("accounts:read", _READ)
    async def identify(self, token: str) -> Identity | None:
        """Return whose token it is; None for one that is unknown, expired or revoked."""

    @reads_content("accounts:read", _READ)
    async def identity(self, user: str) -> Identity:
        """Return a user's role and permissions. Raises `NotFound`."""

    @reads(since=2)
    async def admits(self, admission: Admission) -> bool:
        """Return whether a user may still do in this project what was begun by a request: the user is there since
        before it, has the access that it needed, and the API token holds that it was sent with, if it was one. Ask by
        `require_admitted`."""

    @reads_content("accounts:read", _READ)
    async def members(self) -> Members:
        """Return who may enter this project."""

    @acts("accounts:login", _LOG_IN)
    async def log_in(
        self, name: str, password: str, *, client: str = "", call: CallContext | None = None
    ) -> NewSession:
        """Begin a session. Raises `Unauthorized`, and `LimitReached` after too many that failed for this name or from
        this `client`."""

    @reads
    async def openid(self) -> str:
        """Return the name of the provider of OpenID Connect where users may log in; empty where there is none."""

    @acts("accounts:login", _LOG_IN)
    async def begin_openid(self, back: str, *, call: CallContext | None = None) -> OpenIdLogin:
        """Begin a login at the provider, which sends the browser `back` to an address of this server. Raises `NotFound`
        without a provider, `Misconfigured`, and `ServiceUnavailable` where it cannot be reached."""

    @acts("accounts:login", _LOG_IN)
    async def finish_openid(
        self, back: str, secret: str, answer: dict[str, str], *, client: str = "", call: CallContext | None = None
    ) -> NewSession:
        """Begin a session for who comes back from the provider with an `answer`. Raises as `begin_openid`,
        `InvalidInput` for an answer to another login than the one with this `secret`, `Unauthorized` for one that
        proves nothing, `Forbidden` for somebody who is no user here, `Conflict` where another user has the name, and
        `LimitReached`."""

    @acts("accounts:manage", _MANAGE, level="override")
    async def add_user(
        self, name: str, password: str, *, role: str = "creator", call: CallContext | None = None
    ) -> User:
        """Add a user. Raises `Conflict` for a name that is taken, `InvalidInput` for one that is none, an unknown role
        and a password of fewer than 8 characters."""

    @acts("accounts:manage", _MANAGE, level="override")
    async def remove_user(self, name: str, *, call: CallContext | None = None) -> list[SettledWork]:
        """Remove a user with all sessions and tokens. Raises `NotFound`."""

    @acts("accounts:manage", _MANAGE, level="override")
    async def set_role(self, name: str, role: str, *, call: CallContext | None = None) -> ChangedUser:
        """Give a user another role, at once. Raises `NotFound`, `InvalidInput` for an unknown role."""

    @acts("accounts:manage", _MANAGE, level="override")
    async def set_password(
        self, name: str, password: str, *, current: str | None = None, call: CallContext | None = None
    ) -> list[SettledWork]:
        """Give a user another password, and end all sessions and tokens. With `current`, only where that is right.
        Raises `NotFound`, `InvalidInput`, `Unauthorized`, and `LimitReached` as `log_in`."""

    @acts("accounts:manage", _MANAGE, level="override")
    async def make_token(self, user: str, name: str, *, days: int = 90, call: CallContext | None = None) -> NewSession:
        """Make an API token with the user's rights, for up to 3650 days. Raises `NotFound`, `InvalidInput`."""

    @acts("accounts:manage", _MANAGE, level="override")
    async def end_sessions(
        self, user: str, session: str | None = None, *, call: CallContext | None = None
    ) -> EndedSessions:
        """End one session or token of a user; without `session` all sessions, but no tokens. What was begun with a
        token is ended; what was begun in a session is not, since who leaves the page lets work go on. Raises
        `NotFound` where the user has no such one."""

    @acts("accounts:manage", _MANAGE, level="override")
    async def set_member(self, user: str, role: str = "", *, call: CallContext | None = None) -> ChangedMember:
        """Let a user enter this project, with a role there; from now on its members alone may. Raises `NotFound`, and
        `InvalidInput` for a role that is unknown, or one that may `operate`: a role in a project decides no more than
        the project's work."""

    @acts("accounts:manage", _MANAGE, level="override")
    async def remove_member(self, user: str, *, call: CallContext | None = None) -> list[SettledWork]:
        """Let a user no longer enter this project, at once; it stays closed to others. Raises `NotFound` for one who is
        no member."""

    @acts("accounts:manage", _MANAGE, level="override")
    async def set_open(self, is_open: bool, *, call: CallContext | None = None) -> list[SettledWork]:
        """Open this project to all users, or close it to all but its members, who stay members either way."""

    @acts("accounts:manage", _MANAGE, level="override", since=2)
    async def stop_work(self, which: WorkFilter, *, call: CallContext | None = None) -> list[SettledWork]:
        """Stop all work of a user, agent, tool or plugin in this project at once; return how much that was. Nothing
        keeps what is begun later. Raises `InvalidInput` without a name."""


ACCOUNTS = ServiceKey(Accounts)


async def is_admitted(services: Any, call: CallContext | None) -> bool:
    """Return whether who began something with `call` may still do so; the operator and the host always may."""
    if call is None or call.admission is None:
        return True
    return bool(await services.get(ACCOUNTS).admits(call.admission))


async def require_admitted(services: Any, call: CallContext | None) -> None:
    """Raise `Forbidden` where who began something with `call` may not do so any more. To be asked before each step of
    what takes a while: a call, a request to a model, the start of a run."""
    if not await is_admitted(services, call):
        assert call is not None and call.admission is not None
        user, where = call.admission.user, call.admission.where
        raise Forbidden(f"it was begun by user:{user} at {where}, who may not do so any more, or not with that token")


async def is_to_settle(services: Any, which: WorkFilter, call: CallContext, **about: Any) -> bool:
    """Return whether work is to end that was begun with `call`; `about` is what `WorkFilter.covers` takes."""
    return which.covers(call, **about) and not (which.unless_admitted and await is_admitted(services, call))
