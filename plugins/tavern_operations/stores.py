"""The databases of the host and of the first-party plugins: where they are, and which version their tables have."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path

from tavern_host.contracts.errors import Misconfigured
from tavern_host.storage.sqlite import Schema, open_read_only

SCHEMAS = (
    "tavern_host.audit.store:SCHEMA",
    "tavern_host.storage.blobs:_SCHEMA",
    "tavern_engine.journal.run_store.schema:RUNS",
    "tavern_engine.cache.disk.tables:OUTPUTS",
    "tavern_tools.tasks.schema:TASKS",
    "tavern_agents.schema:AGENTS",
    "tavern_llm.budgets:USAGE",
    "tavern_worlds.store:SCENES",
    "tavern_triggers.store:TRIGGERS",
    "tavern_workflows.history:HISTORY",
    "tavern_knowledge.index:INDEX",
    "tavern_accounts.store:_SCHEMA",
)
"""Where each store says how its tables come from one version to the next. A database is known by the file's name."""

_PIECE = re.compile(r"audit\.\d{18}\.db")


@dataclass(frozen=True)
class Database:
    """A database by its file: which version its tables have, and what brings them to the newest one. `problem` says why
    that cannot be done."""

    path: Path
    version: int
    schema: Schema
    problem: str | None = None

    @property
    def newest(self) -> int:
        """The newest version that this program knows."""
        return len(self.schema.migrations)

    @property
    def is_newer(self) -> bool:
        """Whether a newer version of the program wrote it."""
        return not 0 <= self.version <= self.newest


@cache
def schemas() -> dict[str, Schema]:
    """Return how the tables of each database come to their newest version, by the name of its file."""
    found = {}
    for place in SCHEMAS:
        module, _, name = place.partition(":")
        with contextlib.suppress(ModuleNotFoundError):  # it is not installed
            schema: Schema = getattr(import_module(module), name)
            found[schema.file] = schema
    return found


def databases(*folders: Path) -> Iterator[Database]:
    """Yield the known databases below folders, but for those that cannot be read: who uses them says so. Blocking."""
    for path in sorted(path for folder in folders for path in folder.rglob("*") if path.suffix in (".sqlite3", ".db")):
        schema = schemas().get("audit.sqlite3" if _PIECE.fullmatch(path.name) else path.name)
        if schema is not None and path.is_file() and path.stat().st_size:
            with contextlib.suppress(OSError, sqlite3.Error), contextlib.closing(open_read_only(path)) as connection:
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                yield Database(path, version, replace(schema, file=path.name))


FILES = ("grants.json", "plugins.json", "settings.json")
"""The files with what the operator decided. All are of version 1, so that there is nothing to migrate yet; the next
one says its `version`."""


def refuse_newer(*folders: Path) -> None:
    """Raise `Misconfigured` where a newer version of the program wrote one of the databases below these folders, or a
    file of what the operator decided."""
    for path in (folder / name for folder in folders for name in FILES if (folder / name).is_file()):
        with contextlib.suppress(ValueError):  # it is damaged, which who reads it says
            found = json.loads(path.read_bytes())
            version = found.get("version", 1) if isinstance(found, dict) else 1
            if version != 1:
                raise Misconfigured(f"{path.name} was written by a newer version of the program ({version}): use that")
    for each in databases(*folders):
        if each.is_newer:
            raise Misconfigured(
                f"{each.path.name} was written by a newer version of the program (its tables are of version"
                f" {each.version}, this one knows up to {each.newest}): use that"
            )
