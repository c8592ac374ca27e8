"""What the script tools of a plugin run and ask for, read from its tool files for the operator who reviews it.

Runs nothing, and decides nothing: what is granted is up to the service that runs scripts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import JsonValue, ValidationError

from tavern_host.context import PluginContext
from tavern_host.contracts.documents import read_document, read_document_bytes
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.reviews import ReviewedPlugin, ReviewNote
from tavern_host.contracts.settings import SETTINGS
from tavern_host.storage.file_watch import file_stamps
from tavern_scripts.api.scripts import SCRIPT_EXECUTION, SecurityContext
from tavern_tools.catalog.files import MAX_TOOL_FILE, SUFFIX

_SCRIPTS = ("script", "external-script")


@dataclass
class _Script:
    """A script tool: what it runs and what it asks for, in words. `context` is None where that cannot be read; `denied`
    is what it would not get of it, each with the reason, None where nobody was asked."""

    tool: str
    runs: str
    context: SecurityContext | None
    asks: list[str] = field(default_factory=list)
    denied: list[str] | None = None
    settings_of: str = ""

    def to_json(self) -> dict[str, JsonValue]:
        denied: dict[str, JsonValue] = {} if self.denied is None else {"denied": [*self.denied]}
        return {"tool": self.tool, "runs": self.runs, "asks": [*self.asks], **denied}


async def review_notes(plugin: ReviewedPlugin, context: PluginContext) -> list[ReviewNote]:
    """Return the note on a plugin's script tools; none where it has none."""
    scripts = [*_scripts(plugin.folders["tools"])] if "tools" in plugin.folders else []
    if not scripts:
        return []
    if plugin.judged:
        with suppress(TavernError):  # nobody can be asked: the review says what is asked for, and no more
            for script in scripts:
                script.denied = await _denied(plugin.name, script, context)
    return [
        ReviewNote(
            key="scripts",
            title=f"{plugin.name} has script tools",
            columns=["tool", "runs in the sandbox", "asks to"],
            rows=[[script.tool, script.runs, "; ".join(script.asks)] for script in scripts],
            lines=[f"{s.tool} asks for more than it gets: {'; '.join(s.denied)}" for s in scripts if s.denied],
            data=[script.to_json() for script in scripts],
        )
    ]


async def _denied(plugin: str, script: _Script, context: PluginContext) -> list[str] | None:
    if script.context is None:
        return None
    values = await context.services.get(SETTINGS).of_tool(plugin, script.settings_of or script.tool)
    config = {value.key.rpartition(".")[2]: value.value for value in values}
    return await context.services.get(SCRIPT_EXECUTION).denied(script.context, config=config)


def _scripts(folder: str) -> Iterator[_Script]:
    for path, *_ in file_stamps(folder, SUFFIX):
        document = _document(Path(path))
        tool = document.get("id") or document.get("toolId")
        script = document.get("implementation") or document.get("handler")
        if not (isinstance(tool, str) and isinstance(script, dict) and script.get("type") in _SCRIPTS):
            continue
        runs = " ".join(str(script[key]) for key in ("command", "scriptPath") if script.get(key))
        try:
            context = SecurityContext.model_validate(document.get("securityContext") or {})
        except ValidationError:
            yield _Script(tool, runs, None, ["what cannot be read: see `tavern plugins check`"])
        else:
            yield _Script(tool, runs, context, _in_words(context), settings_of=str(script.get("settingsOf") or ""))


def _document(file: Path) -> dict[str, Any]:
    """Return the document of a tool file; an empty one where it cannot be read."""
    with suppress(TavernError):
        data = read_document_bytes(file)
        if len(data) <= MAX_TOOL_FILE:
            return read_document(data)
    return {}


def _in_words(context: SecurityContext) -> list[str]:
    parts = (
        ("read", context.file_access.allow_read),
        ("keep", context.file_access.allow_write),
        ("reach", context.network_access.allow_hosts),
        ("require", context.required_capabilities),
    )
    return [f"{verb} {', '.join(what)}" for verb, what in parts if what]
