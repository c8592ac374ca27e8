"""What a failing plugin leaves in its record, in the log and in `sys.modules`; `tests/broken` has all ways to fail."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path

import pytest
from plugin_maker import context_of, contextual, host_with, make_plugin, messages_of, module_of, problems_of, write

from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.http import HttpRequest
from tavern_host.contracts.plugins import PluginState
from tavern_host.server.plugin_routes import call_route

LIFE = ["tavern_startup", "tavern_shutdown"]
HEAD = "from tavern_host import hookimpl\nimport asyncio, sys, threading\n"


# --- at import ---------------------------------------------------------------------------------------


async def test_a_damaged_library_is_reported_at_its_import(tmp_path: Path) -> None:
    other = tmp_path / "library"
    write(other / "damaged_library.py", "this is no python\n")
    folder = make_plugin(tmp_path, "acme", f"\nimport sys\nsys.path.append({str(other)!r})\nimport damaged_library\n")
    try:
        async with host_with(tmp_path / "p", folder) as host:
            (problem,) = host.plugin("acme").problems
            assert problem.message.startswith("loading: SyntaxError: invalid syntax (damaged_library.py, line 1)")
            assert (problem.file, problem.line) == (str(folder / "__init__.py"), 4)
    finally:
        sys.path.remove(str(other))


async def test_a_chained_error_is_reported_where_raised(tmp_path: Path) -> None:
    code = """\
import json

def read():
    try:
        return json.loads("nonsense")
    except ValueError as error:
        raise RuntimeError("no settings") from error

read()
"""
    folder = make_plugin(tmp_path, "acme", code)
    async with host_with(tmp_path / "p", folder) as host:
        (problem,) = host.plugin("acme").problems
        assert (problem.message, problem.line) == ("loading: RuntimeError: no settings", 7)


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


# --- at startup --------------------------------------------------------------------------------------


async def test_a_decorated_async_startup_is_awaited(tmp_path: Path) -> None:
    code = (
        HEAD
        + """
import functools
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
"""
    )
    async with host_with(tmp_path / "p", make_plugin(tmp_path, "acme", code, hooked=LIFE)) as host:
        assert host.plugin("acme").state is PluginState.STARTED
        assert module_of().RAN == ["acme"]


async def test_plain_startups_may_spawn_tasks(tmp_path: Path) -> None:
    code = (
        HEAD
        + """
RAN = asyncio.Event()

async def work():
    RAN.set()
    await asyncio.sleep(3600)

@hookimpl
def tavern_startup(context):
    context.tasks.spawn(work(), name="work")
"""
    )
    folder = make_plugin(tmp_path, "acme", code, hooked=LIFE)
    async with asyncio.timeout(60), host_with(tmp_path / "p", folder) as host:
        assert problems_of(host) == []
        await module_of().RAN.wait()
        assert host.plugin("acme").contributions["task"] == ["work"]


# --- at shutdown -------------------------------------------------------------------------------------


async def test_shutdown_is_not_called_for_what_never_started(tmp_path: Path) -> None:
    code = (
        HEAD
        + """
@hookimpl
def tavern_startup(context):
    raise RuntimeError

@hookimpl
def tavern_shutdown(context):
    (context.project.root / "shut").touch()
"""
    )
    async with host_with(tmp_path / "p", make_plugin(tmp_path, "acme", code, hooked=LIFE)) as host:
        pass
    assert not (host.project.root / "shut").exists()


# --- handlers ----------------------------------------------------------------------------------------


WEBS = [
    ("async def answer(request, context): sys.exit(2)", "tried to end the program"),
    ("def answer(request, context): sys.exit(2)", "tried to end the program"),
    ("async def answer(request, context): raise KeyboardInterrupt", "tried to end the program"),
    ("sys.exit(2)", "importing tavern_plugins.acme.web3 of acme tried to end the program"),
    ("import not_there", "acme failed in GET /api/x/acme/4; the log says why"),
    ("", "there is no handler 'tavern_plugins.acme.web5:answer'"),
    ("answer = 5", "the handler 'tavern_plugins.acme.web6:answer' is not callable"),
]


async def test_a_broken_handler_fails_its_request_alone(tmp_path: Path) -> None:
    code = (
        HEAD
        + """
from tavern_host import RouteInfo

@hookimpl
def tavern_register_routes():
    return [RouteInfo(method="GET", path=f"/api/x/acme/{n}", handler=f"{__name__}.web{n}:answer") for n in range(7)]
"""
    )
    folder = make_plugin(tmp_path, "acme", code, hooked=["tavern_register_routes"])
    for number, (web, _) in enumerate(WEBS):
        write(folder / f"web{number}.py", f"import sys\n{web}\n")
    async with host_with(tmp_path / "p", folder) as host:
        for number, (_, complaint) in enumerate(WEBS):
            path = f"/api/x/acme/{number}"
            found = host.registrations.find("GET", path)[0]
            assert found is not None
            with pytest.raises(TavernError, match=complaint):
                await call_route(host, found, HttpRequest(method="GET", path=path, call=host.call()))
        assert {p.state for p in host.plugins()} == {PluginState.STARTED}


# --- tasks and the log -------------------------------------------------------------------------------


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


async def test_problems_of_a_plugin_are_always_json(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="tavern")  # a test runner may not be able to pass this text on
    folder = make_plugin(tmp_path, "acme", "raise RuntimeError('\\udc80 \\x00 \\U0001f600')")
    async with host_with(tmp_path / "p", folder) as host:
        json.dumps([p.to_json() for p in host.plugins()], allow_nan=False)
