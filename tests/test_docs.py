"""The documentation says what the code does: every hook, permission, field, method, command, variable and error
stands in it as it is in the code, every example runs, every link leads somewhere."""

from __future__ import annotations

import ast
import asyncio
import difflib
import importlib
import inspect
import re
import sys
import types
import typing
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from documentation import facts
from documentation.pages import ROOT, Page, pages, table
from documentation.platform import interfaces
from documentation.reference import TO_DO, references, write_table
from documentation.snippets import PageRun, Wrong, compare
from helpers.folder_plugins import write_plugin
from helpers.repetition import Failures
from helpers.systems import on_linux
from pydantic import TypeAdapter

import tavern_host
from tavern_devtools.api.findings import CheckedPlugin, Finding
from tavern_host import PLUGINS, CallContext, Host, NodeDefinition, Principal, ToolDefinition, ToolImplementation
from tavern_host.cli import terminal
from tavern_host.contracts.accounts import Login, SettledWork, WorkFilter
from tavern_host.contracts.executions import Run, RunRequest, RunStatus
from tavern_host.contracts.hooks import Policy
from tavern_host.contracts.manifest import Manifest, canonical
from tavern_host.contracts.metrics import Figure
from tavern_host.contracts.plugins import PluginState
from tavern_host.contracts.reviews import ReviewedPlugin, ReviewNote
from tavern_host.contracts.services import Level
from tavern_host.contracts.settings import ControlType, SettingItem, SettingsChange
from tavern_host.plugins.permissions import Publishers, asked
from tavern_host.server.app import make_app
from tavern_host.testing import fixtures
from tavern_importers.api.importers import ImporterInfo
from tavern_llm.api.llm import LlmAdapterInfo, LlmRequest, LlmResponse
from tavern_scripts.api.scripts import ScriptBackendInfo
from tavern_tools.api.macros import PromptMacroInfo
from tavern_tools.api.protocols import ActionProtocolInfo
from tavern_tools.api.toolcalls import ToolCallRequest, ToolResult
from tavern_triggers.api.kinds import TriggerKindInfo

WRITE = "`python -m tests.documentation` writes the reference parts anew"


@cache
def page(path: str) -> Page:
    return Page.read(path)


def code_in(text: str) -> set[str]:
    """Return the texts between single back quotes."""
    return set(re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text))


# --- the reference ------------------------------------------------------------------------------------


@on_linux
def test_reference_parts_say_what_the_code_says() -> None:
    with Failures() as failures:
        for path in pages():
            with failures.row(path):
                assert set(page(path).references) == set(references().get(path, {}))
        for path, name in [(path, name) for path, parts in references().items() for name in parts]:
            with failures.row(f"{path}: {name}"):
                part = page(path).references[name]
                expected = references()[path][name](part)
                lines = difflib.unified_diff(part.splitlines(), expected.splitlines(), "page", "code", n=0)
                assert part == expected, "\n".join([f"{path} differs from the code; {WRITE}", *lines])
                assert TO_DO not in expected, f"{path}: a person has to write what {TO_DO} stands for"


# --- hooks --------------------------------------------------------------------------------------------


def test_every_hook_service_and_command_has_a_heading() -> None:
    def headed(path: str, level: int) -> list[str]:
        return [title.strip("`") for depth, title in page(path).headings if depth == level]

    hooks = [title for title in headed("docs/hooks.md", 2) if title.startswith("tavern_")]
    assert sorted(hooks) == sorted(facts.hooks())
    assert sorted(headed("docs/services.md", 3)) == sorted(interfaces())
    commands = sorted(f"tavern {command.info.name}" for command in facts.commands())
    assert sorted(headed("docs/cli.md", 4)) == commands


def test_hooks_are_shown_with_their_exact_arguments() -> None:
    with Failures() as failures:
        for name, hook in facts.hooks().items():
            with failures.row(name):
                under = page("docs/hooks.md").text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
                assert f"<!-- reference: {name} -->" in under
                part = page("docs/hooks.md").references[name]
                shown = next(block for block in part.split("```") if block.startswith(f"python\n{name}("))
                function = _compiled(f"def {shown.removeprefix('python').strip()}: ...", {})[name]
                assert inspect.signature(function) == inspect.signature(hook.function)
                info = hook.info
                for fact in (info.permission, info.level, info.policy, info.caller, info.example, info.description):
                    assert fact in part


