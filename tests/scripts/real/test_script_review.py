"""Who reviews a plugin sees its script tools, what they ask for, and what of it the policy does not allow."""

from __future__ import annotations

import json
import py_compile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import tavern
from helpers.repetition import Failures

from tavern_host import Host
from tavern_host.contracts.errors import InvalidInput
from tavern_host.contracts.plugins import PluginState
from tavern_host.projects import make_project
from tavern_scripts.api.scripts import SCRIPT_EXECUTION, ScriptErrorType, ScriptRequest, SecurityContext

ASKS = {
    "fileAccess": {"allowRead": ["self"], "allowWrite": [".cache/**", "/etc"]},
    "networkAccess": {"allowHosts": ["{base}", "cdn.example.com"]},
}
TOOL = {
    "id": "Acme:fetch",
    "description": "Fetches something.",
    "implementation": {"type": "script", "command": "node scripts/fetch.mjs"},
    "parameters": {"type": "object"},
    "configSchema": [{"key": "base", "type": "string", "label": "Base", "defaultValue": "https://api.example.com"}],
    "securityContext": ASKS,
}
OTHER_FORM = {
    "toolId": "Acme:plain",
    "displayName": "Plain",
    "description": "Asks for nothing.",
    "version": "1.0.0",
    "handler": {"type": "external-script", "scriptPath": "scripts/fetch.mjs", "language": "nodejs"},
}


UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH
MANIFEST = "name: acme\ndisplayName: Acme\nversion: 1.0.0\n"
SCRIPT = {"scripts/fetch.mjs": "console.log(1)"}


def project_with(tmp_path: Path, *tools: Any, files: Mapping[str, str] = SCRIPT, more: str = "") -> Path:
    """Return a project with the plugin `acme`, which nobody has granted anything."""
    root = tmp_path / "project"
    make_project(root)
    texts = {"plugin.yaml": MANIFEST + (more or "tools: {entry: ./tools}\n"), **files}
    texts |= {f"tools/{number}.tool.json": json.dumps(tool) for number, tool in enumerate(tools)}
    for name, text in texts.items():
        file = root / "plugins" / "acme" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (root / "plugins" / "acme" / "tools").mkdir(exist_ok=True)
    return root


def linked(root: Path) -> Host:
    """Return a host that only links."""
    host = Host(root)
    host.link()
    return host


async def granted(root: Path) -> None:
    """Let `acme` in."""
    await linked(root).grant("acme")


def state_of(root: Path) -> PluginState:
    """Return the state of `acme` for a host that only links."""
    return linked(root).plugin("acme").state


def allow(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """Let scripts reach these hosts, as the operator."""
    monkeypatch.setenv("TAVERN_SETTINGS", json.dumps({"extensions.tavern-scripts.allowedHosts": hosts}))


def test_a_review_shows_what_a_script_asks_for_and_does_not_get(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch, "cdn.example.com")
    root = project_with(tmp_path, TOOL, OTHER_FORM)
    for command in ("show", "grant"):
        done = tavern("--project", str(root), "plugins", command, "acme")
        assert done.code == 0
        for said in ("acme has script tools", "node scripts/fetch.mjs", "reach {base}, cdn.example.com"):
            assert said in done.out
        (line,) = [line for line in done.out.splitlines() if "asks for more than it gets" in line]
        assert line.startswith("Acme:fetch asks for more than it gets: ")
        assert "write '/etc': only folders in the script's own folder" in line
        assert "host '{base} (api.example.com)': the operator does not allow it" in line
        assert "cdn.example.com" not in line
    checked = tavern("plugins", "check", str(root / "plugins" / "acme"), "--no-import")  # by an author
    assert "keep .cache/**, /etc" in checked.out


def test_a_review_says_nothing_of_a_script_that_gets_what_it_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch, "*.example.com")
    asks = {"networkAccess": ASKS["networkAccess"]}
    root = project_with(tmp_path, {**TOOL, "securityContext": asks}, OTHER_FORM)
    done = tavern("--project", str(root), "plugins", "show", "acme", "--json")
    assert json.loads(done.out)["scripts"] == [
        {
            "tool": "Acme:fetch",
            "runs": "node scripts/fetch.mjs",
            "asks": ["reach {base}, cdn.example.com"],
            "denied": [],
        },
        {"tool": "Acme:plain", "runs": "scripts/fetch.mjs", "asks": [], "denied": []},
    ]


