"""Of a folder in a project, only code that was reviewed is run, whenever it is imported."""

from __future__ import annotations

import py_compile
from pathlib import Path
from typing import Any

import pytest
from helpers.folder_plugins import write_plugin
from helpers.repetition import Failures

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


def state(project: Path) -> PluginState:
    """Return the state of the plugin in a host that starts now."""
    host = Host(project)
    host.link()
    return host.plugin("acme").state


async def granted(project: Path) -> None:
    """Let the operator grant what is in the folder now."""
    host = Host(project)
    host.link()
    await host.grant("acme")


async def words(host: Host) -> Any:
    """Send the request and return what is answered, or the error that it ends with."""
    found, _, _ = host.registrations.find("GET", "/api/x/acme/words")
    if found is None:
        return None
    try:
        return (await found.call(HttpRequest(method="GET", path="/api/x/acme/words", call=host.call()))).data
    except (TavernError, ImportError) as error:
        return error


LATER = """
from tavern_host import HttpResponse

async def words(request, context):
    from .later import WORDS
    return HttpResponse(data=WORDS)
"""


@pytest.mark.parametrize(("web", "file"), [(WEB % "as reviewed", "web.py"), (LATER, "later.py")])
async def test_later_imports_are_of_reviewed_code(project: Path, web: str, file: str) -> None:
    folder = acme(project, web)
    async with Host(project) as host:
        await host.grant("acme")
        (folder / file).write_text(WEB % "changed since")
        assert f"{file} was changed after it was reviewed" in str(await words(host))
    assert state(project) is PluginState.NEEDS_REVIEW


async def test_code_changed_before_its_import_is_refused(project: Path) -> None:
    folder = acme(project)
    without_code = {"nodes/notes.txt": ""}
    other = write_plugin(project / "plugins" / "other", without_code, nodes={"entry": "./nodes"})
    await granted(project)
    host = Host(project)
    host.link()
    assert [host.plugin(name).state for name in ("acme", "other")] == [PluginState.DISCOVERED] * 2
    for file in (folder / "__init__.py", other / "nodes" / "__init__.py"):
        file.write_text(ROUTES + "\nraise AssertionError('nobody saw this')\n")
    async with host:
        for name in ("acme", "other"):
            assert host.plugin(name).state in (PluginState.FAILED, PluginState.NEEDS_REVIEW)
            assert "nobody saw this" not in str(host.plugin(name).problems)


async def test_whatever_lies_beside_bytecode_is_reviewed(project: Path) -> None:
    folder = acme(project)
    kept = folder / "__pycache__"
    kept.mkdir()
    names = ("more.py", "data.json", "gone.cpython-311.pyc", "deep/web.cpython-311.pyc", "web.pyc", "web.txt")
    for name in names:
        (kept / name).parent.mkdir(exist_ok=True)
        (kept / name).write_text("as reviewed")
    py_compile.compile(str(folder / "web.py"))
    await granted(project)
    with Failures() as failures:
        for name in names:
            with failures.row(name):
                (kept / name).write_text("changed since")
                assert state(project) is PluginState.NEEDS_REVIEW
                (kept / name).write_text("as reviewed")
                assert state(project) is PluginState.DISCOVERED


async def test_bytecode_of_a_reviewed_source_is_no_change(project: Path) -> None:
    folder = acme(project)
    await granted(project)
    for level in (0, 2):
        py_compile.compile(str(folder / "web.py"), optimize=level)
    assert len(list((folder / "__pycache__").iterdir())) == 2
    assert state(project) is PluginState.DISCOVERED


async def test_bytecode_is_not_run_for_its_source(project: Path) -> None:
    folder = acme(project, WEB % "unseen")
    py_compile.compile(str(folder / "web.py"), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    (folder / "web.py").write_text(WEB % "as reviewed")
    await granted(project)
    async with Host(project) as host:
        assert await words(host) == "as reviewed"


@pytest.mark.parametrize("trusted", [False, True])
async def test_no_module_among_bytecode_is_imported(project: Path, trusted: bool) -> None:
    folder = acme(project, HIDDEN)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "more.py").write_text("WORDS = 'hidden'")
    if not trusted:
        await granted(project)
    async with Host(project, trust=["acme"] if trusted else []) as host:
        assert "__pycache__ is for what Python keeps there" in str(await words(host))


def test_no_entry_of_a_manifest_lies_among_bytecode(project: Path) -> None:
    entries = {
        "nodes": {"nodes": {"entry": "./__pycache__/nodes"}},
        "tools": {"tools": {"entry": "a/__pycache__/tools"}},
        "front end": {"frontend": {"vanilla": {"entry": "a.js", "rootDir": "__pycache__"}}},
    }
    with Failures() as failures:
        for what, entry in entries.items():
            with failures.row(what):
                write_plugin(project / "plugins" / "acme", {}, **entry)
                host = Host(project)
                host.link()
                assert "must not lead through __pycache__" in str(host.plugin("acme").problems)