LIFE = ["tavern_shutdown", "tavern_startup"]


def test_the_example_of_a_hook_answers_what_the_hook_wants() -> None:
    with Failures() as failures:
        for name in sorted(set(facts.hooks()) - set(LIFE)):
            with failures.row(name):
                hints = typing.get_type_hints(facts.hooks()[name].function)
                function = _compiled(example_of(name), _names_of_examples())[name]
                arguments = {argument: SAMPLES[hints[argument]] for argument in inspect.signature(function).parameters}
                answer = function(**arguments)
                assert (answer is None) is (hints["return"] is type(None))
                TypeAdapter(hints["return"]).validate_python(answer, strict=True)


async def test_the_examples_of_start_and_shutdown_run_in_a_plugin(tmp_path: Path) -> None:
    own = "import asyncio\nfrom tavern_host import hookimpl\nDONE = []\n"
    own += "async def refresh_forever():\n    DONE.append('refreshed')\n    await asyncio.Event().wait()\n"
    own += "async def flush():\n    DONE.append('flushed')\n"
    permissions = {"hooks": [facts.hooks()[name].info.permission for name in LIFE]}
    code = own + "\n".join(map(example_of, LIFE))
    plugin = write_plugin(tmp_path / "acme_life", {"__init__.py": code}, permissions=permissions)
    async with Host(tmp_path / "project", dev=[plugin]) as host:
        await asyncio.sleep(0)
        assert host.plugin("acme-life").problems == []
        done = sys.modules["tavern_plugins.acme_life"].DONE
    assert done == ["refreshed", "flushed"]


def example_of(hook: str) -> str:
    """Return the example in a hook's reference, a whole hookimpl."""
    blocks = page("docs/hooks.md").references[hook].split("```")
    return next(block for block in blocks if block.startswith("python\n@hookimpl")).removeprefix("python\n")


def _compiled(source: str, names: dict[str, Any]) -> dict[str, Any]:
    exec(f"from __future__ import annotations\n{source}", names)
    return names


def _names_of_examples() -> dict[str, Any]:
    """Return the names of the examples: everything that authors import, and a few names of a plugin's own."""
    names: dict[str, Any] = {name: getattr(tavern_host, name) for name in tavern_host.__all__}
    own = types.SimpleNamespace(nodes=importlib.import_module("tavern_nodes.nodes.text"))
    ping = ToolImplementation(kind="service", service="plugins", method="list_plugins")
    return {**names, "my_plugin": own, "PING": ping, "VISITS": [], "MyWorkflows": type("MyWorkflows", (), {})} | {
        value.__name__: value
        for value in (
            *(ActionProtocolInfo, Figure, LlmAdapterInfo, PromptMacroInfo, ReviewNote, ScriptBackendInfo),
            *(SettledWork, TriggerKindInfo, Finding, ImporterInfo),
        )
    }


SAMPLES: dict[Any, Any] = {
    type(value): value
    for value in (
        NodeDefinition(type="Greet", namespace="acme"),
        ToolDefinition(id="acme:ping", implementation=ToolImplementation(kind="node", node_type="acme:Greet")),
        RunRequest(workflow_id="greeting"),
        Run(id="run_1", status=RunStatus.COMPLETE, submitted_at=datetime(2026, 1, 1, tzinfo=UTC)),
        ToolCallRequest(tool_id="acme:ping"),
        ToolResult(tool_id="acme:ping", status="done"),
        LlmRequest(messages=[]),
        LlmResponse(text=" Hello. ", model="small"),
        SettingsChange(plugin="acme"),
        ReviewedPlugin(name="acme"),
        CheckedPlugin(name="acme", root="/acme", folders={"acme": "/acme/recipes"}),
        Login(user="ann", role="viewer"),
        WorkFilter(kind="user", name="ann"),
        CallContext(principal=Principal(kind="user", id="operator")),
    )
}
"""A value for each argument of a hook that is a model."""