def test_a_review_of_other_tools_says_what_they_are(tmp_path: Path) -> None:
    service = {**TOOL, "implementation": {"type": "service", "service": "scriptTools", "method": "execute_code"}}
    unreadable = {**TOOL, "securityContext": {"networkAccess": {"allowHosts": 7}}}
    shown = [
        tavern("--project", str(project_with(tmp_path / str(number), tool)), "plugins", "show", "acme", "--json")
        for number, tool in enumerate((service, unreadable))
    ]
    assert "scripts" not in json.loads(shown[0].out)
    assert (shown[1].code, "what cannot be read" in shown[1].out) == (0, True)


async def test_a_script_in_any_language_is_code_that_is_reviewed(tmp_path: Path) -> None:
    root = project_with(tmp_path, TOOL)
    assert state_of(root) is PluginState.NEEDS_REVIEW
    await granted(root)
    assert state_of(root) is PluginState.DISCOVERED
    (root / "plugins" / "acme" / "scripts" / "fetch.mjs").write_text("console.log(2)")
    info = linked(root).plugin("acme")
    assert info.state is PluginState.NEEDS_REVIEW
    assert "its code has changed since it was reviewed" in info.problems[0].message


async def test_a_script_that_was_changed_after_the_review_is_not_run(tmp_path: Path) -> None:
    root = project_with(tmp_path, {**TOOL, "implementation": {"type": "script", "command": "python scripts/a.py"}})
    script = root / "plugins" / "acme" / "scripts" / "a.py"
    script.write_text("print(1)")
    await granted(root)
    async with Host(root) as host:
        request = ScriptRequest(plugin="acme", script_path="scripts/a.py")
        scripts = host.services.get(SCRIPT_EXECUTION)
        script.touch()
        assert (await scripts.review(request)).denied == []
        script.write_text("print(2)")
        result = await scripts.run(request)
        assert result.error.type is ScriptErrorType.SECURITY
        assert "the plugin acme was changed after it was reviewed" in result.error.message
        script.write_text("print(1)")
        assert (await scripts.review(request)).denied == []
    async with Host(root, dev=[root / "plugins" / "acme"]) as host:
        script.write_text("print(3)")
        assert (await host.services.get(SCRIPT_EXECUTION).review(request)).denied == []


async def test_the_service_says_what_would_not_be_granted(tmp_path: Path) -> None:
    make_project(tmp_path / "project")
    settings = {"extensions.tavern-scripts.allowedHosts": ["api.example.com"]}
    async with Host(tmp_path / "project", settings=settings) as host:
        scripts = host.services.get(SCRIPT_EXECUTION)
        asked = SecurityContext.model_validate({"networkAccess": {"allowHosts": ["{base}"]}})
        assert await scripts.denied(asked, config={"base": "https://api.example.com/x"}) == []
        (line,) = await scripts.denied(asked, config={"base": "https://other.example.com"})
        assert "other.example.com" in line
        unknown = SecurityContext(required_capabilities=["gpu"])
        assert "the capability 'gpu', which this host does not know" in (await scripts.denied(unknown))[0]
        many = {"networkAccess": {"allowHosts": [f"{number}.example.com" for number in range(201)]}}
        with pytest.raises(InvalidInput, match="allowHosts has 201 entries"):
            await scripts.denied(SecurityContext.model_validate(many))


