"""Copies of what hosts recorded in their audit logs, in one table of the database.

Each log stays in its host's own file, with its chain and its anchor: it is written before plugins are loaded, after
they are gone, and while no database answers. The copy is what an operator of several hosts reads, and what shows that
the newest part of a log was replaced since.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
from collections.abc import AsyncIterator

from pydantic import JsonValue

from tavern_host import CommandOutput, PluginContext
from tavern_host.contracts.audit import AUDIT, AuditEntry
from tavern_host.contracts.errors import Misconfigured, TavernError
from tavern_host.storage.files import make_folder, write_atomic
from tavern_postgres.database import Connection, address

_EVERY = 2.0
"""Seconds until what was recorded is copied."""
_PAGE = 1000


class AuditCopies:
    """Copies the audit log of this host until it is cancelled."""

    def __init__(self, context: PluginContext) -> None:
        self._context = context
        self._connection = Connection(*address(context), context.log, name="audit")
        self._told = ""

    async def run(self) -> None:
        """Copy what is recorded, every few seconds."""
        host = await asyncio.to_thread(name_of, self._context)
        try:
            while True:
                try:
                    if not await self._copy(host):
                        host = await asyncio.to_thread(name_of, self._context, new=True)
                    self._told = ""
                except TavernError as error:
                    self._tell(f"the audit log is not copied to the database: {error.message}")
                await asyncio.sleep(_EVERY)
        finally:
            await self._connection.close()

    def _tell(self, problem: str) -> None:
        if problem != self._told:
            self._context.log.error("%s", problem)
        self._told = problem

    async def _copy(self, host: str) -> bool:
        """Copy what is new; False where the log is not the one that was copied, which the log of the host says."""
        newest = "SELECT seq, body FROM audit WHERE host = %s ORDER BY seq DESC LIMIT 1"
        found = await self._connection.rows(newest, (host,))
        copied = found[0][0] if found else 0
        entries = await self._since(copied)
        if found and (not entries or entries[0].seq != copied or _body(entries[0]) != bytes(found[0][1])):
            message = (
                "the audit log does not have the entry %d as it was copied as %s: it was changed, or another was begun"
            )
            self._context.log.error(message, copied, host)
            return False
        rows = [(host, entry.seq, entry.time, _body(entry)) for entry in entries if entry.seq > copied]
        async with self._connection.cursor(transaction=True) as cursor:
            await cursor.executemany(b"INSERT INTO audit (host, seq, made, body) VALUES (%s, %s, %s, %s)", rows)
        return True

    async def _since(self, number: int) -> list[AuditEntry]:
        """Return the entries from a number on, oldest first."""
        audit, found, before = self._context.services.get(AUDIT), list[AuditEntry](), None
        while not found or found[0].seq > max(number, 1):
            page = await audit.tail(_PAGE, before=before)
            found = page + found
            if len(page) < _PAGE:
                break
            before = page[0].seq
        return [entry for entry in found if entry.seq >= number]


async def show(arguments: dict[str, JsonValue], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Show the newest copies of all hosts, oldest first. Raises `Misconfigured` where no database is set up."""
    if not context.settings.get("url"):
        raise Misconfigured("no database is set up: name it in extensions.tavern-postgres.url first")
    connection = Connection(*address(context), context.log, name="audit")
    try:
        newest = "SELECT host, body FROM audit ORDER BY made DESC, host, seq DESC LIMIT %s"
        rows = await connection.rows(newest, (arguments["limit"],))
    finally:
        await connection.close()
    entries: list[JsonValue] = [{"host": host, **json.loads(body)} for host, body in reversed(rows)]
    for entry in entries:
        assert isinstance(entry, dict)
        shown = [str(entry.get(key) or "") for key in ("time", "host", "actor", "action", "subject")]
        yield CommandOutput(kind="text", text="  ".join(filter(None, shown)))
    yield CommandOutput(kind="result", data=entries)


def name_of(context: PluginContext, *, new: bool = False) -> str:
    """Return the name of this host in the copies, with `new` a new one: its machine, and a mark that no other host
    there has."""
    file = context.operator_dir / "host"
    if new or not file.exists():
        make_folder(file.parent)
        write_atomic(file, f"{socket.gethostname()}/{secrets.token_hex(4)}".encode(), mode=0o600)
    return file.read_text(encoding="utf-8")


def _body(entry: AuditEntry) -> bytes:
    return json.dumps(entry.to_json(), separators=(",", ":")).encode("ascii")
