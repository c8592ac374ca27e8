"""The commands `audit tail` and `audit verify`. They only read the log, and load no plugin."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from tavern_host import CommandOutput, Host, InvalidInput
from tavern_host.contracts.audit import AuditEntry
from tavern_host.contracts.errors import Misconfigured
from tavern_host.contracts.languages import say

POLL_SECONDS = 0.5
"""Seconds after which `--follow` reads again."""


async def tail(make_host: Callable[[], Host], arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    """Show the newest entries, and with `--follow` those that come."""
    log, count = make_host().audit, arguments["lines"]
    if count < 0:
        raise InvalidInput(f"--lines {count}: how many entries to show is a number from 0")
    try:
        newest = log.store.tail(max(count, 1))
        entries = newest if count else []
        if not arguments["follow"]:
            for text in [_line(entry) for entry in entries] or [say("The audit log is empty.")]:
                yield CommandOutput(kind="text", text=text)
            yield CommandOutput(kind="result", data=[entry.to_json() for entry in entries])
            return
        seen = newest[-1].seq if newest else 0
        while True:
            for entry in entries:
                yield CommandOutput(kind="text", text=_line(entry))
                yield CommandOutput(kind="result", data=entry.to_json())
            await asyncio.sleep(POLL_SECONDS)
            entries = log.store.read_after(seen)
            seen = entries[-1].seq if entries else seen
    except OSError as error:
        raise _unreadable(log.path, error) from None


async def verify(make_host: Callable[[], Host], arguments: dict[str, Any]) -> AsyncIterator[CommandOutput]:
    """Say whether the log is whole."""
    log = make_host().audit
    try:
        check = log.store.verify()
    except OSError as error:
        raise _unreadable(log.path, error) from None
    yield CommandOutput(kind="result", data=check.to_json())
    if check.problem is not None:
        where = f"{log.path}:{check.line}" if check.line is not None else str(log.path)
        yield CommandOutput(kind="failure", text=f"{where}: {check.problem}", exit_code=1)
        return
    yield CommandOutput(kind="message", text=f"{_counted(check.entries)}; nothing was changed or removed.")


def _line(entry: AuditEntry) -> str:
    moment = entry.time.astimezone().isoformat(sep=" ", timespec="seconds")
    details = json.dumps(entry.details, ensure_ascii=False) if entry.details else ""
    actor = entry.actor if entry.plugin is None else f"{entry.actor} (through {entry.plugin})"
    parts = [moment, actor, entry.action, entry.subject, details]
    return "  ".join(part.replace("\n", "\\n") for part in parts if part)


def _counted(entries: int) -> str:
    return "1 entry" if entries == 1 else f"{entries} entries"


def _unreadable(path: Path, error: OSError) -> Misconfigured:
    return Misconfigured(f"the audit log {path} cannot be read: {error.strerror or error}")
