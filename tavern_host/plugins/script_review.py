"""What the script tools of a plugin run and ask for, read from its tool files for whoever reviews it (`spec/003` §5.4).

Runs nothing, and decides nothing: what is granted is up to the service that runs scripts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import Field, ValidationError

from tavern_host.contracts.calls import system_call
from tavern_host.contracts.commands import CommandOutput
from tavern_host.contracts.scripts import ScriptExecution, SecurityContext
from tavern_host.contracts.settings import Settings
from tavern_host.contracts.wire import Model
from tavern_host.plugins.manifest import Manifest
from tavern_host.plugins.tool_settings import script_tools


class ReviewedScript(Model):
    """A script tool in a review: what it runs and what it asks for, in words; `denied` is what it would not get of it
    by the operator's policy, each with the reason, None where nobody was asked."""

    tool: str
    runs: str
    asks: list[str] = Field(default_factory=list)
    denied: list[str] | None = None


class ScriptReview:
    """The script tools of one plugin."""

    def __init__(self, root: Path | None, manifest: Manifest | None) -> None:
        self._plugin = manifest.name if manifest is not None else ""
        self._requests: list[tuple[ReviewedScript, SecurityContext | None]] = []
        if root is not None and manifest is not None and manifest.tools is not None:
            self._requests = [*_requests(root / manifest.tools.entry)]

    @property
    def scripts(self) -> list[ReviewedScript]:
        """What the tools run and ask for."""
        return [script for script, _ in self._requests]

    async def by(self, scripts: ScriptExecution, settings: Settings) -> list[ReviewedScript]:
        """Return the same with what the policy of this host would not grant. Raises `TavernError`."""
        return [
            script if context is None else await self._judged(script, context, scripts, settings)
            for script, context in self._requests
        ]

    async def _judged(
        self, script: ReviewedScript, context: SecurityContext, scripts: ScriptExecution, settings: Settings
    ) -> ReviewedScript:
        values = await settings.of_tool(self._plugin, script.tool, call=system_call())
        config = {value.key.rpartition(".")[2]: value.value for value in values}
        return script.model_copy(update={"denied": await scripts.denied(context, config=config)})


def told_scripts(plugin: str, scripts: list[ReviewedScript]) -> list[CommandOutput]:
    """Return the table of a review that shows script tools; none where there are none."""
    if not scripts:
        return []
    columns, rows = ["tool", "runs in the sandbox", "asks to"], [[s.tool, s.runs, "; ".join(s.asks)] for s in scripts]
    lines = [f"{s.tool} asks for more than it gets: {'; '.join(s.denied)}" for s in scripts if s.denied]
    return [
        CommandOutput(kind="table", title=f"{plugin} has script tools", columns=columns, rows=rows),
        *(CommandOutput(kind="text", text=line) for line in lines),
    ]


def _requests(folder: Path) -> Iterator[tuple[ReviewedScript, SecurityContext | None]]:
    for tool, script, document in script_tools(folder):
        runs = " ".join(str(script[key]) for key in ("command", "scriptPath") if script.get(key))
        try:
            context = SecurityContext.model_validate(document.get("securityContext") or {})
        except ValidationError:
            yield ReviewedScript(tool=tool, runs=runs, asks=["what cannot be read: see `tavern plugins check`"]), None
            continue
        yield ReviewedScript(tool=tool, runs=runs, asks=_in_words(context)), context


def _in_words(context: SecurityContext) -> list[str]:
    parts = (
        ("read", context.file_access.allow_read),
        ("keep", context.file_access.allow_write),
        ("reach", context.network_access.allow_hosts),
        ("require", context.required_capabilities),
    )
    return [f"{verb} {', '.join(what)}" for verb, what in parts if what]
