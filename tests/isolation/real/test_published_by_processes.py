"""Plugins in processes of their own that publish services and hooks, and others that build on them."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.plugin_files import write, write_whole

from tavern_host import EXECUTION_ENGINE, Host
from tavern_host.contracts.errors import Vetoed
from tavern_host.contracts.executions import RunRequest
from tavern_host.contracts.plugins import PluginState
from tavern_host.contracts.workflows import Workflow
from tavern_host.projects import Folders

CONTRACTS = """
from __future__ import annotations
from typing import Annotated
from collections.abc import AsyncIterator
from pydantic import Field
from tavern_host import CallContext, PluginContext, ServiceInterface, Veto, acts, hookspec, reads
from tavern_host.contracts.wire import Model

class Book(Model):
    title: Annotated[str, Field(min_length=1)]
    page_count: int = 1
    sequel: Book | None = None

class Shelf(ServiceInterface, name="lib.shelf"):
    @reads
    async def find(self, words: str) -> list[Book]:
        '''Return what has these words.'''

    @reads
    def walk(self, most: int = 10) -> AsyncIterator[Book]:
        '''Walk along.'''

    @acts("lib.shelf:write", "Put books on the shelf.")
    async def add(self, book: Book, *, call: CallContext | None = None) -> Book:
        '''Add a book.'''

@hookspec(permission="hook:plugin:lib:before-add", level="intercept", policy="filter", description="Change a book.")
def lib_before_add(book: Book, call: CallContext | None, context: PluginContext) -> Book | Veto | None:
    '''Return another book.'''

@hookspec(permission="hook:plugin:lib:books", level="add", policy="collect", description="Bring books.")
def lib_books(context: PluginContext) -> list[Book]:
    '''Return books.'''

@hookspec(permission="hook:plugin:lib:best", level="add", policy="first", description="Name the best.")
def lib_best(among: list[str], context: PluginContext) -> str | None:
    '''Return one.'''
"""
LIB = """
import os
from tavern_host import hookimpl, service_info, ServiceKey
from .contracts import Book, Shelf

class OnShelf:
    def __init__(self, context):
        self.context = context
        self.books = []

    async def find(self, words):
        hooks, said = self.context.hooks, []
        if words == "hooks":
            for answer in await hooks.collect("lib_books"):
                said += [f"{answer.plugin}: {one.title}" for one in answer.value]
            best = await hooks.first("lib_best", among=["a", "b"])
            said += [best.value, *await best.call(best.value, {"n": 1})]
            try:
                await best.call("tavern_plugins.loud:os.system", "true")
            except Exception as error:
                said.append(str(error))
            try:
                await hooks.collect("tavern_before_execute")
            except Exception as error:
                said.append(str(error))
            owners = {"a": "lib"}
            assert [hooks.claim(owners, "book", one, "lib") for one in "ab"] == [False, True]
            known = [hooks.implemented(one) for one in ("lib_books", "lib_best", "tavern_shutdown")]
            return [Book(title=one) for one in [*said, f"{known} {hooks.revision > 0}"]]
        return [book for book in self.books if words in book.title]

    async def walk(self, most=10):
        for book in self.books[:most]:
            yield book

    async def add(self, book, *, call=None):
        book = await self.context.hooks.filter("lib_before_add", book, call=call)
        self.books.append(book)
        return book

@hookimpl
def lib_books():
    return [Book(title="its own")]

@hookimpl
def tavern_register_services():
    return [service_info(ServiceKey(Shelf), OnShelf)]
"""
LOUD = """
import os
from tavern_host import *

@hookimpl
async def lib_before_add(book, call):
    assert type(book).__module__.endswith("contracts"), "it has the names of the publisher"
    if "noise" in book.title:
        return Veto(reason="no noise")
    return book.model_copy(update={"title": book.title.upper()})

@hookimpl
async def tavern_before_execute(request, call, context):
    names = {"call": call, "context": context}
    exec(request.metadata["do"], globals(), names)
    return request.model_copy(update={"metadata": {"result": await names["do"](), "pid": os.getpid()}})

@hookimpl
def lib_best(among):
    return f"{__name__}:{among[-1]}"

async def b(arguments, context):
    return [context.plugin, str(arguments)]
"""
PERMISSION = {"name": "lib.shelf:write", "level": "intercept", "allows": "Put books on the shelf."}


def hook(name: str, level: str, allows: str) -> dict[str, str]:
    permission = f"hook:plugin:lib:{name.replace('_', '-')}"
    return {"spec": f"contracts:lib_{name}", "permission": permission, "level": level, "allows": allows}


PUBLISHES = {
    "services": [{"name": "lib.shelf", "interface": "contracts:Shelf", "permissions": [PERMISSION]}],
    "hooks": [
        hook("before_add", "intercept", "Change a book."),
        hook("books", "add", "Bring books."),
        hook("best", "add", "Name the best."),
    ],
}
OWN = {"hooks": ["hook:plugin:lib:books"]}
USES = {
    "hooks": ["hook:plugin:lib:before-add", "hook:plugin:lib:best", "hook:server:workflow:before-execute"],
    "services": {"use": ["lib.shelf:write"], "override": ["lib.shelf"]},
}


async def done(host: Host, code: str) -> Any:
    code = "async def do(context=context, call=call):\n" + textwrap.indent(textwrap.dedent(code), "    ")
    asked = RunRequest(workflow=Workflow(name="w"), metadata={"do": code})
    return (await host.services.get(EXECUTION_ENGINE).run(asked)).metadata["result"]


Make = Callable[..., Host]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return what makes a host with both plugins, those `here` in its own process, the others in plain ones."""

    def made(*here: str) -> Host:
        plugins, operator = tmp_path / "project" / "plugins", tmp_path / "operator"
        files = {"__init__.py": LIB, "contracts.py": CONTRACTS}
        hooked = ["tavern_register_services"]
        write_whole(plugins / "lib", "lib", files, hooked, publishes=PUBLISHES, permissions=OWN)
        write_whole(plugins / "loud", "loud", LOUD, permissions=USES, requires={"plugins": {"lib": ">=1"}})
        placement = {name: "process-without-sandbox" for name in ("lib", "loud") if name not in here}
        write(operator / "host.yaml", json.dumps({"placement": placement}))
        folders = Folders(operator, tmp_path / "state", tmp_path / "data")
        return Host(tmp_path / "project", create=True, trust=["lib", "loud"], folders=folders)

    return made


