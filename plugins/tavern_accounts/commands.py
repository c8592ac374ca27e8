"""The commands `tavern users …`, `tavern members …` and `tavern stop`."""

from __future__ import annotations

import asyncio
import getpass
import sys
from collections.abc import AsyncIterator
from typing import Any

from pydantic import JsonValue

from tavern_host import CommandOutput, PluginContext
from tavern_host.contracts.accounts import ACCOUNTS, KINDS, Accounts, SettledWork, WorkFilter, settled_text
from tavern_host.contracts.errors import InvalidInput

Arguments = dict[str, JsonValue]
Output = AsyncIterator[CommandOutput]


async def add(arguments: Arguments, context: PluginContext) -> Output:
    """Add a user."""
    name, role = str(arguments["name"]), str(arguments["role"])
    is_first = not await _service(context).list_users()
    user = await _service(context).add_user(name, await _password(), role=role)
    yield CommandOutput(kind="message", text=f"{user.name} is added, as {user.role}.")
    if is_first:
        how = "The first user: users log in at /login of a served project."
        yield CommandOutput(kind="progress", text=how)
    yield CommandOutput(kind="result", data=user.to_json())


async def list_users(arguments: Arguments, context: PluginContext) -> Output:
    """List the users."""
    users = await _service(context).list_users()
    rows = [[user.name, user.role, f"{user.created_at:%Y-%m-%d %H:%M} UTC"] for user in users]
    yield CommandOutput(kind="table", columns=["user", "role", "added"], rows=rows)
    data: Any = [user.to_json() for user in users]
    yield CommandOutput(kind="result", data=data)


async def remove(arguments: Arguments, context: PluginContext) -> Output:
    """Remove a user."""
    settled = await _service(context).remove_user(name := str(arguments["name"]))
    yield _message(f"{name} is removed, with all sessions and tokens.", settled)
    yield CommandOutput(kind="result", data={"removed": name, **_shown(settled)})


async def passwd(arguments: Arguments, context: PluginContext) -> Output:
    """Give a user another password."""
    settled = await _service(context).set_password(name := str(arguments["name"]), await _password())
    yield _message(f"{name} has a new password; all sessions and tokens have ended.", settled)
    yield CommandOutput(kind="result", data={"changed": name, **_shown(settled)})


async def role(arguments: Arguments, context: PluginContext) -> Output:
    """Give a user another role."""
    user = await _service(context).set_role(str(arguments["name"]), str(arguments["role"]))
    yield _message(f"{user.name} is {user.role} from now on.", user.settled)
    yield CommandOutput(kind="result", data=user.to_json())


async def logout(arguments: Arguments, context: PluginContext) -> Output:
    """End all sessions of a user."""
    done = await _service(context).end_sessions(str(arguments["name"]))
    yield CommandOutput(kind="message", text=f"Sessions that ended: {done.ended}.")
    yield CommandOutput(kind="result", data={"ended": done.ended})


async def token(arguments: Arguments, context: PluginContext) -> Output:
    """Make an API token."""
    days = arguments["days"]
    assert isinstance(days, int)
    made = await _service(context).make_token(str(arguments["name"]), str(arguments["label"]), days=days)
    yield CommandOutput(kind="text", text=made.token)
    until = f"It holds until {made.session.expires_at:%Y-%m-%d}, and is not shown again."
    yield CommandOutput(kind="progress", text=until)
    yield CommandOutput(kind="result", data=made.to_json())


async def list_members(arguments: Arguments, context: PluginContext) -> Output:
    """List who may enter the project."""
    found = await _service(context).members()
    if found.open:
        yield CommandOutput(kind="message", text="All users may enter the project.")
    else:
        rows: list[list[JsonValue]] = [[member.user, member.role or "the user's own"] for member in found.members]
        yield CommandOutput(kind="table", columns=["member", "role"], rows=rows)
    yield CommandOutput(kind="result", data=found.to_json())


async def add_member(arguments: Arguments, context: PluginContext) -> Output:
    """Let a user enter the project."""
    was_open = (await _service(context).members()).open
    member = await _service(context).set_member(str(arguments["name"]), str(arguments["role"]))
    as_what = f"as {member.role}" if member.role else "with the user's own role"
    yield _message(f"{member.user} is a member of the project, {as_what}.", member.settled)
    if was_open:
        yield CommandOutput(kind="progress", text="From now on its members and admins alone may enter it.")
    yield CommandOutput(kind="result", data=member.to_json())


async def remove_member(arguments: Arguments, context: PluginContext) -> Output:
    """Let a user no longer enter the project."""
    settled = await _service(context).remove_member(name := str(arguments["name"]))
    yield _message(f"{name} is no member of the project any more.", settled)
    yield CommandOutput(kind="result", data={"removed": name, **_shown(settled)})


async def open_project(arguments: Arguments, context: PluginContext) -> Output:
    """Open the project to all users."""
    await _service(context).set_open(True)
    yield CommandOutput(kind="message", text="All users may enter the project.")
    yield CommandOutput(kind="result", data={"open": True})


async def close_project(arguments: Arguments, context: PluginContext) -> Output:
    """Close the project to all but its members and admins."""
    settled = await _service(context).set_open(False)
    yield _message("Its members and admins alone may enter the project.", settled)
    yield CommandOutput(kind="result", data={"open": False, **_shown(settled)})


async def stop(arguments: Arguments, context: PluginContext) -> Output:
    """Stop all work of a user, an agent, a tool or a plugin."""
    chosen = [(kind, str(arguments[kind])) for kind in KINDS if arguments[kind]]
    if len(chosen) != 1:
        raise InvalidInput(f"say whose work is to stop, by one of {', '.join(f'--{kind}' for kind in KINDS)}")
    (kind, name) = chosen[0]
    settled = await _service(context).stop_work(WorkFilter(kind=kind, name=name))
    text = settled_text(settled) or "Nothing of it was in flight."
    yield CommandOutput(kind="message", text=text)
    yield CommandOutput(kind="result", data={"kind": kind, "name": name, **_shown(settled)})


def _message(text: str, settled: list[SettledWork]) -> CommandOutput:
    return CommandOutput(kind="message", text=f"{text} {settled_text(settled)}".rstrip())


def _shown(settled: list[SettledWork]) -> dict[str, JsonValue]:
    return {"settled": [one.to_json() for one in settled]}


def _service(context: PluginContext) -> Accounts:
    return context.services.get(ACCOUNTS)


async def _password() -> str:
    """Return the password that somebody types twice, or the first line of standard input."""
    if not sys.stdin.isatty():
        line: str = await asyncio.to_thread(sys.stdin.readline)
        return line.rstrip("\r\n")
    password: str = await asyncio.to_thread(getpass.getpass, "Password: ")
    if password != await asyncio.to_thread(getpass.getpass, "Again: "):
        raise InvalidInput("the two passwords differ")
    return password
