"""Every file of every kind, given to every command that takes a file: one takes it, all others say what it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from io import StringIO
from pathlib import Path

import pytest
from helpers.repetition import Failures

from tavern_host import Host
from tavern_host.cli.arguments import parse
from tavern_host.contracts.errors import TavernError
from tests.importers.foreign_files import KNOWN
from tests.importers.imports_bench import Imports

COMMANDS = {
    "character import": {"character", "character-picture", "character-archive"},
    "character import-chat": {"chat"},
    "character preset": {"preset"},
    "kb import": {"character", "character-picture", "character-archive", "lorebook", "text"},
    "history import": {"conversation"},
    "workflow check": {"workflow"},
    "workflow save": {"workflow"},
    "workflow show": {"workflow"},
    "workflow run": {"workflow"},
    "tools check --path": set[str](),
}
"""The commands that take a file of other programs, and the kinds of those that each takes; `import` takes all."""
ELSEWHERE = {"functions", "vcp", "project-folder"}
"""Kinds that are imported by real/test_imported_programs.py and test_whole_projects.py: they run programs, or are
folders."""


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    for name, (_, content) in KNOWN.items():
        (tmp_path / name).write_bytes(content)
    async with Host(tmp_path / "project") as made:
        yield made


async def said_of(host: Host, *words: str) -> str:
    """Run a command as the terminal does; return why it was not done."""
    known = host.registrations.commands
    invocation = await asyncio.to_thread(parse, [one.info for one in known.values()], words, StringIO())
    assert invocation is not None
    try:
        outputs = [one async for one in known[invocation.command.name].call(invocation.arguments)]
    except TavernError as error:
        return error.message
    return " ".join(one.text for one in outputs if one.kind == "failure")


async def test_each_file_is_known_for_what_it_is(host: Host) -> None:
    imports = Imports(host)
    assert len(KNOWN) >= 40
    assert {kind for kind, _ in KNOWN.values()} == {one.name for one in await imports.manager.kinds()}
    with Failures() as failures:
        for name, (kind, content) in KNOWN.items():
            with failures.row(name):
                assert await imports.kind_of(name, content) == kind


@pytest.mark.parametrize("command", COMMANDS)
async def test_a_command_names_each_file_that_is_not_for_it(host: Host, tmp_path: Path, command: str) -> None:
    await said_of(host, "character", "import", str(tmp_path / "card of version 1.json"), "--id", "of-the-chats")
    titles = {one.name: one.title for one in await Imports(host).manager.kinds()}
    with Failures() as failures:
        for name, (kind, _) in KNOWN.items():
            with failures.row(name):
                said = await said_of(host, *command.split(), str(tmp_path / name))
                if kind in COMMANDS[command]:
                    assert said == ""
                else:
                    assert f"but of the kind “{titles[kind]}”: `tavern import {name}` takes it" in said


async def test_the_command_that_is_named_takes_each_file(host: Host, tmp_path: Path) -> None:
    with Failures() as failures:
        for name, (kind, _) in KNOWN.items():
            if kind in ELSEWHERE:
                continue
            with failures.row(name):
                more = ["--name", "Ada"] if kind == "personas" else []
                said = await said_of(host, "import", str(tmp_path / name), *more)
                assert said == "", said
