"""Each command shows what a person can copy, and its own parser takes that."""

from __future__ import annotations

import io
import shlex
from pathlib import Path

import click
from helpers.command_line import tavern
from helpers.repetition import Failures

from tavern_host import Host
from tavern_host.cli.arguments import parse
from tavern_host.cli.descriptors import host_commands


async def test_examples_are_there_and_can_be_typed(tmp_path: Path) -> None:
    host = Host(tmp_path / "p", third_party=False)
    try:
        await host.load()
        commands = [*host_commands().values(), *(one.info for one in host.registrations.commands.values())]
    finally:
        await host.stop()
    with Failures() as failures:
        for info in commands:
            with failures.row(info.name):
                needs = any(parameter.required for parameter in info.parameters)
                assert info.examples or not needs, "it has an argument that must be given, and no example"
                assert len(info.examples) <= 3
                for line in info.examples:
                    word, *words = shlex.split(line)
                    try:
                        found = parse(commands, words, io.StringIO())
                    except click.ClickException as error:
                        raise AssertionError(f"{line}: {error.format_message()}") from None
                    assert (word, found and found.command.name) == ("tavern", info.name)


def test_examples_stand_at_the_end_of_the_help_as_they_are_typed() -> None:
    page = tavern("plugins", "new", "--help").out
    lines = ("Examples:", "  tavern plugins new my-plugin", "  tavern plugins new my-plugin --node --tool --ui vue")
    assert page.rstrip().endswith("\n".join(f"  {line}" for line in lines))
    assert "示例：" in tavern("init", "--help", LC_ALL="zh_CN.UTF-8").out