def test_a_folder_that_cannot_be_has_no_tools(tmp_path: Path) -> None:
    root = project_with(tmp_path, TOOL)
    for name in ("a\0b", "x" * 5_000, "nowhere"):
        (root / "plugins" / "acme" / "plugin.yaml").write_text(
            f"name: acme\ndisplayName: Acme\nversion: 1.0.0\ntools: {{entry: {json.dumps(name)}}}\n"
        )
        told = json.loads(tavern("--project", str(root), "plugins", "show", "acme", "--json").out)
        assert ("scripts" in told, "configOptions" in told) == (False, False), name


def test_a_folder_with_files_that_run_is_reviewed(tmp_path: Path) -> None:
    rows: list[tuple[str, bool]] = [
        ("scripts/run.py", True),
        ("scripts/run.sh", True),
        ("scripts/run", True),
        ("web/main.js tools/1.tool.json", True),
        ("README.md LICENSE web/theme.css logo.svg", False),
    ]
    with Failures() as failures:
        for number, (names, needs_review) in enumerate(rows):
            with failures.row(names):
                root = project_with(tmp_path / str(number), files=dict.fromkeys(names.split(), "{}"))
                assert state_of(root) is (PluginState.NEEDS_REVIEW if needs_review else PluginState.DISCOVERED)
    front_end = "frontend: {vanilla: {entry: web/main.js}}\n"
    info = linked(project_with(tmp_path, files={"web/main.js": "1"}, more=front_end)).plugin("acme")
    levels = {permission.name.partition(":sha256:")[0]: permission.level for permission in info.permissions}
    assert levels == {"hook:server:ui:declare": "add", "ui.frontend": "override", "code": "intercept"}
    assert info.state is PluginState.NEEDS_REVIEW


async def test_no_script_lies_among_bytecode(tmp_path: Path) -> None:
    root = project_with(tmp_path, files={**SCRIPT, "scripts/__pycache__/run.py": "print(1)"})
    folder = root / "plugins" / "acme" / "scripts"
    (folder / "link").symlink_to(folder)
    (folder / "more").symlink_to(folder / "__pycache__")
    await granted(root)
    async with Host(root) as host:
        scripts = host.services.get(SCRIPT_EXECUTION)
        for path in ("__pycache__/run.py", "more/run.py", "link/__pycache__/run.py", "link/more/run.py"):
            result = await scripts.run(ScriptRequest(plugin="acme", script_path=f"scripts/{path}"))
            assert result.error.type is ScriptErrorType.SECURITY
            assert "__pycache__" in result.error.message


async def test_a_script_reads_no_bytecode_that_nobody_reviewed(tmp_path: Path) -> None:
    root = project_with(tmp_path)
    scripts = root / "plugins" / "acme" / "scripts"
    (scripts / "run.py").write_text("import json, words; print(json.dumps(words.WORD))")
    (scripts / "words.py").write_text("WORD = 'unseen'")
    compiled = Path(py_compile.compile(str(scripts / "words.py"), invalidation_mode=UNCHECKED))
    bytecode = compiled.read_bytes()
    (scripts / "words.py").write_text("WORD = 'as reviewed'")
    await granted(root)
    compiled.write_bytes(bytecode)
    async with Host(root) as again:
        assert again.plugin("acme").state is PluginState.STARTED
        request = ScriptRequest(plugin="acme", script_path="scripts/run.py")
        result = await again.services.get(SCRIPT_EXECUTION).run(request)
    assert result.output_data == "as reviewed", result


async def test_what_counts_as_data_is_not_run(tmp_path: Path) -> None:
    root = project_with(tmp_path, files={"scripts/run.md": "print(1)"})
    async with Host(root) as host:
        assert host.plugin("acme").state is PluginState.STARTED
        scripts = host.services.get(SCRIPT_EXECUTION)
        result = await scripts.run(ScriptRequest(plugin="acme", command="python scripts/run.md"))
        assert result.error.type is ScriptErrorType.SECURITY
        assert "count as data, which nobody reviews as code" in result.error.message