def test_every_policy_level_and_state_is_told() -> None:
    for path, after, column, wanted in (
        ("docs/hooks.md", "**Policies**", "policy", typing.get_args(Policy)),
        ("docs/permissions.md", "", "level", typing.get_args(Level)),
        ("docs/cli.md", "## The states of a plugin", "state", [state.value for state in PluginState]),
    ):
        text = page(path).text
        rows = table(text.partition(after)[2] if after else text)
        assert [row[column].strip("`") for row in rows] == [*wanted]


# --- permissions --------------------------------------------------------------------------------------


def permission_rows() -> dict[str, dict[str, str]]:
    """Return the rows of all tables of permissions by the permission's name."""
    parts = page("docs/permissions.md").references
    rows = [row for name, text in parts.items() if name != "aliases" for row in table(text)]
    return {row["permission"].strip("`"): row for row in rows}


def test_every_permission_stands_in_one_row_with_its_level_and_sentence() -> None:
    rows = permission_rows()
    assert set(rows) == set(facts.all_permissions())
    for name, permission in facts.all_permissions().items():
        assert (rows[name]["level"], rows[name]["what it lets a plugin do"]) == (
            permission.level,
            permission.description,
        )


def test_a_permission_leads_to_the_hook_or_the_methods_that_need_it() -> None:
    rows = permission_rows()
    for hook in facts.hooks().values():
        if hook.info.permission.startswith("hook:"):
            assert f"[`{hook.info.name}`](hooks.md#{hook.info.name})" in rows[hook.info.permission]["hook"]
    for permission, methods in facts.methods_by_permission().items():
        assert code_in(rows[f"services.use:{permission}"]["methods"]) == set(methods)


def test_the_servers_hooks_have_both_orders_of_their_names() -> None:
    names = [hook.info.permission for hook in facts.hooks().values()]
    both = {re.sub(r":(before|after)-([a-z-]+)$", r":\2:\1", name): name for name in names}
    assert {written: canonical(written) for written in both} == both and len(set(both) - set(names)) == 9


def test_every_other_name_of_a_hook_asks_for_what_the_page_says() -> None:
    rows = table(page("docs/permissions.md").references["aliases"])
    assert {"settings:save:before", "auth:login", "workflow:before-execute", "node:render:after"} <= {
        row["written"].strip("`") for row in rows
    }
    for row in rows:
        hooks = [row["written"].strip("`")]
        manifest = Manifest.model_validate(
            {"name": "acme", "displayName": "Acme", "version": "1.0.0", "permissions": {"hooks": hooks}}
        )
        wanted, problems = asked(manifest, publishers=Publishers({}))
        assert ([p.name for p in wanted], problems) == ([row["means"].strip("`")], [])


# --- the manifest -------------------------------------------------------------------------------------


def test_every_field_of_the_manifest_has_one_sentence() -> None:
    rows = table(page("docs/manifest.md").references["fields"])
    assert [row["field"].strip("`") for row in rows] == [field.path for field in facts.fields(Manifest)]
    assert all(row["meaning"].endswith(".") and len(row["meaning"]) > 10 for row in rows)


# --- settings, testing --------------------------------------------------------------------------------


def test_settings_fixtures_and_their_options_are_named() -> None:
    assert {"host", "call_recorder", "installed_plugin"} <= facts.fixtures()
    options = {field.alias or name for name, field in SettingItem.model_fields.items()}
    for path, wanted in {
        "docs/settings.md": {*typing.get_args(ControlType), *options},
        "docs/testing.md": {*facts.fixtures(), *fixtures.HostOptions.__annotations__},
    }.items():
        named = {word for text in code_in(page(path).text) for word in re.findall(r"[\w-]+", text)}
        assert wanted - named == set(), path


# --- services -----------------------------------------------------------------------------------------


