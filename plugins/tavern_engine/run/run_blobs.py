"""The Blobs of one run: large bytes that nodes give become some, and all that its values have are held for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import JsonValue

from tavern_host import Blob
from tavern_host.context import Blobs
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.nodes import DataFlowType
from tavern_host.contracts.workflows import Workflow

LARGE = 2**20
"""Bytes that a node gives are kept apart from so many on."""

_FLAT = frozenset((int, float, bool, type(None), str, bytes))


class RunBlobs:
    """What the run `run_id` holds. The record of its end waits for `held`."""

    def __init__(self, run_id: str, blobs: Blobs, log: logging.Logger) -> None:
        self._run_id = run_id
        self._blobs = blobs
        self._log = log
        self._seen: set[Blob] = set()
        self._new: list[Blob] = []
        self._holding: asyncio.Task[None] | None = None

    @property
    def has_any(self) -> bool:
        """Whether something is held for the run that it gave, or was given by its nodes."""
        return bool(self._seen)

    async def keep(self, outputs: dict[str, Any]) -> None:
        """Put large bytes among outputs apart: their handles replace them."""
        for key, value in outputs.items():
            if type(value) is bytes:
                outputs[key] = await self.kept(value)

    async def kept(self, value: bytes) -> bytes | Blob:
        """Return the handle of large bytes, put apart. Others stay; so do they where that fails, which is logged."""
        if len(value) < LARGE:
            return value
        try:
            blob = await self._blobs.put(value, holder=self._run_id)
        except TavernError as error:
            self._log.warning("run %s: an output stays in memory: %s", self._run_id, error.message)
            return value
        self._seen.add(blob)
        return blob

    async def content(self, blob: Blob) -> bytes:
        """Return the bytes of a Blob. Raises `NotFound`."""
        return await self._blobs.read(blob)

    def see(self, blob: Blob) -> None:
        """Hold a Blob that is among the run's values, soon."""
        if blob in self._seen:
            return
        self._seen.add(blob)
        self._new.append(blob)
        if self._holding is None:
            self._holding = asyncio.get_running_loop().create_task(self._hold(), name=f"Blobs of {self._run_id}")

    def see_all(self, values: Any) -> None:
        """Hold all Blobs in values that another run has kept."""
        for blob in _blobs_in(values):
            self.see(blob)

    def has_all(self, outputs: dict[str, Any]) -> bool:
        """Return whether all Blobs in outputs of an earlier run are there still."""
        if _FLAT.issuperset(map(type, outputs.values())):
            return True
        return all(map(self._blobs.has, _blobs_in(outputs)))

    async def held(self) -> None:
        """Return when all that were seen are held."""
        while self._holding is not None:
            await asyncio.wait([self._holding])

    async def _hold(self) -> None:
        try:
            while self._new:
                blob = self._new.pop()
                try:
                    await self._blobs.hold(self._run_id, [blob])
                except TavernError as error:
                    self._log.warning("run %s: %s", self._run_id, error.message)
        finally:
            self._holding = None


def are_in(*values: Any) -> bool:
    """Return whether there is a Blob among values, or the handle of one as JSON."""
    return next(_blobs_in(values), None) is not None


def input_blobs(workflow: Workflow, inputs: Mapping[str, JsonValue]) -> list[Blob]:
    """Return the Blobs whose handles are among the inputs of a run."""
    slots = workflow.interface_inputs
    values = [
        value for key, value in inputs.items() if key in slots and slots[key].data_flow_type is DataFlowType.BINARY
    ]
    each = [one for value in values for one in (value if isinstance(value, list) else [value])]
    return [blob for one in each if (blob := Blob.of(one)) is not None]


def _blobs_in(value: Any) -> Iterator[Blob]:
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if (blob := Blob.of(part)) is not None:
            yield blob
        elif isinstance(part, dict):
            waiting.extend(part.values())
        elif isinstance(part, list | tuple) and not _FLAT.issuperset(map(type, part)):
            waiting.extend(part)
