"""A plugin that is broken in any way costs the host that plugin and nothing else, and says which file and line."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from plugin_maker import context_of, contextual, host_with, make_plugin, messages_of, module_of, problems_of, write

from tavern_host import LLM, PLUGINS, Host
from tavern_host.contracts.errors import TavernError
from tavern_host.contracts.http import HttpRequest
from tavern_host.contracts.plugins import AdmissionError, PluginState
from tavern_host.hooks import dispatch
from tavern_host.plugins import lifecycle
from tavern_host.server.plugin_routes import call_route

LIFE = ["tavern_startup", "tavern_shutdown"]
HEAD = "from tavern_host import hookimpl\nimport asyncio, sys, threading\n"


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Return what ends the waiting of plugins that hang, so that no thread outlives its test."""
    sys.release = threading.Event()  # type: ignore[attr-defined]  # where a plugin's module reaches it
    yield sys.release  # type: ignore[attr-defined]
    sys.release.set()  # type: ignore[attr-defined]
    del sys.release  # type: ignore[attr-defined]


async def the_rest_works(host: Host) -> None:
    """Fail where the host is not in order apart from the plugin `acme`."""
    others = [p for p in host.plugins() if p.name != "acme"]
    assert {p.state for p in others} == {PluginState.STARTED}
    assert await host.services.get(PLUGINS).get("tavern-engine")


# --- at import ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("raise RuntimeError('no luck')", "loading: RuntimeError: no luck"),
        ("1 / 0", "loading: ZeroDivisionError: division by zero"),
        ("import not_there", "loading: ModuleNotFoundError: No module named 'not_there'"),
        ("from . import not_there", "loading: ImportError: cannot import name 'not_there'"),
        ("import sys; sys.exit(3)", "loading: importing acme tried to end the program (SystemExit: 3)"),
        ("raise KeyboardInterrupt", "loading: importing acme tried to end the program (KeyboardInterrupt)"),
        ("class Odd(BaseException): pass\nraise Odd('x')", "loading: importing acme tried to end the program (Odd: x)"),
        ("next(iter([]))", "loading: "),
        ("raise StopAsyncIteration", "loading: StopAsyncIteration"),
        ("raise TimeoutError('mine')", "loading: TimeoutError: mine"),
        ("import asyncio\nraise asyncio.CancelledError", "loading: importing acme tried to end the program"),
        ("raise ExceptionGroup('many', [ValueError('a')])", "loading: ExceptionGroup: many (1 sub-exception)"),
        ("def f(n=0): return f(n + 1)\n\n" + "f()", "loading: RecursionError"),
        ("this is no python", "loading: SyntaxError: invalid syntax"),
        ("import json; json.loads('{')", "loading: JSONDecodeError"),
        (
            "class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd",
            "loading: Odd: (its text cannot be shown)",
        ),
        (
            "class Odd(Exception):\n    def __str__(self): return 5\nraise Odd",
            "loading: Odd: (its text cannot be shown)",
        ),
    ],
)
async def test_a_plugin_that_cannot_be_imported_costs_itself_alone(tmp_path: Path, code: str, problem: str) -> None:
    folder = make_plugin(tmp_path, "acme", "\n" + code)
    async with asyncio.timeout(20), host_with(tmp_path / "p", folder) as host:
        await the_rest_works(host)
        plugin = host.plugin("acme")
        assert plugin.state is PluginState.FAILED
        assert plugin.problems[0].message.startswith(problem)
        assert plugin.problems[0].file == str(folder / "__init__.py")
        assert plugin.problems[0].line in (2, code.count("\n") + 2)
        assert plugin.contributions == {}
    assert "tavern_plugins.acme" not in sys.modules


async def test_the_file_named_is_the_plugins_own_even_where_a_library_failed(tmp_path: Path) -> None:
    folder = make_plugin(tmp_path, "acme", "from .inner import x")
    write(folder / "inner.py", "\n\nimport json\n\nx = json.loads('nonsense')\n")
    async with host_with(tmp_path / "p", folder) as host:
        (problem,) = host.plugin("acme").problems
        assert (problem.file, problem.line) == (str(folder / "inner.py"), 5)


async def test_a_library_that_cannot_be_compiled_is_told_at_its_import(tmp_path: Path) -> None:
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


async def test_what_is_raised_from_something_else_is_told_where_it_was_raised(tmp_path: Path) -> None:
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