def test_services_are_shown_with_their_exact_signatures() -> None:
    with Failures() as failures:
        for service, interface in interfaces().items():
            part = page("docs/services.md").references[service]
            block = next(block for block in part.split("```") if block.startswith("python\n"))
            source = re.sub(r"^(.*\) -> .*)$", r"\1: ...", block.removeprefix("python\n"), flags=re.MULTILINE)
            shown = _compiled(source, {})
            for method in facts.methods(interface):
                with failures.row(f"{service}.{method.name}"):
                    own = getattr(interface, method.name)
                    declared = inspect.signature(own)
                    declared = declared.replace(parameters=list(declared.parameters.values())[1:])
                    assert inspect.signature(shown[method.name]) == declared
                    assert inspect.iscoroutinefunction(shown[method.name]) == inspect.iscoroutinefunction(own)


def test_every_method_says_whether_it_acts_with_which_permission_and_since_when() -> None:
    for service, interface in interfaces().items():
        rows = {row["method"].strip("`"): row for row in table(page("docs/services.md").references[service])}
        assert list(rows) == [method.name for method in facts.methods(interface)]
        for method in facts.methods(interface):
            row = rows[method.name]
            assert row["reads or acts"] == ("acts" if method.info.is_acting else "reads")
            assert row["permission"].strip("`") == (method.info.permission or "")
            assert row["since"] == str(method.info.since)
            assert row["what it does"].endswith(".")


# --- the command line ---------------------------------------------------------------------------------


def test_every_parameter_of_a_command_has_a_sentence() -> None:
    for command in facts.commands():
        assert command.info.help.endswith("."), command.info.name
        for parameter in command.info.parameters:
            assert parameter.help.endswith("."), f"{command.info.name} {parameter.name}"


def test_a_variable_that_the_tests_alone_read_is_told_in_the_contributing_guide() -> None:
    files = [file for file in (ROOT / "tests").rglob("*.py") if "attacks" not in file.parts]  # programs of their own
    texts = [text for file in files if "TAVERN_" in (text := file.read_text(encoding="utf-8"))]
    used = {name for text in texts for name in _variables_read(ast.parse(text))}
    told = {row["variable"].strip("`") for row in table(page("docs/cli.md").references["environment"])}
    assert used - told <= code_in(page("CONTRIBUTING.md").text)


def _variables_read(tree: ast.Module) -> set[str]:
    """Return the variables that code reads by name; what stands in texts of it, such as scripts, is left alone."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "os.environ":
            found.add(ast.unparse(node.slice))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "os.environ.get":
            found.add(ast.unparse(node.args[0]))
    return {name.strip("'") for name in found if name.startswith("'TAVERN_")}


# --- errors -------------------------------------------------------------------------------------------


def error_rows() -> dict[str, dict[str, str]]:
    return {row["code"].strip("`"): row for row in table(page("docs/errors.md").references["codes"])}


@on_linux
def test_every_error_code_is_told_once() -> None:
    rows = error_rows()
    assert list(rows) == list(facts.errors())
    assert len(rows) >= 13


RAISES = """
from tavern_host import CommandInfo, CommandOutput, CommandParameter, RouteInfo, TavernError, hookimpl

@hookimpl
def tavern_register_routes():
    return [RouteInfo(method="GET", path="/api/x/acme-errors/{code}", handler=f"{__name__}:route")]

@hookimpl
def tavern_register_commands():
    code = CommandParameter(name="code", required=True)
    return [CommandInfo(name="fail", help="Fail.", handler=f"{__name__}:command", parameters=[code])]

def error(code):
    return type("Raised", (TavernError,), {"code": code})("as asked for")

async def route(request, context):
    raise error(request.parameters["code"])

async def command(arguments, context):
    raise error(arguments["code"])
    yield CommandOutput(kind="text")
