"""JSON Schemas of all files that people write, for editors and for stores of schemas: in draft 7, which all of them
read, each with the names of its files."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tavern_agents.api.agents import AgentProfile
from tavern_host.contracts.manifest import Manifest
from tavern_host.contracts.workflows import Workflow
from tavern_panels.api.panels import Panel
from tavern_tools.api.toolschema import tool_file_schema
from tavern_triggers.api.triggers import Trigger

_KEPT = Path(__file__).with_name("file_schemas")
DRAFT = "http://json-schema.org/draft-07/schema#"


@dataclass(frozen=True)
class FileSchema:
    """A kind of file: what it is, the names of its files as patterns, and what makes its schema."""

    title: str
    matches: tuple[str, ...]
    make: Callable[[], dict[str, Any]]
    is_yaml: bool = False


def _of(model: type[BaseModel]) -> Callable[[], dict[str, Any]]:
    return model.model_json_schema


def _kept(name: str) -> Callable[[], dict[str, Any]]:
    """Return a reader of a schema of the host's own models, which plugins do not import: a test holds the two
    together."""

    def read() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(_KEPT.joinpath(f"{name}.json").read_text(encoding="utf-8"))
        return found

    return read


SCHEMAS = {
    "plugin": FileSchema("Manifest of a plugin of tavern-host", ("plugin.yaml",), _of(Manifest), is_yaml=True),
    "tool": FileSchema("Tool of tavern-host", ("*.tool.json",), tool_file_schema),
    "workflow": FileSchema("Workflow of tavern-host", ("**/workflows/**/*.json",), _of(Workflow)),
    "agent": FileSchema("Agent of tavern-host", ("**/agents/*.json", "!**/workflows/**"), _of(AgentProfile)),
    "panel": FileSchema("Panel of tavern-host", ("**/panels/*.json", "!**/workflows/**"), _of(Panel)),
    "trigger": FileSchema("Trigger of tavern-host", ("**/triggers/*.json", "!**/workflows/**"), _of(Trigger)),
    "project": FileSchema("Project of tavern-host", ("tavern.yaml",), _kept("project"), is_yaml=True),
    "host": FileSchema("Operator's file of tavern-host", ("host.yaml",), _kept("host"), is_yaml=True),
}


def schema_of(name: str) -> dict[str, Any]:
    """Return a schema by the name of its kind of file."""
    about = SCHEMAS[name]
    schema = json.loads(json.dumps(about.make()).replace("#/$defs/", "#/definitions/"))
    if "$defs" in schema:
        schema["definitions"] = schema.pop("$defs")
    if about.is_yaml:
        _allow_own_keys(schema)
    elif schema.get("additionalProperties") is False:
        schema["properties"].setdefault("$schema", {"type": "string"})
    return {"$schema": DRAFT, **schema, "title": about.title}


def _allow_own_keys(part: Any) -> None:
    """Let each object have keys that begin with `x-`, which are left unread wherever they stand."""
    if isinstance(part, dict):
        if part.get("additionalProperties") is False:
            part["patternProperties"] = {"^x-": {}}
        for inner in part.values():
            _allow_own_keys(inner)
    elif isinstance(part, list):
        for inner in part:
            _allow_own_keys(inner)


def catalog(names: list[str]) -> list[dict[str, Any]]:
    """Return the entries of these kinds for the catalog of a store of schemas; `url` is where that keeps the file."""
    return [
        {
            "name": SCHEMAS[name].title,
            "description": f"{SCHEMAS[name].title}.",
            "fileMatch": [*SCHEMAS[name].matches],
            "url": f"{name}.schema.json",
        }
        for name in names
    ]
