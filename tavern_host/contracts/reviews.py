"""What an operator reads before granting a plugin, besides its permissions: the notes of other plugins on it."""

from __future__ import annotations

from typing import get_args

from pydantic import Field, JsonValue

from tavern_host.contracts.commands import CommandOutput
from tavern_host.contracts.languages import say
from tavern_host.contracts.plugins import PermissionInfo, PluginInfo
from tavern_host.contracts.services import Level
from tavern_host.contracts.wire import Model


class ReviewedPlugin(Model):
    """A plugin under review, which is not imported for it: its name, and by field of its manifest the absolute paths of
    the folders of files that it has. With `judged`, a note says too what the policy of this host would refuse. `root`
    is the folder of the code of one that is to run in a process of its own."""

    name: str
    root: str | None = None
    folders: dict[str, str] = Field(default_factory=dict)
    judged: bool = True


class ReviewNote(Model):
    """Something of a plugin that the operator should know: a table, and lines below it. As JSON it is `data`, under
    `key` beside the other fields of the plugin."""

    key: str
    title: str
    columns: list[str]
    rows: list[list[str]]
    lines: list[str] = Field(default_factory=list)
    data: JsonValue = None


def outputs_of(notes: list[ReviewNote]) -> list[CommandOutput]:
    """Return the outputs of a command that shows the notes of a review."""
    return [
        output
        for note in notes
        for output in (
            CommandOutput(kind="table", title=note.title, columns=note.columns, rows=note.rows),
            *(CommandOutput(kind="message", text=line) for line in note.lines),
        )
    ]


def permissions_of(plugin: PluginInfo) -> CommandOutput:
    """Return the table of the permissions that a plugin asks for."""
    return asked_for(plugin.name, plugin.permissions)


def asked_for(plugin: str, permissions: list[PermissionInfo]) -> CommandOutput:
    """Return the table of permissions that a plugin asks for, that which reaches furthest first."""
    ordered = sorted(permissions, key=lambda one: -get_args(Level).index(one.level))
    rows = [[say(p.level), p.name, say(p.description), say("yes" if p.granted else "NO")] for p in ordered]
    return CommandOutput(
        kind="table",
        title=say(f"{plugin} asks for" if rows else f"{plugin} asks for nothing"),
        columns=["level", "permission", "what it lets it do", "granted"],
        rows=rows,
    )
