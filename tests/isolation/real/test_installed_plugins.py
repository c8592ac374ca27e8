"""A plugin that was installed with what it requires runs in a process of its own with exactly that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from helpers.command_line import tavern
from helpers.wheel_maker import acme, wheel

from tavern_host import Host, HttpRequest, HttpResponse
from tavern_host.contracts.plugins import PluginState
from tavern_host.server.plugin_routes import call_route
from tests.real.packages.test_packages import imports_forgotten


@pytest.fixture
async def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    """A project for which a plugin and its dependency are installed in a folder of their own."""
    for name in ("CONFIG", "STATE", "DATA"):
        monkeypatch.setenv(f"TAVERN_{name}_DIR", str(tmp_path / name.lower()))
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    monkeypatch.setenv("UV_FIND_LINKS", str(links))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    wheel(links, "dep-a", "1.0", {"dep_a.py": "VERSION = 'dep 1.0'\n"})
    project = tmp_path / "project"
    with imports_forgotten():
        await asyncio.to_thread(tavern, "init", project, "--empty")
        options = ("--project", project, "plugins")
        for words in (("install", acme(links, "1.0.0"), "--outside-index", "--grant"), ("isolate", "acme")):
            done = await asyncio.to_thread(tavern, *options, *words)
            assert done.code == 0, done.err
        yield project


async def test_an_installed_plugin_has_what_it_was_installed_with(installed: Path) -> None:
    async with Host(installed) as host:
        plugin = host.plugin("acme")
        assert plugin.state is PluginState.STARTED and plugin.placement == "process", plugin.problems
        route, _, _ = host.registrations.find("GET", "/api/x/acme/about")
        answer = await call_route(host, route, HttpRequest(method="GET", path="/", call=host.call()))
        assert isinstance(answer, HttpResponse) and answer.body is not None
        assert b"dep 1.0" in answer.body and plugin.process is not None and "bubblewrap" in plugin.process.sandbox


async def test_a_mistake_in_an_installed_plugin_is_named_with_its_file_on_this_machine(
    installed: Path, tmp_path: Path
) -> None:
    (file,) = (tmp_path / "state" / "packages").glob("acme/*/acme/__init__.py")
    file.write_text(file.read_text() + "\ndef x(:\n")
    async with Host(installed) as host:
        (problem,) = host.plugin("acme").problems
        assert (problem.file, problem.column) == (str(file), 7) and "in `def x(:`" in problem.message