def all_started(host: Host) -> bool:
    found = {one: host.plugin(one) for one in ("lib", "loud")}
    assert {one.state for one in found.values()} == {PluginState.STARTED}, [one.problems for one in found.values()]
    return True


PLACES = [(), ("loud",), ("lib",)]


@pytest.mark.parametrize("here", PLACES, ids=["both apart", "the publisher apart", "the user apart"])
async def test_services_and_hooks_of_a_plugin_are_used_and_implemented_by_another(
    make: Make, here: tuple[str, ...]
) -> None:
    async with make(*here) as host:
        assert all_started(host)
        said = await done(
            host,
            """
            shelf = context.services.get("lib.shelf")
            book = {"title": "moby", "pageCount": 3, "sequel": {"title": "x"}}
            added = await context.services.invoke("lib.shelf", "add", {"book": book}, call=call)
            (found,) = await shelf.find("MOBY")
            again = await shelf.add(found.model_copy(update={"title": "dick"}), call=call)
            walked = [one.title async for one in shelf.walk()]
            method = context.services.method("lib.shelf", "find")
            return [added, again.title, walked, [*method.parameters], type(found).__name__]
            """,
        )
        added = {"title": "MOBY", "pageCount": 3, "sequel": {"title": "x", "pageCount": 1, "sequel": None}}
        assert said == [added, "DICK", ["MOBY", "DICK"], ["words"], "Book"]
        with pytest.raises(Vetoed, match="loud refused: no noise"):
            await done(
                host, "await context.services.invoke('lib.shelf', 'add', {'book': {'title': 'noise'}}, call=call)"
            )
        with pytest.raises(Vetoed, match="book.title: .*at least 1 character"):
            await done(host, "await context.services.invoke('lib.shelf', 'add', {'book': {'title': ''}}, call=call)")
        find = "return [one.title for one in await context.services.get('lib.shelf').find('hooks')]"
        told = await done(host, find)
        assert ("does not name 'tavern_plugins.loud:os.system'" in told.pop(4)) is ("lib" not in here)
        assert told == [
            *("lib: its own", "tavern_plugins.loud:b", "loud", "{'n': 1}"),
            "lib may not call tavern_before_execute: only the provider of executionEngine may",
            "[True, True, True] True",
        ]
        (problem,) = host.plugin("lib").problems
        assert problem.message == "the book 'a' is registered twice; the first is used"


async def test_another_version_of_an_interface_reaches_those_who_use_it(make: Make, tmp_path: Path) -> None:
    async with make() as host:
        assert all_started(host)
        assert await done(host, "return [one.title async for one in context.services.get('lib.shelf').walk()]") == []
        folder = tmp_path / "project" / "plugins" / "lib"
        size = "@reads\n    async def size(self) -> int:\n        '''Return a size.'''\n\n    @reads\n    def walk("
        write(folder / "contracts.py", CONTRACTS.replace("@reads\n    def walk(", size))
        write(
            folder / "__init__.py",
            LIB.replace("async def walk", "async def size(self): return 7\n\n    async def walk"),
        )
        await host.reload("lib")
        assert all_started(host)
        assert await done(host, "return await context.services.get('lib.shelf').size()") == 7


BROKEN = [
    ("(self, words: str)", "(self, words)", "the published service lib.shelf: find: words has no annotation"),
    ("words: str)", "words: set[str])", r"service lib.shelf: find: words: set\[str\] is not a wire type"),
    ("Put books on", "Take all from", "the permission lib.shelf:write is not the same in code and manifest"),
    (
        "lib_before_add(book: Book",
        "lib_before_ad(book: Book",
        "the published hook lib_before_add: .*no handler",
    ),
    ('policy="filter"', 'policy="veto", caller="toolManager"', "a published hook is called by its own plugin"),
]


async def test_what_breaks_the_rules_is_not_admitted(make: Make, tmp_path: Path) -> None:
    async with make() as host:
        for find, instead, told in BROKEN:
            write(tmp_path / "project" / "plugins" / "lib" / "contracts.py", CONTRACTS.replace(find, instead))
            await host.reload("lib")
            messages = [problem.message for problem in host.plugin("lib").problems]
            assert any(re.search(told, message) for message in messages), (told, messages)