async def test_a_plugin_that_hangs_at_import_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: threading.Event
) -> None:
    monkeypatch.setattr(lifecycle, "IMPORT_DEADLINE", 0.1)
    folder = make_plugin(tmp_path, "acme", "import sys\nsys.release.wait()\n")
    async with asyncio.timeout(10), host_with(tmp_path / "p", folder) as host:
        await the_rest_works(host)
        assert messages_of(host) == ["loading: importing acme did not end within 0.1 s"]
        assert host.plugin("acme").problems[0].file is None
        assert host.plugin("acme").problems[0].hint == "mend it, or keep it out with `tavern plugins disable acme`"


async def test_a_failed_import_leaves_no_module_behind(tmp_path: Path) -> None:
    folder = make_plugin(tmp_path, "acme", "from . import part\nraise RuntimeError\n")
    write(folder / "part.py", "value = 1\n")
    async with host_with(tmp_path / "p", folder, trust=[]) as host:
        await host.grant("acme")
        assert host.plugin("acme").state is PluginState.FAILED
        assert not [name for name in sys.modules if name.startswith("tavern_plugins.acme")]
        write(folder / "part.py", "value = 2\n")
        write(folder / "__init__.py", "from . import part\n")
        await host.grant("acme")  # reviews what is there now
        await host.grant("acme")
        assert host.plugin("acme").state is PluginState.STARTED
        assert module_of().part.value == 2


async def test_an_object_that_raises_when_it_is_looked_at_does_no_harm(tmp_path: Path) -> None:
    code = (
        HEAD
        + """
class Shy:
    def __getattr__(self, name):
        raise RuntimeError(name)

thing = Shy()

@hookimpl
def tavern_startup(context): pass
"""
    )
    async with host_with(tmp_path / "p", make_plugin(tmp_path, "acme", code, hooked=LIFE)) as host:
        assert host.plugin("acme").state is PluginState.STARTED


# --- at startup --------------------------------------------------------------------------------------

STARTUPS = {
    "def": "@hookimpl\ndef tavern_startup(context):\n    {}\n",
    "async def": "@hookimpl\nasync def tavern_startup(context):\n    {}\n",
    "async def, later": "@hookimpl\nasync def tavern_startup(context):\n    await asyncio.sleep(0)\n    {}\n",
}


@pytest.mark.parametrize("kind", STARTUPS)
@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("raise RuntimeError('no')", "tavern_startup: RuntimeError: no"),
        ("sys.exit('bye')", "tavern_startup: tavern_startup of acme tried to end the program (SystemExit: bye)"),
        ("raise KeyboardInterrupt", "tavern_startup: tavern_startup of acme tried to end the program (Keyboard"),
        ("next(iter([]))", "tavern_startup: "),
        ("raise asyncio.CancelledError", "tavern_startup: "),
        ("raise TimeoutError('mine')", "tavern_startup: TimeoutError: mine"),
    ],
)
async def test_a_plugin_that_fails_at_startup_costs_itself_alone(
    tmp_path: Path, kind: str, statement: str, problem: str
) -> None:
    folder = make_plugin(tmp_path, "acme", HEAD + STARTUPS[kind].format(statement), hooked=LIFE)
    async with asyncio.timeout(30), host_with(tmp_path / "p", folder) as host:
        await the_rest_works(host)
        plugin = host.plugin("acme")
        assert plugin.state is PluginState.FAILED
        assert plugin.problems[0].message.startswith(problem)
        assert plugin.problems[0].file == str(folder / "__init__.py")
        assert plugin.contributions == {}


@pytest.mark.parametrize(
    "statement",
    [
        "await asyncio.Event().wait()",
        "await asyncio.sleep(3600)",
        "async with asyncio.timeout(3600): await asyncio.sleep(3600)",
    ],
)
async def test_an_async_startup_that_hangs_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    monkeypatch.setattr(dispatch, "DEADLINE", 0.1)
    folder = make_plugin(tmp_path, "acme", HEAD + STARTUPS["async def"].format(statement), hooked=LIFE)
    async with asyncio.timeout(10), host_with(tmp_path / "p", folder) as host:
        await the_rest_works(host)
        assert messages_of(host) == ["tavern_startup: tavern_startup of acme did not end within 0.1 s"]


async def test_an_async_startup_that_will_not_be_cancelled_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "DEADLINE", 0.1)
    code = (
        HEAD
        + """
@hookimpl
async def tavern_startup():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass
"""
    )
    folder = make_plugin(tmp_path, "acme", code, hooked=LIFE)
    async with asyncio.timeout(20), host_with(tmp_path / "p", folder) as host:
        await the_rest_works(host)
        assert host.plugin("acme").state is PluginState.FAILED


