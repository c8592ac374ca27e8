"""`tavern_host.testing`: what the author of a plugin gets for tests, in pytest runs of their own."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from helpers.command_line import FEW_PLUGINS

from tavern_devtools.testing import InstallationError, InstallPlugin
from tavern_host import EXECUTION_ENGINE, TOOL_MANAGER, WORKFLOW_MANAGER, Host, NotFound
from tavern_host.contracts.executions import RunRequest
from tavern_host.testing import CallRecorder, MakeHost
from tavern_tools.api.toolcalls import ToolCallRequest

MANIFEST = """\
name: acme-greeter
displayName: Greeter
version: 1.0.0
configOptions:
  - {key: extensions.acme-greeter.word, type: string, label: Word, defaultValue: Hello}
permissions:
  hooks: ["hook:server:workflow:before-execute", "hook:server:host:startup"]
"""
CODE = """\
from tavern_host import hookimpl

@hookimpl
def tavern_before_execute(request, context):
    if "boom" in request.metadata:
        raise ValueError("boom")
    return request.model_copy(update={"metadata": {"word": context.settings.get("word")}})

@hookimpl
async def tavern_startup(context):
    context.events.publish("acme-greeter.ready", {"word": context.settings.get("word")})
"""
WORKFLOW = {"name": "Nothing", "nodes": [], "edges": []}


def write_greeter(folder: Path, code: str = CODE) -> Path:
    """Write the plugin that these tests test."""
    folder.mkdir(parents=True)
    (folder / "plugin.yaml").write_text(MANIFEST)
    (folder / "__init__.py").write_text(code)
    return folder


class Author:
    """Somebody who writes tests of a plugin and runs them."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self._pytester = pytester
        self.ini = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
        write_greeter(pytester.path / "acme_greeter")
        pytester.makeconftest('pytest_plugins = ["tavern_host.testing"]')

    def run(self, test: str, *arguments: str) -> pytest.RunResult:
        """Run a test file."""
        self._pytester.makefile(".ini", pytest=self.ini)
        head = "import pytest\nfrom pathlib import Path\nfrom tavern_host import *\n"
        self._pytester.makepyfile(test_it=head + textwrap.dedent(test))
        return self._pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)


@pytest.fixture
def author(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Author:
    for variable, value in FEW_PLUGINS.items():
        monkeypatch.setenv(variable, value)
    return Author(pytester)


# --- hosts ------------------------------------------------------------------------------------------------


def test_a_test_says_what_is_in_its_host(author: Author) -> None:
    result = author.run(
        """
        pytestmark = pytest.mark.tavern(plugins=["acme_greeter"], workflows={"tale": {"name": "Tale"}})
        import os
        PLUGIN = Path(__file__).parent / "acme_greeter"

        async def test_its_plugins(host):
            info = host.plugin("acme-greeter")
            assert (info.state, info.source) == ("started", f"folder:{PLUGIN}")

        @pytest.mark.tavern(settings={"extensions.acme-greeter.word": "Oi"})
        async def test_its_settings_beside_what_the_module_says(host):
            (ready,) = [e async for e in _kept(host) if e.type == "acme-greeter.ready"]
            assert ready.payload == {"word": "Oi"}

        async def test_its_workflows(host):
            assert (await host.services.get(WORKFLOW_MANAGER).get("tale")).workflow.name == "Tale"

        @pytest.mark.tavern(plugins=[PLUGIN], trust=[])
        async def test_that_it_was_not_granted_anything(make_host):
            async with make_host() as host:
                assert host.plugin("acme-greeter").state == "needs-review"

        @pytest.mark.parametrize("placement", ["in-process", "loopback", "process"])
        async def test_the_same_project_again(make_host, placement, tavern_project):
            for _ in range(2):
                async with make_host(placement=placement, settings={}) as host:
                    assert host.project.root == tavern_project

        def test_that_it_is_in_this_process():
            assert os.environ.get("TAVERN_PLACEMENT") != "loopback"

        @pytest.mark.in_process_only("it looks into the plugin")
        def test_what_is_for_this_process_only():
            pass

        async def _kept(host):
            subscription = host.events.subscribe(since=0)
            await subscription.close()
            async for event in subscription:
                yield event
        """
    )
    result.assert_outcomes(passed=9)


def test_wrong_markers_keywords_and_plugins_are_explained(author: Author, pytester: pytest.Pytester) -> None:
    (pytester.path / "acme_greeter" / "__init__.py").write_text(CODE.replace("request, context", "requests"))
    failed = "acme-greeter is failed:\n*the hook tavern_before_execute has no argument 'requests'*"
    markers = {
        "plugins=['acme_greeter']": failed,
        "trust=['acme-greter']": "there is no plugin 'acme-greter', neither given nor installed",
        "plugin=['acme_greeter']": "the marker tavern takes no 'plugin' (did you mean plugins?)",
        "'acme_greeter'": "the marker tavern takes keywords, such as plugins=[[]…], and nothing else",
        "plugins='acme_greeter'": "the marker tavern: plugins is a list, such as plugins=[[]'acme_greeter'[]]",
        "plugins=['acme']": "*/acme is no plugin: it has no plugin.yaml; give the folder that has it",
        "placement='elsewhere'": "*in-process, loopback or process, not 'elsewhere'*",
    }
    tests = [f"@pytest.mark.tavern({m})\nasync def test_{n}(host): pass\n" for n, m in enumerate(markers)]
    tests.append("@pytest.mark.in_process_only\ndef test_reason(): pass\n")
    result = author.run("\n".join([*tests, "def test_keyword(make_host): make_host(setting={})\n"]))
    result.assert_outcomes(errors=len(markers) + 1, failed=1)
    lines = [line for told in markers.values() for line in told.split("\n")]
    result.stdout.fnmatch_lines([*lines, "in_process_only takes a reason: *"])
    result.stdout.fnmatch_lines(["make_host takes no 'setting' (did you mean settings?)"])


def test_without_pytest_asyncio_the_host_says_so(author: Author) -> None:
    author.ini = "[pytest]\n"
    result = author.run("def test_it(host): pass", "-p", "no:asyncio")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["the fixture `host` needs pytest-asyncio (it is switched off here)"])