"""
HOOKS = ["hook:server:routes:register", "hook:server:commands:register"]


OWN = {"Authorization": "Bearer secret", "Host": "127.0.0.1:0"}


async def test_the_server_answers_with_the_statuses_of_the_page(tmp_path: Path) -> None:
    told = table(page("docs/errors.md").text.partition("## What the server says of requests")[2])
    plugin = write_plugin(tmp_path / "acme_errors", {"__init__.py": RAISES}, permissions={"hooks": HOOKS})
    async with (
        Host(tmp_path / "project", dev=[plugin]) as host,
        TestClient(TestServer(make_app(host, token="secret", port=0))) as client,
    ):

        async def said(method: str, path: str, headers: dict[str, str], body: bytes | None = None) -> tuple[str, str]:
            answer = await client.request(method, path, headers=headers, data=body)
            return (await answer.json())["code"], str(answer.status)

        for code, row in error_rows().items():
            assert await said("GET", f"/api/x/acme-errors/{code}", OWN) == (code, row["HTTP"])
        assert {
            await said("GET", "/api/plugins", {**OWN, "Authorization": "Bearer other"}),
            await said("GET", "/api/plugins", {**OWN, "Host": "example.org"}),
            await said("GET", "/api/plugins", {**OWN, "Origin": "http://example.org"}),
            await said("GET", "/api/nowhere", OWN),
            await said("DELETE", "/api/plugins", OWN),
            await said("POST", "/api/tools/execute", OWN, bytes((16 << 20) + 1)),
        } == {(row["code"].strip("`"), row["HTTP"]) for row in told}


def test_the_command_line_ends_with_the_exit_code_that_the_page_says(tmp_path: Path) -> None:
    plugin = write_plugin(tmp_path / "acme_errors", {"__init__.py": RAISES}, permissions={"hooks": HOOKS})
    for code, row in error_rows().items():
        ended = terminal.run(["--dev", str(plugin), "fail", code])
        assert (code, str(ended)) == (code, row["exit"])


# --- the architecture ---------------------------------------------------------------------------------


async def test_a_first_party_plugin_provides_what_the_page_says(tmp_path: Path) -> None:
    part = page("docs/architecture.md").text.partition("## First-party plugins")[2]
    told = {row["plugin"].strip("`"): code_in(row["provides"]) for row in table(part)}
    told[facts.HOST] = code_in(part.partition("The host itself provides ")[2].partition(".\n")[0])
    provided: dict[str, set[str]] = {**{folder.name: set() for folder in facts.PLUGINS}, facts.HOST: set()}
    set_up = {"postgres.url": "postgresql:///none", "dask.scheduler": "local"}  # what they provide, they provide then
    settings = {f"extensions.tavern-{key}": value for key, value in set_up.items()}
    async with Host(tmp_path / "project", settings=settings) as host:
        for service in interfaces():
            provider = (await host.services.get(PLUGINS).service_stack(service))[0].plugin
            name = provider if provider == facts.HOST else provider.replace("-", "_")
            provided[name].add(service)
    assert told == provided


# --- links and the index ------------------------------------------------------------------------------


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    with Failures() as failures:
        for path, target in ((p, target) for p in pages() for target in page(p).links):
            if target.startswith(("https://", "http://")):
                continue
            with failures.row(f"{path}: {target}"):
                file, _, anchor = target.partition("#")
                found = ((ROOT / path).parent / file).resolve() if file else ROOT / path
                assert found.exists() and found.is_relative_to(ROOT)
                assert not anchor or anchor in page(str(found.relative_to(ROOT))).anchors


def test_a_page_begins_with_what_one_can_do_after_it() -> None:
    folders = {"docs": "After this page", "docs/zh": "读完本页"}
    with Failures() as failures:
        for folder, words in folders.items():
            for file in sorted((ROOT / folder).glob("*.md")):
                if file.name != "README.md":
                    with failures.row(file.name):
                        paragraphs = [
                            p for p in file.read_text(encoding="utf-8").split("\n\n")[1:] if "简体中文" not in p
                        ]
                        assert paragraphs[0].startswith(words)


def test_the_index_leads_to_every_page() -> None:
    indices = ("docs/README.md", "docs/decisions/README.md")
    linked = {(ROOT / path).parent / link.partition("#")[0] for path in indices for link in page(path).links}
    linked = {path.resolve() for path in linked}
    assert {path for path in pages() if path.startswith("docs/") and ROOT / path not in linked} == {"docs/README.md"}


def test_a_decision_that_another_supersedes_says_so() -> None:
    index = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    superseded = dict(re.findall(r"\((\d{3}-[\w-]+\.md)\) \(partly superseded by \[\d+\]\((\d{3}-[\w-]+\.md)\)", index))
    for path in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md")):
        said = re.search(r"uperseded by \[decision \d+\]\((\S+\.md)\)", path.read_text(encoding="utf-8"))
        assert (said[1] if said else None) == superseded.get(path.name), path.name
    assert len(superseded) >= 3


def test_each_page_has_one_title() -> None:
    titles = {path: [level for level, _ in page(path).headings].count(1) for path in pages()}
    assert {path: count for path, count in titles.items() if count != 1} == {}


# --- snippets -----------------------------------------------------------------------------------------


PAGES = [path for path in pages() if not path.startswith("docs/decisions/")]
IN_PROCESSES = ("docs/routes.md", "docs/scripts.md", "docs/testing.md")
"""Pages with tests or scripts, which run in processes: what they say is done in `real/test_docs_in_processes.py`."""


def done(path: Path, page: Page) -> str:
    """Do what a page says in a new folder; return what is wrong with it."""
    path.mkdir()
    try:
        PageRun(path).whole(page)
    except Wrong as error:
        return str(error)
    return ""


@pytest.mark.parametrize("path", [*(path for path in PAGES if path not in IN_PROCESSES), "docs/decisions"])
def test_a_page_does_what_it_says(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    does_what_it_says(path, tmp_path)


def does_what_it_says(path: str, folder: Path) -> None:
    """Fail where a page, or one of the pages in a folder of them, does not do what it says."""
    read = [page(one) for one in pages() if one == path or one.startswith(f"{path}/")]
    assert read
    for number, one in enumerate(read):
        if wrong := done(folder / f"work {number}", one):
            pytest.fail(wrong, pytrace=False)


BROKEN = [
    (["```python", "assert 1 == 2", "```"], "AssertionError"),
    (["```python", "import asyncio", "await asyncio.sleep(0)", "raise SystemExit(0)", "```"], "SystemExit"),
    (["```bash", "rm -rf x", "```"], "say what it is"),
    (["```yaml", "a: 1", "```"], "say what it is"),
    (["<!-- snippet: plugin.yaml -->", "```yaml", "name: acme", "```"], "'displayName' is missing"),
    (["<!-- snippet: not run: -->", "```python", "1", "```"], "say what it is"),
    (["    $ echo indented"], "say what it is"),
    (["```python", "print(1)", "```", "<!-- snippet: output -->", "```text", "2", "```"], "the page says"),
    (["```console", "$ ls", "```"], "only `tavern`"),
    (["```console", "$ tavern --version", "tavern-host 0.0.0", "```"], "the page says"),
    (["```console", "$ tavern plugins show nobody", "```"], "it ended with 2"),
    (["<!-- snippet: file ../x.py -->", "```python", "1", "```"], "not a file of this folder"),
    (
        [
            "<!-- snippet: file acme/plugin.yaml -->",
            "```yaml",
            "{name: acme, displayName: A, version: 1.0.0, nodes: {entry: ./nodes}}",
            "```",
        ],
        "acme is invalid",
    ),
]


def test_a_snippet_that_does_not_do_what_it_says_is_noticed(tmp_path: Path) -> None:
    with Failures() as failures:
        for number, (text, why) in enumerate(BROKEN):
            with failures.row(why):
                assert why in done(tmp_path / str(number), Page("docs/broken.md", "\n".join([*text, ""])))


def test_output_is_compared_with_wildcards() -> None:
    compare("a …\n…\nd\n", "a   b\nc\nc\n\nd\n")
    compare("", "whatever")
    with pytest.raises(Wrong):
        compare("a\nd\n", "a\nb\nd\n")


def test_a_table_is_read_as_it_is_written() -> None:
    assert table(write_table(["a", "b"], [["x | y", "`z`"]])) == [{"a": "x | y", "b": "`z`"}]