async def test_a_startup_that_hangs_on_its_thread_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: threading.Event
) -> None:
    monkeypatch.setattr(dispatch, "DEADLINE", 0.1)
    folder = make_plugin(tmp_path, "acme", HEAD + STARTUPS["def"].format("sys.release.wait()"), hooked=LIFE)
    async with asyncio.timeout(10), host_with(tmp_path / "p", folder) as host:
        await the_rest_works(host)
        assert messages_of(host) == ["tavern_startup: tavern_startup of acme did not end within 0.1 s"]


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


async def test_a_task_can_be_started_from_a_plain_startup(tmp_path: Path) -> None:
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
    async with asyncio.timeout(10), host_with(tmp_path / "p", folder) as host:
        assert problems_of(host) == []
        await module_of().RAN.wait()
        assert host.plugin("acme").contributions["task"] == ["work"]


# --- at shutdown -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    ["raise RuntimeError('no')", "sys.exit(1)", "await asyncio.sleep(3600)", "raise asyncio.CancelledError"],
)
async def test_a_plugin_that_fails_at_shutdown_does_not_keep_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    monkeypatch.setattr(lifecycle, "SHUTDOWN_DEADLINE", 0.1)
    code = HEAD + f"@hookimpl\nasync def tavern_shutdown(context):\n    {statement}\n"
    folder = make_plugin(tmp_path, "acme", code, hooked=LIFE)
    async with asyncio.timeout(10):
        async with host_with(tmp_path / "p", folder) as host:
            pass
    assert {p.state for p in host.plugins()} == {PluginState.STOPPED}
    assert problems_of(host)[0].startswith(f"{folder / '__init__.py'}") or "did not end within" in problems_of(host)[0]


async def test_a_shutdown_that_hangs_on_its_thread_does_not_keep_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: threading.Event
) -> None:
    monkeypatch.setattr(lifecycle, "SHUTDOWN_DEADLINE", 0.1)
    code = HEAD + "@hookimpl\ndef tavern_shutdown(context):\n    sys.release.wait()\n"
    async with asyncio.timeout(10):
        async with host_with(tmp_path / "p", make_plugin(tmp_path, "acme", code, hooked=LIFE)) as host:
            pass
    assert messages_of(host) == ["tavern_shutdown: tavern_shutdown of acme did not end within 0.1 s"]


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


# --- services ----------------------------------------------------------------------------------------

PROVIDER = (
    HEAD
    + """
from tavern_host import LLM, service_info
from tavern_host.contracts.llm import Llm

class Mine(Llm):
    def __init__(self, context, original):
        {construct}

    async def complete(self, request, *, call=None): ...
    def stream(self, request, *, call=None): ...
    async def models(self): return []

    async def close(self):
        {close}

@hookimpl
def tavern_override_services():
    return [service_info(LLM, Mine)]
"""
)


@pytest.mark.parametrize("statement", ["raise RuntimeError('no')", "sys.exit(1)", "raise KeyboardInterrupt"])
async def test_a_provider_that_cannot_be_made_costs_its_plugin_alone(tmp_path: Path, statement: str) -> None:
    code = PROVIDER.format(construct=statement, close="pass")
    folder = make_plugin(tmp_path, "acme", code, permissions={"services": {"override": ["llm"]}})
    async with host_with(tmp_path / "p", folder) as host:
        await the_rest_works(host)
        assert host.plugin("acme").state is PluginState.FAILED
        assert host.plugin("acme").problems[0].file == str(folder / "__init__.py")
        assert [layer.plugin for layer in await host.services.get(PLUGINS).service_stack("llm")] == ["tavern-llm"]


@pytest.mark.parametrize(
    "statement",
    ["raise RuntimeError('no')", "sys.exit(1)", "await asyncio.sleep(3600)", "raise asyncio.CancelledError"],
)
async def test_a_provider_that_cannot_be_closed_does_not_keep_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    monkeypatch.setattr(lifecycle, "SHUTDOWN_DEADLINE", 0.1)
    code = PROVIDER.format(construct="pass", close=statement)
    folder = make_plugin(tmp_path, "acme", code, permissions={"services": {"override": ["llm"]}})
    async with asyncio.timeout(10):
        async with host_with(tmp_path / "p", folder) as host:
            assert host.plugin("acme").state is PluginState.STARTED
    assert host.plugin("acme").state is PluginState.STOPPED
    assert "closing its instance llm" in problems_of(host)[0]


