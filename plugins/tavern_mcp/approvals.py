"""What the operator has approved: servers as they were set up, and each of their tools as it was then.

It is kept among the operator's files, since a project may come from anybody.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, JsonValue, ValidationError
from pydantic_core import to_json

from tavern_host.contracts.errors import ServiceUnavailable
from tavern_host.contracts.wire import Model
from tavern_host.storage.files import locked, make_folder, write_atomic

_FILE = "servers.json"
_CONTENT = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
"""What of a tool a person decides by."""


class Approved(Model):
    """A server: the `digest` of how it was set up, its tools as they were approved, and as they were last `seen`,
    and what it `has` besides (`resources`, `prompts`). One that is `slow` was not connected in time when its tools were
    first looked for: nobody waits for it again until it was connected."""

    digest: str = ""
    tools: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    seen: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    has: list[str] = Field(default_factory=list)
    prompts: list[dict[str, JsonValue]] = Field(default_factory=list)
    slow: bool = False

    def changes(self, name: str) -> str:
        """Return in words what is other about a tool than was approved."""
        before, now = self.tools.get(name, {}), self.seen.get(name)
        if now is None:
            return "the server does not have it any more"
        return ", ".join(part for part in _CONTENT if before.get(part) != now.get(part))


def content_of(tool: Mapping[str, Any]) -> dict[str, JsonValue]:
    """Return the parts of a tool that are approved."""
    return {part: tool[part] for part in _CONTENT if tool.get(part) is not None}


class Approvals:
    """The record, read again when another process has changed it. All of it blocks shortly."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / _FILE
        self._stamp: tuple[int, int] | None = None
        self._known: dict[str, Approved] = {}

    def of(self, name: str) -> Approved:
        """Return the record of a server. Raises `ServiceUnavailable` where the record cannot be read."""
        return self._read().get(name) or Approved()

    def change(self, name: str, make: Callable[[Approved], Approved]) -> Approved:
        """Replace what is recorded of a server, and return it. Raises `ServiceUnavailable`."""
        before = self.of(name)
        if make(before) == before:
            return before
        try:
            make_folder(self._file.parent)
            with locked(self._file.with_suffix(".lock")):
                self._stamp = None
                known = self._read()
                known = {**known, name: make(known.get(name) or Approved())}
                write_atomic(self._file, to_json({key: one.to_json() for key, one in known.items()}), mode=0o600)
        except (OSError, TimeoutError) as error:
            raise ServiceUnavailable(f"{self._file} cannot be written: {error}") from None
        return self.of(name)

    def _read(self) -> dict[str, Approved]:
        try:
            about = self._file.stat()
            if (stamp := (about.st_mtime_ns, about.st_ino)) != self._stamp:
                data = json.loads(self._file.read_bytes())
                self._known = {name: Approved.model_validate(one) for name, one in data.items()}
                self._stamp = stamp
        except FileNotFoundError:
            self._known, self._stamp = {}, None
        except (OSError, ValueError, AttributeError, ValidationError) as error:
            raise ServiceUnavailable(f"{self._file}, which says what was approved, cannot be read: {error}") from None
        return self._known
