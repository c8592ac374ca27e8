"""The commands `tavern backup`, `restore` and `migrate`. They work on files, and load no plugin."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import JsonValue

from tavern_host import CommandOutput, Folders, Host
from tavern_host.context import Project
from tavern_host.contracts.accounts import ACCOUNTS, Members
from tavern_host.contracts.errors import Misconfigured, TavernError
from tavern_operations.archive import Contents
from tavern_operations.backup import make_backup
from tavern_operations.migrate import migrate
from tavern_operations.restore import adopt, alone, check_backup, check_moved, restore_backup
from tavern_operations.stores import Database

MakeHost = Callable[[], Host]
Output = AsyncIterator[CommandOutput]
T = TypeVar("T")

_SHOWN = 10


async def backup(make_host: MakeHost, arguments: dict[str, Any]) -> Output:
    """Make a backup of the project."""
    file, host = _path(arguments["file"]), make_host()
    with _reported():
        contents = await _last(make_backup(host.project, host.folders, file))
    await _record(host, "host.backed_up", file)
    for name in contents.left_out[:_SHOWN]:
        yield CommandOutput(kind="progress", text=f"Left out: {name} is a link, or neither file nor folder.")
    if more := len(contents.left_out[_SHOWN:]):
        yield CommandOutput(kind="progress", text=f"Left out: {more} more.")
    yield CommandOutput(kind="message", text=f"{file} holds {contents.root}: {_summary(contents)}.")
    yield CommandOutput(kind="result", data=_json(file, contents, leftOut=[*contents.left_out]))


async def restore(make_host: MakeHost, arguments: dict[str, Any]) -> Output:
    """Restore a project from a backup, or check one."""
    file, to, trust = _path(arguments["file"]), arguments.get("folder"), arguments["trust"]
    folders = Folders.of_user()
    with _reported():
        if arguments["check"]:
            contents = await _last(check_backup(file, folders, trust=trust))
            yield CommandOutput(kind="message", text=f"{file} is whole: {contents.root}, {_summary(contents)}.")
            yield CommandOutput(kind="result", data=_json(file, contents))
            return
        done = await _last(restore_backup(file, _path(to) if to else None, folders, trust=trust))
    async for output in _carry_members(Path(done.contents.root), done.root, folders):
        yield output
    await _record(Host(done.root), "host.restored", file)
    yield CommandOutput(kind="message", text=f"{done.root} is restored: {_summary(done.contents)}.")
    for path in done.replaced:
        yield CommandOutput(kind="progress", text=f"What was there before is kept as {path}")
    kept: list[JsonValue] = [str(path) for path in done.replaced]
    data = _json(file, done.contents, restored=str(done.root), replaced=kept)
    yield CommandOutput(kind="result", data=data)


async def take_over(make_host: MakeHost, arguments: dict[str, Any]) -> Output:
    """Let what was decided about a project that was moved here count for it."""
    old, host = _path(arguments["folder"]), make_host()
    with _reported():
        check_moved(old, host.folders)
        async for output in _carry_members(old, host.project.root, host.folders):
            yield output
        replaced = adopt(host.project, old, host.folders)
    await _record(host, "host.adopted", old)
    yield CommandOutput(
        kind="message", text=f"What you decided about the project in {old} counts in {host.project.root}."
    )
    for path in replaced:
        yield CommandOutput(kind="progress", text=f"What was decided about it before is kept as {path}")
    data: JsonValue = {"from": str(old), "to": str(host.project.root), "replaced": [str(path) for path in replaced]}
    yield CommandOutput(kind="result", data=data)


async def bring_up_to_date(make_host: MakeHost, arguments: dict[str, Any]) -> Output:
    """Migrate the databases of the project and of the operator, or say what would be done."""
    host, dry_run = make_host(), arguments["dry_run"]
    state = host.folders.project_state(host.project)
    with _reported(), contextlib.nullcontext() if dry_run else alone(state):
        steps = migrate(host.project.private, state, host.folders.state / "accounts", dry_run=dry_run)
        done = await _last(steps)
    rows = [[str(each.path), f"{each.version} → {each.newest}", _outcome(each, dry_run=dry_run)] for each in done]
    columns = ["database", "version", "what would be done" if dry_run else "what was done"]
    yield CommandOutput(kind="table", title=None if rows else "no databases", columns=columns, rows=rows)
    data: list[JsonValue] = [
        {"database": str(each.path), "version": each.version, "newest": each.newest, "problem": each.problem}
        for each in done
    ]
    yield CommandOutput(kind="result", data=data)
    for each in (each for each in done if each.problem is not None):
        yield CommandOutput(kind="failure", text=f"{each.path} cannot be migrated: {each.problem}")


async def _carry_members(old: Path, new: Path, folders: Folders) -> Output:
    """Close a project that is elsewhere now to all but its members, as it was before: it would be open to all users."""
    if Project.of(old).id == Project.of(new).id or not (folders.state / "accounts").exists():
        return
    hosts = [after := Host(new, third_party=False)]
    try:
        try:
            hosts.append(before := Host(old, third_party=False))
            await before.load()
            found = await before.services.get(ACCOUNTS).members()
        except TavernError as error:
            found, text = (
                Members(open=False),
                f"The project is closed to all users, since nobody knows who may enter: {error}",
            )
            yield CommandOutput(kind="progress", text=text)
        if not found.open:
            await after.load()
            accounts = after.services.get(ACCOUNTS)
            await accounts.set_open(False, call=after.call())
            for member in found.members:
                await accounts.set_member(member.user, member.role, call=after.call())
    finally:
        for host in hosts:
            await host.stop()


def _path(path: str) -> Path:
    return Path(path).expanduser().absolute()


def _summary(contents: Contents) -> str:
    count = len(contents.files)
    return f"{count:,} file{'s' * (count != 1)} as they were {contents.made_at:%Y-%m-%d %H:%M:%S} UTC"


def _json(file: Path, contents: Contents, **more: JsonValue) -> JsonValue:
    made = contents.made_at.isoformat()
    return {"file": str(file), "project": contents.root, "files": len(contents.files), "madeAt": made, **more}


def _outcome(database: Database, *, dry_run: bool) -> str:
    count = database.newest - database.version
    if database.problem is not None or not count:
        return database.problem or "up to date"
    what = "1 migration" if count == 1 else f"{count} migrations"
    return f"{what}, tried on a copy" if dry_run else what


async def _last(steps: Generator[T]) -> T:
    """Return the value of the last step. Nothing else is done in this process; the command can be cancelled between two
    steps."""
    with contextlib.closing(steps):
        found = next(steps)
        for found in steps:  # noqa: B007 -- the last one counts
            await asyncio.sleep(0)
    return found


@contextlib.contextmanager
def _reported() -> Iterator[None]:
    """Say where what the file system refuses."""
    try:
        yield
    except OSError as error:
        raise Misconfigured(f"{error.filename or 'the file'}: {error.strerror or error}; nothing was changed") from None


async def _record(host: Host, action: str, file: Path) -> None:
    """Record in the project's audit log what was done with it."""
    host.audit.record(action, actor="user:operator", subject=host.project.id, details={"file": str(file)})
    await host.audit.close()
