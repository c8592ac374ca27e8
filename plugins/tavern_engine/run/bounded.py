"""Bounds how much of a run is shown at a time, and gives its outputs one by one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from pydantic import JsonValue

from tavern_engine.run.json_values import JSON, TEXT, without_large
from tavern_host import Blob, NotFound
from tavern_host.context import Blobs
from tavern_host.contracts.executions import NodeState, Run

SHOWN = 2 * 2**20
"""A value of more bytes than `LARGE` is not shown with its run, nor are values above 1 KiB once a run has so many."""

_PART = 16 * 1024
"""How many characters are encoded before others get their turn; more only where a text within a value is longer."""


def bounded(run: Run) -> Run:
    """Return a run with placeholders for large values: `{"type": "large", "mediaType": …, "length": …}`."""
    left = [SHOWN]
    nodes = {node_id: _state(state, left) for node_id, state in run.nodes.items()}
    values = {key: without_large(getattr(run, key), left) for key in ("inputs", "outputs", "metadata")}
    return run.model_copy(update={"nodes": nodes, **values})


def _state(state: NodeState, left: list[int]) -> NodeState:
    if state.output is None or (output := without_large(state.output, left)) is state.output:
        return state
    return state.model_copy(update={"output": output})


async def encoded(value: JsonValue) -> AsyncIterator[bytes]:
    """Yield a value as a file has it: of text the text, of any other its JSON."""
    pieces = json.JSONEncoder(ensure_ascii=False).iterencode(value)
    if isinstance(value, str):
        pieces = (value[start : start + _PART] for start in range(0, len(value), _PART))
    part = ""
    for piece in pieces:
        part += piece
        if len(part) >= _PART:
            yield part.encode("utf-8", "replace")
            part = ""
    yield part.encode("utf-8", "replace")


async def output_of(run: Run, key: str, node_id: str | None, blobs: Blobs) -> Blob:
    """Return an output of a run or one of its nodes as a Blob, which is held for the run. Raises `NotFound`."""
    state = run.nodes.get(node_id) if node_id is not None else None
    outputs = run.outputs if node_id is None else (state and state.output) or {}
    if key not in outputs:
        raise NotFound(f"the run {run.id} has no output {key!r:.80}{'' if node_id is None else f' of {node_id!r:.80}'}")
    value = outputs[key]
    if (known := Blob.of(value)) is not None and blobs.has(known):
        return known
    return await blobs.put(encoded(value), TEXT if isinstance(value, str) else JSON, holder=run.id)
