"""The command `tavern schema`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from tavern_host import CommandOutput, InvalidInput, NotFound, PluginContext
from tavern_host.contracts.names import did_you_mean
from tavern_host.storage.files import write_atomic


async def show(arguments: dict[str, Any], context: PluginContext) -> AsyncIterator[CommandOutput]:
    """Print a schema; without a kind list them, or write all into a folder."""
    from tavern_devtools.schemas import SCHEMAS, catalog, schema_of

    kind, output = arguments["kind"], arguments["output"]
    if kind is not None and kind not in SCHEMAS:
        raise NotFound(f"there is no schema {kind!r:.80}{did_you_mean(kind, SCHEMAS)}; there are {', '.join(SCHEMAS)}")
    names = [*SCHEMAS] if kind is None else [kind]
    if output is not None:
        made: dict[str, Any] = {f"{name}.schema.json": schema_of(name) for name in names}
        files = {**made, "catalog.json": {"version": 1, "schemas": catalog(names)}}
        await asyncio.to_thread(_write, Path(output), files)
        yield CommandOutput(kind="message", text=f"Wrote {len(files)} files to {output}")
        yield CommandOutput(kind="result", data={"folder": output, "files": [*files]})
    elif kind is None:
        rows = [[name, one.title, ", ".join(one.matches)] for name, one in SCHEMAS.items()]
        yield CommandOutput(kind="table", columns=["kind", "what it is", "files"], rows=rows)
        yield CommandOutput(kind="result", data=catalog(names))
    else:
        schema = schema_of(kind)
        yield CommandOutput(kind="text", text=json.dumps(schema, indent=2))
        yield CommandOutput(kind="result", data=schema)


def _write(folder: Path, files: Mapping[str, Any]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in files.items():
            write_atomic(folder / name, json.dumps(value, indent=2).encode() + b"\n")
    except OSError as error:
        raise InvalidInput(f"{folder} cannot be written: {error.strerror or error}") from None
