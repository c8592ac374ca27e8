"""A project as one file, and what is in it."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field, JsonValue

from tavern_host.contracts.wire import Model


class ProjectPart(Model):
    """One of the folders of a project, by its `name`; the empty one has the files beside them. With how many `files`,
    and `bytes`."""

    name: str
    files: int = 0
    bytes: int = 0


class ProjectArchive(Model):
    """A project as one file. `files` has by their paths texts as they are, others as `{"base64": …}`; secrets among
    them are masked."""

    format: Literal["tavern-project"] = "tavern-project"
    name: str = Field(default="", max_length=300)
    version: str = Field(default="", max_length=100)
    made_at: datetime | None = None
    files: dict[str, JsonValue]
