"""The service `accounts`: what users, passwords and roles have to be, and who is notified of what they do."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from tavern_accounts.limits import LoginLimits
from tavern_accounts.openid import OpenId, Provider
from tavern_accounts.store import AccountStore
from tavern_host import PluginContext, clock
from tavern_host.contracts.accounts import (
    Accounts,
    ChangedMember,
    ChangedUser,
    EndedSessions,
    Identity,
    Login,
    Member,
    Members,
    NewSession,
    OpenIdLogin,
    Session,
    SettledWork,
    User,
    WorkFilter,
)
from tavern_host.contracts.calls import Admission, CallContext, Principal, system_call
from tavern_host.contracts.errors import Conflict, Forbidden, InvalidInput, NotFound, TavernError, Unauthorized
from tavern_host.contracts.names import did_you_mean
from tavern_host.contracts.plugins import all_started

T = TypeVar("T")

ROLES = {"admin": ["read", "create", "operate"], "creator": ["read", "create"], "viewer": ["read"]}
"""The roles that are there without the operator's doing."""
_GUEST = ["read:/", "read:/plugins/*", "read:/api/panels", "read:/api/panels/{id}/*", "create:/api/panels/{id}/*"]
GIVEN = {"guest": [*_GUEST, "read:/api/blobs/{hash}", "create:/api/blobs"]}
"""Roles that are there as well, unless the operator defines one of that name: guests use what panels hold, and nothing
else. A Blob is read by the hash of its content, which a guest knows of what a panel has shown."""
_RESERVED = frozenset({"operator", "nobody"})
_NAME = re.compile(r"[a-z0-9][a-z0-9._@-]{0,63}")
_PERMISSION = re.compile(r"(read|create|operate)(:/\S*)?")
_LENGTHS = range(8, 1025)
"""How many characters a password may have."""
_WRONG = "the name or the password is wrong"
_LOOK_EVERY = 2.0
"""Seconds between two looks at what others have changed."""
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
        self._openid = OpenId(context)
        if context.serving:
            context.tasks.spawn(self._follow(), name="follow rights of users")

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

    async def identity(self, user: str) -> Identity:
        """Return a user's role and permissions, for the host and for each project."""
        return self._identity(*await self._store.of_user(user))

    async def admits(self, admission: Admission) -> bool:
        """Return whether a user may still do what was begun by a request."""
        found = await self._store.of_admission(admission)
        project = self._context.project.id
        return found is not None and self._identity(*found).may(admission.access, admission.where, project)

    async def members(self) -> Members:
        """Return who may enter this project."""
        return await self._store.members(self._context.project.id)

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
        await self._logged_in(name, role, client)
        return session

    async def openid(self) -> str:
        """Return the name of the provider of OpenID Connect; one that is not right is reported and left out."""
        try:
            provider = self._openid.provider()
        except TavernError as error:
            self._context.log.warning("%s", error.message)
            return ""
        return provider.title if provider is not None else ""

    async def begin_openid(self, back: str, *, call: CallContext | None = None) -> OpenIdLogin:
        """Begin a login at the provider."""
        return await self._openid.begin(back)

    async def finish_openid(
        self, back: str, secret: str, answer: dict[str, str], *, client: str = "", call: CallContext | None = None
    ) -> NewSession:
        """Begin a session for who comes back from the provider."""
        succeeded = self._limits.begin("", client)
        provider, subject = self._openid.needed(), ""
        try:
            claims = await self._openid.finish(provider, back, secret, answer)
            subject = claims["sub"]
            user = await self._user_of(provider, claims)
        except (Unauthorized, Forbidden, Conflict) as error:
            details = {"client": client, "issuer": provider.issuer, "why": error.message}
            self._context.audit.record("account.login_refused", subject=subject[:64], details=details)
            raise
        days = float(self._context.settings.get("sessionDays", 14))
        session = await self._store.begin(user.name, "session", "", days)
        succeeded()
        await self._logged_in(user.name, user.role, client, issuer=provider.issuer)
        return session

    async def _user_of(self, provider: Provider, claims: dict[str, Any]) -> User:
        """Return the user whom the operator mapped somebody to, or whom a rule lets in. Raises `Forbidden`."""
        mapped = provider.user_of(claims)
        if mapped is not None:
            try:
                _, own, _, _ = await self._store.of_user(mapped)
            except NotFound:
                raise Forbidden("you are a user here who is not there any more: ask the operator") from None
            return User(name=mapped, role=own, created_at=clock.now())
        if (role := provider.role_of(claims)) is None:
            raise Forbidden(f"{provider.title} knows you, but you are no user here: ask the operator")
        self._check_role(role)
        new = User(name=self._fitting(provider.name_of(claims)), role=role, created_at=clock.now())
        try:
            user, is_new = await self._store.of_identity(provider.issuer, claims["sub"], new)
        except Conflict:
            raise Conflict(f"there is another user {new.name!r}: ask the operator to say whose that name is") from None
        if is_new:
            who = CallContext(principal=Principal(kind="user", id=user.name), project=self._context.project.id)
            self._record("account.added", user.name, who, role=role, issuer=provider.issuer)
        return user

    async def _logged_in(self, name: str, role: str, client: str, **details: Any) -> None:
        who = CallContext(principal=Principal(kind="user", id=name), project=self._context.project.id)
        self._record("account.logged_in", name, who, client=client, **details)
        login = Login(user=name, role=role, client=client)
        await self._context.hooks.collect("tavern_on_login", login=login, call=who)

    async def add_user(
        self, name: str, password: str, *, role: str = "creator", call: CallContext | None = None
    ) -> User:
        """Add a user."""
        name = self._fitting(name)
        self._check_role(role)
        user = User(name=name, role=role, created_at=clock.now())
        await self._store.add(user, await self._hash(password))
        self._record("account.added", name, call, role=role)
        return user

    async def remove_user(self, name: str, *, call: CallContext | None = None) -> list[SettledWork]:
        """Remove a user with all sessions and tokens."""
        await self._store.remove(name)
        self._record("account.removed", name, call)
        return await self.end_work(name, call)

    async def set_role(self, name: str, role: str, *, call: CallContext | None = None) -> ChangedUser:
        """Give a user another role."""
        self._check_role(role)
        user = await self._store.set_role(name, role)
        self._record("account.role_changed", name, call, role=role)
        return ChangedUser(**dict(user), settled=await self.end_work(name, call))

    async def set_password(
        self, name: str, password: str, *, current: str | None = None, call: CallContext | None = None
    ) -> list[SettledWork]:
        """Give a user another password, and end all sessions and tokens."""
        known = None if current is None else (await self._check(name, current, ""))[0]
        if not await self._store.set_password(name, await self._hash(password), known):
            raise Unauthorized(_WRONG)
        self._record("account.password_changed", name, call)
        return await self.end_work(name, call)

    async def make_token(self, user: str, name: str, *, days: int = 90, call: CallContext | None = None) -> NewSession:
        """Make an API token."""
        if not 1 <= days <= 3650:
            raise InvalidInput(f"a token holds for 1 to 3650 days, not {days}")
        if not name.strip() or len(name) > 100 or not name.isprintable():
            raise InvalidInput("a token has a name of up to 100 characters, which says what it is for")
        made = await self._store.begin(user, "token", name.strip(), days)
        self._record("account.token_made", user, call, id=made.session.id, days=days)
        return made

    async def end_sessions(
        self, user: str, session: str | None = None, *, call: CallContext | None = None
    ) -> EndedSessions:
        """End one session or token, or all sessions."""
        ended = await self._store.end(user, session)
        self._record("account.logged_out", user, call, sessions=ended)
        return EndedSessions(ended=ended, settled=await self.end_work(user, call))

    async def set_member(self, user: str, role: str = "", *, call: CallContext | None = None) -> ChangedMember:
        """Let a user enter this project."""
        if role:
            self._check_role(role)
            if any(one.startswith("operate") for one in self._permissions(role)):
                message = f"{role!r} may operate, which is for the whole server: the role in a project is a lesser one"
                raise InvalidInput(f"{message}; `tavern users role {user} {role}` gives it everywhere")
        await self._store.set_member(self._context.project.id, Member(user=user, role=role))
        self._record("account.member_set", user, call, role=role)
        return ChangedMember(user=user, role=role, settled=await self.end_work("", call))  # it may shut others out

    async def remove_member(self, user: str, *, call: CallContext | None = None) -> list[SettledWork]:
        """Let a user no longer enter this project."""
        await self._store.remove_member(self._context.project.id, user)
        self._record("account.member_removed", user, call)
        return await self.end_work(user, call)

    async def set_open(self, is_open: bool, *, call: CallContext | None = None) -> list[SettledWork]:
        """Open this project to all users, or close it."""
        await self._store.set_open(self._context.project.id, is_open)
        self._record("account.project_opened" if is_open else "account.project_closed", self._context.project.id, call)
        return await self.end_work("", call)

    async def stop_work(self, which: WorkFilter, *, call: CallContext | None = None) -> list[SettledWork]:
        """Stop all work of a user, agent, tool or plugin."""
        if not which.name:
            raise InvalidInput(f"name the {which.kind} whose work is to stop")
        which = which.model_copy(update={"unless_admitted": False})
        settled = await self._end_work(which, call)
        details = {"kind": which.kind, "settled": [one.to_json() for one in settled]}
        self._record("work.stopped", which.name, call, **details)
        return settled

    async def end_work(self, user: str, call: CallContext | None = None) -> list[SettledWork]:
        """End what a user has begun and may not do any more; with no name, what anybody has."""
        settled = await self._end_work(WorkFilter(kind="user", name=user, unless_admitted=True), call)
        if settled:
            self._record("work.settled", user or "*", call, settled=[one.to_json() for one in settled])
        return settled

    async def _end_work(self, which: WorkFilter, call: CallContext | None) -> list[SettledWork]:
        answers = await self._context.hooks.collect(
            "tavern_settle_work", which=which, call=call or system_call(self._context.project.id)
        )
        return [one for answer in answers for one in answer.value if one.cancelled or one.stopped]

    async def _follow(self) -> None:
        """End the work that people may not do any more whenever other hosts, commands or settings have changed their
        rights, until the host stops."""
        seen, told = None, ""
        await all_started(self._context.services)
        while not self._context.is_stopping():
            try:
                now = (await self._store.changes(), self._context.settings.revision)
                if now != seen:
                    await self.end_work("")
                seen, told = now, ""
            except TavernError as error:
                if error.message != told:
                    self._context.log.error("work of people who are gone cannot be looked for: %s", error.message)
                told = error.message
            await asyncio.sleep(_LOOK_EVERY)

    def _identity(self, user: str, role: str, session: str, closed: dict[str, str | None]) -> Identity:
        """Return a user's permissions; `closed` has the user's role in each project that is closed, None in those that
        the user is no member of, and "" where it is the user's own role."""
        permissions, projects = self._permissions(role), {}
        for project, there in closed.items() if "operate" not in permissions else ():
            may = self._permissions(there or role) if there is not None else []
            # A role that was allowed to operate after it was given to a member decides nothing in the project either.
            projects[project] = [one for one in may if not there or not one.startswith("operate")]
        return Identity(user=user, role=role, permissions=permissions, projects=projects, session=session)

    def _permissions(self, role: str) -> list[str]:
        return ROLES.get(role) or self._own_roles().get(role, [])

    def _own_roles(self) -> dict[str, list[str]]:
        """Return the operator's roles, and those that are given; one that is not right has no permissions, and is
        reported."""
        setting = self._context.settings.get("roles", {})
        roles = dict(GIVEN)
        for name, permissions in setting.items() if isinstance(setting, dict) else ():
            fits = isinstance(permissions, list) and all(
                isinstance(one, str) and _PERMISSION.fullmatch(one) for one in permissions
            )
            if not fits:
                self._context.log.warning(
                    "the role %s has no permissions: they are texts such as create:/api/runs*", name
                )
            roles[name] = permissions if fits else []
        return roles

    def _fitting(self, name: str) -> str:
        """Return the name of a user in lower case. Raises `InvalidInput` for what is none."""
        name = name.strip().lower()
        if not _NAME.fullmatch(name) or name in _RESERVED:
            message = f"{name!r} cannot be the name of a user: it has lower-case letters, digits and . _ @ -"
            raise InvalidInput(f"{message}, up to 64, and is none of {', '.join(sorted(_RESERVED))}")
        return name

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
        if self._hash_of_nobody is None:  # also for users without a password, who log in elsewhere
            self._hash_of_nobody = await self._hash("a password of nobody")
        hashed, role = ("", "") if found is None else (found[1], found[0])
        is_right = await self._hashed(partial(_verify, hashed or self._hash_of_nobody, password[: _LENGTHS.stop]))
        if not hashed or not is_right:
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
