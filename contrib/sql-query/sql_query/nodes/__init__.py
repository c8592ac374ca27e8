"""Nodes that read a database; the tools of agents are made of them."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from tavern_host import InvalidInput, NodeContext, PluginContext, Slot, node

from ..databases import POSTGRES_SCHEMA, SQLITE_SCHEMA, bounded, postgres_rows, sqlite_file, sqlite_rows

Database = Annotated[str, Slot("A SQLite file in one of the granted folders, or `postgresql`.", placeholder="shop.db")]


class Found(TypedDict):
    """What a query found."""

    columns: Annotated[list[str], Slot("The names of the columns.")]
    rows: Annotated[list[list[Any]], Slot("The rows, each a list of values.")]
    complete: Annotated[bool, Slot("Whether these are all rows.")]


@node(category="Data", display_name="SQL query", blocking=True, cached=False)
def query(
    database: Database,
    sql: Annotated[str, Slot("One SELECT, with ? (SQLite) or %s (PostgreSQL) for parameters.", multiline=True)],
    context: NodeContext,
    parameters: Annotated[list[Any] | None, Slot("Values for the parameters.")] = None,
) -> Found:
    """Reads rows of a database."""
    return _read(database, sql, parameters or [], context.plugin)


@node(category="Data", display_name="SQL tables", blocking=True, cached=False)
def tables(
    database: Database, context: NodeContext
) -> Annotated[dict[str, Any], Slot("By table the type of each column.", key="tables")]:
    """Lists the tables of a database with their columns."""
    found: dict[str, dict[str, str]] = {}
    for table, column, type in _read(database, None, [], context.plugin)["rows"]:
        found.setdefault(table, {})[column] = type
    return found


def _read(database: str, sql: str | None, parameters: list[Any], context: PluginContext) -> Found:
    settings = context.settings
    seconds = float(settings.get("seconds"))
    if database == "postgresql":
        if not (dsn := settings.get("dsn")):
            raise InvalidInput("no PostgreSQL database is set up: the setting extensions.sql-query.dsn names one")
        opened = postgres_rows(dsn, sql or POSTGRES_SCHEMA, parameters, seconds)
    else:
        folders = [context.project.root / folder for folder in settings.get("folders")]
        opened = sqlite_rows(sqlite_file(database, folders), sql or SQLITE_SCHEMA, parameters, seconds)
    with opened as (columns, lines):
        rows, complete = bounded(lines, int(settings.get("maxRows")), int(settings.get("maxKilobytes")) * 1000)
    return {"columns": columns, "rows": rows, "complete": complete}