# --- handlers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("web", "complaint"),
    [
        ("async def answer(request, context): sys.exit(2)", "tried to end the program"),
        ("def answer(request, context): sys.exit(2)", "tried to end the program"),
        ("async def answer(request, context): raise KeyboardInterrupt", "tried to end the program"),
        ("sys.exit(2)", "importing tavern_plugins.acme.web of acme tried to end the program"),
        ("import not_there", "acme failed in GET /api/x/acme/a; the log says why"),
        ("", "there is no handler 'tavern_plugins.acme.web:answer'"),
        ("answer = 5", "the handler 'tavern_plugins.acme.web:answer' is not callable"),
    ],
)
async def test_a_handler_that_is_broken_fails_its_request_alone(tmp_path: Path, web: str, complaint: str) -> None:
    code = (
        HEAD
        + """
from tavern_host import RouteInfo

@hookimpl
def tavern_register_routes():
    return [RouteInfo(method="GET", path="/api/x/acme/a", handler=f"{__name__}.web:answer")]
"""
    )
    folder = make_plugin(tmp_path, "acme", code, hooked=["tavern_register_routes"])
    write(folder / "web.py", f"import sys\n{web}\n")
    async with host_with(tmp_path / "p", folder) as host:
        found = host.registrations.find("GET", "/api/x/acme/a")[0]
        assert found is not None
        with pytest.raises(TavernError, match=complaint):
            await call_route(host, found, HttpRequest(method="GET", path="/api/x/acme/a", call=host.call()))
        await the_rest_works(host)


async def test_a_third_partys_provider_that_ends_the_program_fails_its_call_alone(tmp_path: Path) -> None:
    code = PROVIDER.format(construct="pass", close="pass").replace("return []", "sys.exit(1)")
    folder = make_plugin(tmp_path, "acme", code, permissions={"services": {"override": ["llm"]}})
    async with host_with(tmp_path / "p", folder) as host:
        with pytest.raises(TavernError, match=r"acme failed in llm\.models: SystemExit: 1"):
            await host.services.get(LLM).models()


# --- tasks and the log -------------------------------------------------------------------------------


async def test_a_task_that_fails_is_shown_with_its_plugin(tmp_path: Path) -> None:
    async def fail() -> None:
        raise RuntimeError("in the background")

    async with host_with(tmp_path / "p", contextual(tmp_path)) as host:
        task = context_of().tasks.spawn(fail(), name="sweep")
        await asyncio.wait([task])
        await asyncio.sleep(0)
        assert [p.message for p in host.plugin("acme").problems] == ["task sweep: RuntimeError: in the background"]
        assert host.plugin("acme").contributions.get("task") is None


async def test_a_plugin_that_fails_without_end_does_not_fill_its_record(tmp_path: Path) -> None:
    async def fail(number: int) -> None:
        raise RuntimeError(str(number))

    async with host_with(tmp_path / "p", contextual(tmp_path)) as host:
        for number in range(50):
            await asyncio.wait([context_of().tasks.spawn(fail(number), name="sweep")])
        await asyncio.sleep(0)
        problems = messages_of(host)
        assert len(problems) == 20
        assert problems[-1].endswith("RuntimeError: 49")


async def test_a_failure_is_in_the_log_with_its_traceback(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="tavern")
    folder = make_plugin(tmp_path, "acme", "raise RuntimeError('no luck')")
    async with host_with(tmp_path / "p", folder):
        pass
    assert "acme failed in loading: RuntimeError: no luck" in caplog.text
    assert f'File "{folder / "__init__.py"}", line 1' in caplog.text


async def test_what_a_plugin_says_of_itself_is_always_json(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="tavern")  # a test runner may not be able to pass this text on
    folder = make_plugin(tmp_path, "acme", "raise RuntimeError('\\udc80 \\x00 \\U0001f600')")
    async with host_with(tmp_path / "p", folder) as host:
        json.dumps([p.to_json() for p in host.plugins()], allow_nan=False)


async def test_strict_makes_a_host_of_it_that_does_not_start(tmp_path: Path) -> None:
    folder = make_plugin(tmp_path, "acme", "raise RuntimeError('no luck')")
    host = host_with(tmp_path / "p", folder, strict=True)
    with pytest.raises(AdmissionError, match=r"not all plugins are in order:\n  acme is failed: .*no luck"):
        async with host:
            raise AssertionError("it started")
    assert {p.state for p in host.plugins() if p.name != "acme"} == {PluginState.STOPPED}