def test_where_pytest_asyncio_is_not_installed_the_host_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tavern_host.testing"]\n')
    (tmp_path / "test_it.py").write_text("def test_it(host): pass\ndef test_other(make_host): make_host().link()\n")
    code = (
        "import os, sys\nos.environ['PYTEST_DISABLE_PLUGIN_AUTOLOAD'] = '1'\nsys.modules['pytest_asyncio'] = None\n"
        "import pytest\npytest.main(['-q', '-p', 'no:cacheprovider', '-c', '/dev/null', '--rootdir', '.', '.'])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "the fixture `host` needs pytest-asyncio (pip install 'tavern-host[testing]')" in done.stdout
    assert "1 passed, 1 error" in done.stdout


def test_loading_the_fixtures_imports_nothing_of_the_host(tmp_path: Path) -> None:
    code = "import json, sys, pytest, pytest_asyncio\nbefore = set(sys.modules)\nimport tavern_host.testing\n"
    code += "print(json.dumps(sorted(set(sys.modules) - before)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    ours = {"tavern_host", *(f"tavern_host.testing{n}" for n in ("", ".fixtures", ".http", ".recorder"))}
    assert {n for n in loaded if n.startswith("tavern_host")} == ours
    assert not {n.partition(".")[0] for n in loaded} & {"pydantic", "yaml", "aiohttp", "pluggy", "click", "packaging"}


# --- placement --------------------------------------------------------------------------------------------


def test_all_plugins_may_be_behind_the_boundary(author: Author, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAVERN_SETTINGS", "no JSON")
    monkeypatch.setenv("TAVERN_PROJECT", "/nowhere")
    author.ini = author.ini.replace("auto", "strict")  # pytest-asyncio's own default will do as well
    test = """
        import os, subprocess, sys

        @pytest.mark.asyncio
        async def test_it(host, tmp_path):
            assert os.environ.get("TAVERN_PLACEMENT") == "loopback"
            assert host.project.root.is_relative_to(tmp_path)
            assert host.folders.state.is_relative_to(tmp_path)
            done = subprocess.run([sys.executable, "-m", "tavern_host.cli", "plugins", "list"])
            assert done.returncode == 0, "nothing of this machine is seen"

        @pytest.mark.in_process_only("it looks into the plugin")
        def test_other():
            raise AssertionError
        """
    result = author.run(test, "--placement", "loopback", "-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["*in-process only: it looks into the plugin"])


# --- what was called --------------------------------------------------------------------------------------


@pytest.fixture
def greeter(tmp_path: Path) -> Path:
    return write_greeter(tmp_path / "acme_greeter")


@pytest.mark.parametrize("placement", ["in-process", "loopback"])
async def test_hooks_services_events_and_errors_are_recorded(
    make_host: MakeHost, call_recorder: CallRecorder, greeter: Path, placement: str
) -> None:
    async with make_host(plugins=[greeter], workflows={"w": WORKFLOW}, placement=placement) as host:  # type: ignore[arg-type]
        ready = call_recorder.getcall("acme-greeter.ready")
        assert (ready.kind, ready.plugin, ready.arguments) == ("event", "acme-greeter", {"word": "Hello"})
        started = call_recorder.getcall("tavern_startup", plugin="acme-greeter")
        assert call_recorder.calls().index(started) < call_recorder.calls().index(ready), "from the start"

        call_recorder.clear()
        engine = host.services.get(EXECUTION_ENGINE)
        await engine.run(RunRequest(workflow_id="w", metadata={"a": [1]}))
        names = [call.name for call in call_recorder.calls()]
        order = ["executionEngine.run", "tavern_before_execute", "workflowManager.get", "EXECUTION_STATUS_UPDATE"]
        assert sorted(order, key=names.index) == order
        hook = call_recorder.getcall("tavern_before_execute", plugin="acme-greeter")
        assert (hook.kind, hook.is_over, hook.error) == ("hook", True, None)
        assert hook.arguments["request"].metadata == {"a": [1]}
        assert set(hook.arguments) == {"request"}, "what the implementation takes, without its context"
        assert hook.result.metadata == {"word": "Hello"}
        ran = call_recorder.getcall("executionEngine.run")
        assert (ran.kind, ran.plugin, ran.result.status) == ("service", "tavern-engine", "complete")
        assert {call.kind for call in call_recorder.calls(plugin="acme-greeter")} == {"hook"}

        call_recorder.clear()
        with pytest.raises(NotFound):
            await host.services.get(WORKFLOW_MANAGER).get("nowhere")
        missed = call_recorder.popcall("workflowManager.get")
        assert missed.error is not None and missed.error.code == "not_found"
        with pytest.raises(Exception, match="boom"):
            await engine.run(RunRequest(workflow_id="w", metadata={"boom": 1}))
        hook = call_recorder.getcall("tavern_before_execute")
        assert (hook.error.code, hook.error.message) == ("plugin_error", "ValueError: boom")


async def test_calls_are_kept_as_they_were_and_counted(host: Host, call_recorder: CallRecorder) -> None:
    document = {"name": "Tale"}
    await host.services.get(WORKFLOW_MANAGER).parse(document)
    document["name"] = "changed"
    assert call_recorder.getcall("workflowManager.parse").arguments == {"document": {"name": "Tale"}}

    call_recorder.clear()
    with pytest.raises(AssertionError, match="nothing was called"):
        call_recorder.popcall("toolManager.call")
    for _ in range(2):
        await host.services.get(TOOL_MANAGER).call(ToolCallRequest(tool_id="nothing"))
    with pytest.raises(AssertionError, match=r"there are 2 calls of 'toolManager.call', not one, in:\n  service tool"):
        call_recorder.getcall("toolManager.call")
    call_recorder.popcall("toolManager.call")
    assert len(call_recorder.calls("toolManager.call")) == 1


# --- installations ----------------------------------------------------------------------------------------

PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "acme-greeter"
version = "1.0.0"
dependencies = {dependencies}
[project.entry-points."tavern_host.plugins"]
acme-greeter = "acme_greeter"
"""


def write_project(folder: Path, dependencies: str = '["tavern-host"]') -> Path:
    """Write a project that pip can install."""
    write_greeter(folder / "acme_greeter")
    (folder / "pyproject.toml").write_text(PYPROJECT.format(dependencies=dependencies))
    return folder


def test_a_plugin_is_really_installed_and_operated(installed_plugin: InstallPlugin, tmp_path: Path) -> None:
    project = write_project(tmp_path / "greeter project")
    (project / "dangling").symlink_to(project / "nowhere")
    (project / "acme_greeter" / "web" / "dist").mkdir(parents=True)
    (project / "acme_greeter" / "web" / "dist" / "index.js").touch()
    plugin = installed_plugin(project)

    listed = {p["name"]: p for p in plugin.tavern("plugins", "list", "--json").json()}["acme-greeter"]
    assert (listed["state"], listed["source"]) == ("needs-review", "entry-point:acme-greeter")
    assert plugin.tavern("plugins", "grant", "acme-greeter").code == 0
    where = plugin.python("-c", "import acme_greeter, tavern_host; print(acme_greeter.__file__); print(tavern_host)")
    assert where.out.startswith(str(plugin.environment))
    assert (Path(where.out.splitlines()[0]).parent / "web" / "dist" / "index.js").is_file()
    assert plugin.tavern("plugins", "show", "nothing").code == 2
    assert not list(project.rglob("*.egg-info")) and not (project / "build").exists()
    assert installed_plugin(project).environment == plugin.environment, "it is installed once"


def test_what_pip_cannot_install_is_explained(
    installed_plugin: InstallPlugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_greeter(tmp_path / "acme_greeter")
    with pytest.raises(InstallationError, match="has no pyproject.toml, so pip cannot install it"):
        installed_plugin(folder)
    (folder / "pyproject.toml").write_text("[project\n")
    with pytest.raises(InstallationError, match=r"acme_greeter cannot be installed"):
        installed_plugin(folder)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    project = write_project(tmp_path / "project", '["tavern-host", "no-such-distribution-at-all"]')
    with pytest.raises(InstallationError, match="to do without an index, install what it depends on into the env"):
        installed_plugin(project)
