"""What a failing plugin leaves in its record, in the log and in `sys.modules`; `tests/broken` has all ways to fail."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path

import pytest
from helpers.repetition import Failures
from plugin_maker import context_of, contextual, host_with, make_plugin, messages_of, module_of, problems_of, write

from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.http import HttpRequest
from tavern_host.contracts.plugins import PluginState
from tavern_host.server.plugin_routes import call_route

HEAD = "from tavern_host import RouteInfo, hookimpl\nimport asyncio, functools, sys\n"
CHAINED = """\
import json

def read():
    try:
        return json.loads("nonsense")
    except ValueError as error:
        raise RuntimeError("no settings") from error

read()
"""


async def test_import_errors_are_reported_where_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, logger="tavern")  # a test runner may not be able to pass this text on
    monkeypatch.syspath_prepend(tmp_path / "library")
    write(tmp_path / "library" / "damaged_library.py", "this is no python\n")
    rows = {
        "damaged": ("\nimport damaged_library\n", "SyntaxError: invalid syntax (damaged_library.py, line 1)", 2),
        "chained": (CHAINED, "RuntimeError: no settings", 7),
        "unprintable": ("raise RuntimeError('\\udc80 \\x00 \\U0001f600')", "RuntimeError: ", 1),
    }
    folders = [make_plugin(tmp_path, name, code) for name, (code, _, _) in rows.items()]
    async with host_with(tmp_path / "p", *folders) as host:
        for folder, (_, told, line) in zip(folders, rows.values(), strict=True):
            (problem,) = host.plugin(folder.name).problems
            assert problem.message.startswith(f"loading: {told}")
            assert (problem.file, problem.line) == (str(folder / "__init__.py"), line)
        json.dumps([p.to_json() for p in host.plugins()], allow_nan=False)


async def test_a_failed_import_leaves_no_module_behind(tmp_path: Path) -> None:
    folder = make_plugin(tmp_path, "acme", "from . import part\nraise RuntimeError\n")
    write(folder / "part.py", "value = 1\n")
    async with host_with(tmp_path / "p", folder, trust=[]) as host:
        await host.grant("acme")
        assert host.plugin("acme").state is PluginState.FAILED
        assert not [name for name in list(sys.modules) if name.startswith("tavern_plugins.acme")]
        write(folder / "part.py", "value = 2\n")
        write(folder / "__init__.py", "from . import part\n")
        await host.grant("acme")  # reviews what is there now
        await host.grant("acme")
        assert host.plugin("acme").state is PluginState.STARTED
        assert module_of().part.value == 2


# --- at startup and shutdown -------------------------------------------------------------------------

LIVES = {
    "decorated": """
RAN = []

def plain(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return function(*args, **kwargs)
    return inner

@hookimpl
@plain
async def tavern_startup(context):
    await asyncio.sleep(0)
    RAN.append(context.plugin)
""",
    "spawning": """
RAN = asyncio.Event()

async def work():
    RAN.set()
    await asyncio.sleep(3600)

@hookimpl
def tavern_startup(context):
    context.tasks.spawn(work(), name="work")
""",
    "never-started": """
@hookimpl
def tavern_startup(context):
    raise RuntimeError

@hookimpl
def tavern_shutdown(context):
    (context.project.root / "shut").touch()
""",
}


async def test_startups_of_every_kind_are_carried_out(tmp_path: Path) -> None:
    hooked = ["tavern_startup", "tavern_shutdown"]
    folders = [make_plugin(tmp_path, name, HEAD + code, hooked=hooked) for name, code in LIVES.items()]
    async with asyncio.timeout(100), host_with(tmp_path / "p", *folders) as host:
        assert [host.plugin(name).state.value for name in LIVES] == ["started", "started", "failed"]
        assert (problems_of(host, "decorated"), module_of("decorated").RAN) == ([], ["decorated"])
        await module_of("spawning").RAN.wait()
        assert host.plugin("spawning").contributions["task"] == ["work"]
    assert not (host.project.root / "shut").exists(), "what never started is not shut down"


# --- handlers ----------------------------------------------------------------------------------------


WEBS = [
    ("async def answer(request, context): sys.exit(2)", "tried to end the program"),
    ("def answer(request, context): sys.exit(2)", "tried to end the program"),
    ("async def answer(request, context): raise KeyboardInterrupt", "tried to end the program"),
    ("answer = sys.exit(2)", "importing tavern_plugins.acme.web3 of acme tried to end the program"),
    ("import not_there as answer", "acme failed in GET /api/x/acme/4; the log says why"),
    ("from os import *", "there is no handler 'tavern_plugins.acme.web5:answer'"),
    ("answer = 5", "the handler 'tavern_plugins.acme.web6:answer' is not callable"),
]
ROUTES = """
@hookimpl
def tavern_register_routes():
    return [RouteInfo(method="GET", path=f"/api/x/acme/{n}", handler=f"{__name__}.web{n}:answer") for n in range(7)]
"""


async def test_a_broken_handler_fails_its_request_alone(tmp_path: Path) -> None:
    folder = make_plugin(tmp_path, "acme", HEAD + ROUTES, hooked=["tavern_register_routes"])
    for number, (web, _) in enumerate(WEBS):
        write(folder / f"web{number}.py", f"import sys\n{web}\n")
    async with host_with(tmp_path / "p", folder) as host:
        with Failures() as failures:
            for number, (web, complaint) in enumerate(WEBS):
                path = f"/api/x/acme/{number}"
                found, _, _ = host.registrations.find("GET", path)
                with failures.row(web), pytest.raises(TavernError, match=complaint):
                    await call_route(host, found, HttpRequest(method="GET", path=path, call=host.call()))
        assert {p.state for p in host.plugins()} == {PluginState.STARTED}


async def test_endless_failures_do_not_fill_the_record(tmp_path: Path) -> None:
    async def fail(number: int) -> None:
        raise RuntimeError(str(number))

    async with host_with(tmp_path / "p", contextual(tmp_path)) as host:
        for number in range(50):
            await asyncio.wait([context_of().tasks.spawn(fail(number), name="sweep")])
        await asyncio.sleep(0)
        problems = messages_of(host)
        assert len(problems) == 20
        assert problems[-1].endswith("RuntimeError: 49")
