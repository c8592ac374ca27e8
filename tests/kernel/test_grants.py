"""What a plugin asks for, what the operator granted, and that code runs only as it was reviewed."""

from __future__ import annotations

import asyncio
import json
import os
import py_compile
from pathlib import Path

import pytest
from helpers.repetition import Failures
from helpers.waiting import until
from plugin_maker import make_plugin, problems_of, write

from tavern_host import Host
from tavern_host.contracts.errors import NotFound, TavernError
from tavern_host.contracts.plugins import AdmissionError, PluginState

INTERCEPTS = "from tavern_host import hookimpl\n@hookimpl\ndef tavern_before_execute(request): pass\n"
MARK = "import os\nopen(os.environ['MARK'], 'a').write('ran ')\n"


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file to which code that runs `MARK` adds a word."""
    file = tmp_path / "mark"
    monkeypatch.setenv("MARK", str(file))
    return file


def interceptor(project: Path, name: str = "acme", code: str = INTERCEPTS) -> Path:
    """Write a folder plugin that needs the operator."""
    return make_plugin(project / "plugins", name, code, hooked=["tavern_before_execute"])


def linked(project: Path, *plugins: Path) -> Host:
    """Return a fresh host that has read all manifests."""
    host = Host(project, plugins=plugins)
    host.link()
    return host


def state(project: Path, name: str = "acme") -> PluginState:
    """Return the state in which a fresh host finds a plugin."""
    return linked(project).plugin(name).state


async def grant(project: Path, name: str = "acme") -> None:
    """Grant a plugin what it asks for, as `tavern plugins grant` does beside a host that does not run."""
    await linked(project).grant(name)


def grants_file(operator_folders: Path) -> Path:
    (file,) = (operator_folders / "state").rglob("grants.json")
    return file


def host_yaml(operator_folders: Path, text: str) -> None:
    write(operator_folders / "config" / "host.yaml", text)


# --- what is asked for -------------------------------------------------------------------------------


def test_unknown_permissions_are_told_with_suggestions(project: Path) -> None:
    make_plugin(
        project / "plugins",
        permissions={
            "hooks": ["hook:server:workflow:before-exec"],
            "ui": {"inject": ["node:header"], "wrap": ["ui:BasNode"], "override": ["ui:Nope"]},
            "services": {"override": ["workflowMangr"], "use": ["executionEngine:run"]},
        },
        nodes={"entry": "./nodes", "namespace": "core"},
    )
    host = linked(project)
    assert host.plugin("acme").state is PluginState.INVALID
    rows = [
        ("- hook:server:workflow:before-exec", "permissions.hooks: there is no permission", "before-execute"),
        ("- node:header", "permissions.ui.inject: there is no outlet 'node:header'", "node:header:"),
        ("- ui:BasNode", "permissions.ui.wrap: there is no component 'ui:BasNode'", "ui:BaseNode"),
        ("- ui:Nope", "permissions.ui.override: there is no component 'ui:Nope'", ""),
        ("- workflowMangr", "permissions.services.override: there is no service 'workflowMangr'", "workflowManager?"),
        ("- executionEngine:run", "permissions.services.use: there is no permission 'executionEngine:run'", ""),
        ("namespace: core", "nodes.namespace: 'core' is not the plugin's own", "leave it out; it is 'acme' then"),
        ("entry: ./nodes", "nodes.entry: there is no 'nodes'", "make this module"),
    ]
    text = (project / "plugins" / "acme" / "plugin.yaml").read_text().splitlines()
    for problem, (line, message, hint) in zip(host.plugin("acme").problems, rows, strict=True):
        assert problem.line is not None
        assert (text[problem.line - 1].strip(), problem.message[: len(message)]) == (line, message)
        assert hint in (problem.hint or "")


# --- granting ----------------------------------------------------------------------------------------


def test_folders_with_code_always_need_review(project: Path) -> None:
    make_plugin(project / "plugins", "acme", "")
    host = linked(project)
    assert host.plugin("acme").state is PluginState.NEEDS_REVIEW
    (problem,) = problems_of(host)
    assert problem.startswith("it asks for code:sha256:")
    assert problem.endswith("(look at `tavern plugins show acme`, then `tavern plugins grant acme`)")


async def test_grants_hold_for_project_and_source_alone(project: Path, tmp_path: Path) -> None:
    folder, moved = interceptor(project), tmp_path / "acme"
    assert state(project) is PluginState.NEEDS_REVIEW
    await grant(project)
    folder.rename(moved)
    assert linked(project, moved).plugin("acme").state is PluginState.NEEDS_REVIEW
    moved.rename(folder)
    assert state(project) is PluginState.DISCOVERED
    project.rename(tmp_path / "elsewhere")
    assert state(tmp_path / "elsewhere") is PluginState.NEEDS_REVIEW


async def test_any_change_of_code_folders_needs_review(project: Path) -> None:
    folder = interceptor(project)
    data = folder / "data.txt"
    for change in (
        lambda: data.write_text("a"),
        lambda: data.write_text("b"),
        lambda: data.rename(folder / "other.txt"),
        lambda: (folder / "more.py").write_text(""),
        lambda: (folder / "plugin.yaml").open("a").write("description: new\n"),
    ):
        await grant(project)
        assert state(project) is PluginState.DISCOVERED
        change()
        assert state(project) is PluginState.NEEDS_REVIEW


async def test_only_upgrades_that_ask_more_need_review(project: Path) -> None:
    make_plugin(project / "plugins", hooked=["tavern_before_execute", "tavern_after_execute"])
    await grant(project)
    make_plugin(project / "plugins", hooked=["tavern_before_execute"])
    assert state(project) is PluginState.DISCOVERED
    make_plugin(project / "plugins", hooked=["tavern_before_execute", "tavern_before_tool_call"])
    host = linked(project)
    assert host.plugin("acme").state is PluginState.NEEDS_REVIEW
    assert problems_of(host)[0].startswith("it asks for hook:server:tool:before-call now, which the grant of ")


async def test_changes_after_the_review_are_not_granted(project: Path) -> None:
    folder = interceptor(project)
    async with Host(project) as host:
        (folder / "__init__.py").write_text(INTERCEPTS + "raise AssertionError('nobody saw this')\n")
        granted = await host.grant("acme")
        assert granted.state is PluginState.NEEDS_REVIEW


async def test_the_grants_file_is_the_operators_alone(project: Path, operator_folders: Path) -> None:
    interceptor(project)
    await grant(project)
    file = grants_file(operator_folders)
    assert file.stat().st_mode & 0o077 == 0
    assert not list(project.rglob("grants.json"))
    document = json.loads(file.read_text())
    document["grants"]["acme"]["permissions"].append("services.use:*")
    file.write_text(json.dumps(document))
    assert "services.use:*" not in {p.name for p in linked(project).plugin("acme").permissions}, "it was not asked for"
    with Failures() as failures:
        for content in ("", "[]", "{", '{"grants": {"acme": {}}}', '{"other": 1}', "\xff"):
            file.write_bytes(content.encode("latin-1"))
            with failures.row(content):
                with pytest.raises(TavernError, match=r"grants\.json.*remove the file and grant again") as caught:
                    linked(project)
                assert caught.value.info.code == "invalid_file"


async def test_unknown_or_incompatible_plugins_cannot_be_granted(project: Path) -> None:
    make_plugin(project / "plugins", "later", apiVersion=">=9")
    host = linked(project)
    with pytest.raises(NotFound, match="there is no plugin 'tavern-engin'"):
        await host.grant("tavern-engin")
    with pytest.raises(AdmissionError, match="later cannot be granted anything: it is made for tavern-host >=9"):
        await host.grant("later")


async def test_the_operator_trusts_and_disables_by_name(project: Path, operator_folders: Path) -> None:
    interceptor(project)
    make_plugin(project / "plugins", "other")
    host_yaml(operator_folders, "trust: [acme]\ndisabled: [other, tavern-studio]\n")
    async with Host(project) as host:
        await host.grant("acme")
        assert host.plugin("acme").state is PluginState.STARTED
        assert host.plugin("other").state is PluginState.DISABLED
        assert host.plugin("tavern-studio").state is PluginState.DISABLED
        assert not host.plugin("other").is_enabled


def test_trust_in_a_name_covers_no_folder(project: Path, operator_folders: Path) -> None:
    interceptor(project)
    host_yaml(operator_folders, "trust: [acme]\n")
    host = linked(project)
    acme = host.plugin("acme")
    assert acme.state is PluginState.NEEDS_REVIEW
    assert [p.name.partition(":")[0] for p in acme.permissions if not p.granted] == ["code"]


# --- in a running host -------------------------------------------------------------------------------


async def test_following_survives_a_damaged_grants_file(
    project: Path, operator_folders: Path, caplog: pytest.LogCaptureFixture
) -> None:
    interceptor(project)
    await grant(project)
    file = grants_file(operator_folders)
    good = file.read_text()

    async with Host(project) as host:
        watch = asyncio.create_task(host.watch_decisions())
        file.write_text("{")
        await until(lambda: "grants.json" in caplog.text)
        assert not watch.done()
        file.write_text(good.replace('"acme"', '"another"'))
        await until(lambda: host.plugin("acme").state is PluginState.NEEDS_REVIEW)
        watch.cancel()
        await asyncio.wait([watch])


# --- only what was reviewed runs ---------------------------------------------------------------------


async def test_compiled_code_is_code(project: Path, mark: Path) -> None:
    folder = make_plugin(project / "plugins", nodes={"entry": "./nodes"})
    write(folder / "nodes.py", MARK)
    py_compile.compile(str(folder / "nodes.py"), cfile=str(folder / "nodes.pyc"))
    (folder / "nodes.py").unlink()
    async with Host(project) as host:
        assert host.plugin("acme").state is PluginState.NEEDS_REVIEW
    assert not mark.exists()


async def test_code_reviewed_within_a_second_runs(project: Path, mark: Path) -> None:
    folder = interceptor(project, code=MARK + INTERCEPTS)
    await grant(project)
    file = folder / "__init__.py"
    about = file.stat()
    async with Host(project):
        assert mark.read_text() == "ran "
    file.write_text(file.read_text().replace("ran ", "new "))
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))
    await grant(project)
    async with Host(project):
        assert mark.read_text() == "ran new "


async def test_running_a_plugin_leaves_its_folder_unchanged(project: Path) -> None:
    folder = interceptor(project, code="from . import inner\n" + INTERCEPTS)
    write(folder / "inner" / "__init__.py", "")
    await grant(project)
    async with Host(project) as host:
        assert host.plugin("acme").state is PluginState.STARTED
    assert state(project) is PluginState.DISCOVERED
    assert not list(folder.rglob("__pycache__"))
