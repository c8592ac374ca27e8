"""Outputs that code gave are used again while it is the same code: each load in a host has a name of its own, and in
another host the version decides, of a folder plugin what is in the folder too."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lifecycle_maker import installed, nodes, plugin, run

from tavern_host import Host

SAYS = """
@node()
async def says(text: str) -> str:
    return f"{text}, WORD"
"""
Write = Callable[[str], Path]


@pytest.fixture(params=["folder", "installed"])
def write_acme(request: pytest.FixtureRequest, project: Path, site: Path) -> Write:
    """Return the function that writes the plugin; its node says a word. The version stays the same."""

    def write(word: str) -> Path:
        files = nodes(SAYS.replace("WORD", word))
        if request.param == "folder":
            return plugin(project / "plugins", "acme", files, nodes={"entry": "nodes"})
        return installed(site, "acme", files, nodes={"entry": "nodes"})

    return write


async def code_of(project: Path) -> str:
    """Return the name of the plugin's code in a new host."""
    async with Host(project, trust=["acme"]) as host:
        return host._manager.active["acme"].in_flight.code


async def test_each_load_has_its_own_name_and_outputs(project: Path, write_acme: Write) -> None:
    write_acme("one")
    names = [await code_of(project), await code_of(project)]
    async with Host(project, trust=["acme"]) as host:
        runs = []
        for change in (lambda: None, lambda: None, lambda: host.disable("acme"), lambda: write_acme("two")):
            if asyncio.iscoroutine(changing := change()):
                await changing
                await host.enable("acme")
            elif changing is not None:
                await host.reload("acme")
            runs.append(await run(host, "acme:Says"))
            names.append(host._manager.active["acme"].in_flight.code)
    assert [each.nodes["n0"].cached for each in runs] == [False, True, False, False]
    assert [each.outputs["text"] for each in runs] == [*["made, one"] * 3, "made, two"]
    assert len({*names[:4]}) == 1, "a name persists across hosts"
    assert len({*names}) == 3


async def test_reloads_in_different_hosts_have_different_names(project: Path, site: Path) -> None:
    names = []
    for words in (("one", "two"), ("three", "four")):
        installed(site, "acme", nodes(SAYS.replace("WORD", words[0])), nodes={"entry": "nodes"})
        async with Host(project, trust=["acme"]) as host:
            installed(site, "acme", nodes(SAYS.replace("WORD", words[1])), nodes={"entry": "nodes"})
            await host.reload("acme")
            names.append(host._manager.active["acme"].in_flight.code)
    assert names[0] != names[1]


async def test_the_files_decide_a_folders_code_name(project: Path, site: Path) -> None:
    names = []
    for word in ("one", "two", "one"):
        plugin(project / "plugins", "acme", nodes(SAYS.replace("WORD", word)), nodes={"entry": "nodes"})
        names.append(await code_of(project))
    assert names[0] == names[2] != names[1]


async def test_the_version_decides_a_packages_code_name(project: Path, site: Path) -> None:
    names = []
    for version in ("1.0.0", "1.0.1"):
        installed(site, "acme", nodes(SAYS), nodes={"entry": "nodes"}, version=version)
        names.append(await code_of(project))
    assert names == ["1.0.0", "1.0.1"]


class Importing(str):
    """The name of a module; whenever it is compared, another module is imported, as another thread may do."""

    def startswith(self, *arguments: Any) -> bool:
        sys.modules[f"meanwhile_{len(sys.modules)}"] = sys
        return super().startswith(*arguments)


async def test_plugins_load_while_others_import(project: Path, write_acme: Write) -> None:
    write_acme("one")
    sys.modules[Importing("meanwhile")] = sys
    try:
        async with Host(project, trust=["acme"]) as host:
            assert host.plugin("acme").problems == []
    finally:
        made = [name for name in sys.modules.copy() if name.startswith("meanwhile")]
        for name in made:
            sys.modules.pop(name, None)
    assert len(made) > 1
