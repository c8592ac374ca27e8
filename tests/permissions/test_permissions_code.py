"""Of a folder in a project, only code that was reviewed is run, whenever it is imported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.folder_plugins import write_plugin

from tavern_host import Host, HttpRequest
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.plugins import PluginState

ROUTES = """
from tavern_host import RouteInfo, hookimpl

@hookimpl
def tavern_register_routes():
    return [RouteInfo(method="GET", path="/api/x/acme/words", handler=f"{__name__}.web:words")]
"""
WEB = """
from tavern_host import HttpResponse

async def words(request, context):
    return HttpResponse(data=%r)
"""
HIDDEN = """
from tavern_host import HttpResponse
from .__pycache__ import more

async def words(request, context):
    return HttpResponse(data=more.WORDS)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return the folder of a project with nothing in it."""
    root = tmp_path / "project"
    (root / "plugins").mkdir(parents=True)
    (root / "tavern.yaml").write_text("name: here\n")
    return root


def acme(project: Path, web: str = WEB % "as reviewed") -> Path:
    """Write a plugin that imports the module `web` with its first request."""
    permissions = {"hooks": ["hook:server:routes:register"]}
    files = {"__init__.py": ROUTES, "web.py": web}
    return write_plugin(project / "plugins" / "acme", files, permissions=permissions)


async def words(host: Host) -> Any:
    """Send the request and return what is answered, or the error that it ends with."""
    found, _, _ = host.registrations.find("GET", "/api/x/acme/words")
    if found is None:
        return None
    try:
        return (await found.call(HttpRequest(method="GET", path="/api/x/acme/words", call=host.call()))).data
    except (TavernError, ImportError) as error:
        return error


async def test_a_module_that_is_imported_later_is_the_one_that_was_reviewed(project: Path) -> None:
    folder = acme(project)
    async with Host(project) as host:
        await host.grant("acme")
        (folder / "web.py").write_text(WEB % "changed since")
        answer = await words(host)
        assert isinstance(answer, Exception)
        assert "web.py was changed after it was reviewed" in str(answer)
    async with Host(project) as host:
        assert host.plugin("acme").state is PluginState.NEEDS_REVIEW


LATER = """
from tavern_host import HttpResponse

async def words(request, context):
    from .later import WORDS
    return HttpResponse(data=WORDS)
"""


async def test_a_module_that_was_not_there_at_the_review_is_not_imported(project: Path) -> None:
    folder = acme(project, LATER)
    async with Host(project) as host:
        await host.grant("acme")
        (folder / "later.py").write_text("WORDS = 'new'\n")
        assert "later.py was changed after it was reviewed" in str(await words(host))


async def test_no_code_is_imported_of_a_folder_that_had_none(project: Path) -> None:
    folder = write_plugin(project / "plugins" / "acme", {"nodes/notes.txt": ""}, nodes={"entry": "./nodes"})
    host = Host(project)
    host.link()
    assert host.plugin("acme").state is PluginState.DISCOVERED
    (folder / "nodes" / "__init__.py").write_text("raise AssertionError('nobody saw this')\n")
    async with host:
        assert host.plugin("acme").state in (PluginState.FAILED, PluginState.NEEDS_REVIEW)
        assert "nobody saw this" not in str(host.plugin("acme").problems)


async def test_what_is_changed_between_the_decision_and_the_import_is_not_imported(project: Path) -> None:
    folder = acme(project)
    before = Host(project)
    before.link()
    await before.grant("acme")
    host = Host(project)
    host.link()
    assert host.plugin("acme").state is PluginState.DISCOVERED
    (folder / "__init__.py").write_text(ROUTES + "\nraise AssertionError('nobody saw this')\n")
    async with host:
        assert host.plugin("acme").state in (PluginState.FAILED, PluginState.NEEDS_REVIEW)
        assert "nobody saw this" not in str(host.plugin("acme").problems)


async def test_code_in_a_folder_for_compiled_code_is_reviewed_like_any_other(project: Path) -> None:
    folder = acme(project, HIDDEN)
    more = folder / "__pycache__" / "more.py"
    more.parent.mkdir()
    more.write_text("WORDS = 'as reviewed'\n")
    async with Host(project) as host:
        await host.grant("acme")
    more.write_text("WORDS = 'changed since'\n")
    async with Host(project) as host:
        assert await words(host) != "changed since"


async def test_what_was_reviewed_runs(project: Path) -> None:
    acme(project)
    async with Host(project) as host:
        await host.grant("acme")
        assert await words(host) == "as reviewed"
