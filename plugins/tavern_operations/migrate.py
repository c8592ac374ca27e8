"""Brings the tables of all databases to the newest version at once, or tries it on copies.

Each store does so too when it opens its database; this tells beforehand what will be done, and whether it works.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import tempfile
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path

from tavern_host.contracts.errors import TavernError
from tavern_host.storage.sqlite import explain, open_database, open_read_only
from tavern_operations.stores import Database, databases, refuse_newer

_log = logging.getLogger("tavern.storage")


def migrate(*folders: Path, dry_run: bool) -> Generator[list[Database]]:
    """Migrate the databases below folders one by one, or copies of them with `dry_run`; yield after each those that
    were dealt with, as they were before.

    Raises `Misconfigured` before anything is changed, where a newer version wrote one of them.
    """
    refuse_newer(*folders)
    done: list[Database] = []
    yield done
    for each in databases(*folders):
        problem = None
        try:
            if each.version != each.newest:
                with _copy(each) if dry_run else contextlib.nullcontext(each.path) as path:
                    open_database(path.parent, each.schema, _log)[0].close()
        except (TavernError, OSError, sqlite3.Error) as error:
            problem = explain(error, each.schema)
        done.append(replace(each, problem=problem))
        yield done


@contextlib.contextmanager
def _copy(database: Database) -> Iterator[Path]:
    """Give a copy of a database in a folder of its own within the block."""
    with tempfile.TemporaryDirectory(prefix="tavern-") as folder:
        path = Path(folder, database.path.name)
        with (
            contextlib.closing(open_read_only(database.path)) as source,
            contextlib.closing(sqlite3.connect(path)) as copy,
        ):
            source.backup(copy)
        yield path
