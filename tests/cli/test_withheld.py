"""What a withheld plugin would offer is named with why it is not there, and with the command that helps."""

from __future__ import annotations

import json
import re
from pathlib import Path

from helpers.command_line import tavern
from helpers.folder_plugins import INTERCEPTING, write_plugin
from helpers.repetition import Failures, repetitions

COMMANDS = {"permissions": {"hooks": ["hook:server:commands:register"]}}


def test_what_is_withheld_is_named_with_what_helps(tmp_path: Path) -> None:
    project = tmp_path / "inn"
    assert tavern("init", project).code == 0
    plugins = project / "plugins"
    write_plugin(plugins / "waits", **INTERCEPTING)
    write_plugin(plugins / "off")
    write_plugin(plugins / "fails", {"__init__.py": "import no_such_module\n"})
    write_plugin(plugins / "bad", {"plugin.yaml": "name: bad\nversion: [\n"})
    write_plugin(plugins / "needs", requires={"plugins": {"no-such": ">=1"}})
    write_plugin(plugins / "hidden", {"__init__.py": ""}, **COMMANDS)
    assert tavern("--project", project, "plugins", "grant", "fails").code == 0
    assert tavern("--project", project, "plugins", "disable", "off").code == 0
    document = {"nodes": [], "edges": []}
    with Failures() as failures:
        for name, why in (
            ("waits", "waits for review (`tavern plugins show waits`, then `tavern plugins grant waits`)"),
            ("off", "is disabled (`tavern plugins enable off`)"),
            ("fails", "failed (`tavern plugins list --check` says why)"),
            ("bad", "is invalid (`tavern plugins show bad` says why)"),
            ("needs", "is incompatible (`tavern plugins show needs` says why)"),
        ):
            told = f"; the plugin {name} {why}"
            document["nodes"] = [{"id": "a", "type": f"{name}:Say", "position": {"x": 0, "y": 0}}]
            (project / "workflows" / "one.json").write_text(json.dumps(document))
            commands = (
                (name, "hello"),
                ("workflow", "run", "one"),
                ("tools", "show", f"{name}:say"),
                ("tools", "call", f"{name}:say"),
                ("tools", "show", f"node:{name}:Say"),
                ("workflow", "check", project / "workflows" / "one.json"),
            )
            for words in commands if name == "waits" else commands[: repetitions(2, 6)]:
                with failures.row(f"{name}: {words[:2]}"):
                    ran = tavern("--project", project, *words)
                    assert ran.code != 0
                    assert told in ran.out + ran.err, ran
        with failures.row("a command of another name"):
            ran = tavern("--project", project, "hello")
            assert "it may be a command of hidden waits for review" in ran.error
        with failures.row("core"):
            tavern("--project", project, "plugins", "disable", "tavern-llm")
            document["nodes"] = [{"id": "a", "type": "core:LlmApiRequest", "position": {"x": 0, "y": 0}}]
            (project / "workflows" / "one.json").write_text(json.dumps(document))
            ran = tavern("--project", project, "workflow", "run", "one")
            assert "the plugin tavern-llm is disabled (`tavern plugins enable tavern-llm`)" in ran.error
        document["nodes"] = [{"id": "a", "type": "core:TextMerg", "position": {"x": 0, "y": 0}}]
        (project / "workflows" / "one.json").write_text(json.dumps(document))
        for words, meant in (
            (("workflow", "check", project / "workflows" / "one.json"), "core:TextMerge"),
            (("workflow", "run", "one"), "core:TextMerge"),
            (("workflo", "list"), "workflow"),
        ):
            with failures.row(f"a mistyped name: {words[:2]}"):
                ran = tavern("--project", project, *words)
                assert re.search(f"(?i)did you mean '?{meant}", ran.out + ran.err), ran


def test_dependencies_and_grants_are_reported_together(tmp_path: Path) -> None:
    project = tmp_path / "inn"
    assert tavern("init", project).code == 0
    requires = {"plugins": {"no-such": ">=1", "tavern-llm": ">=99"}}
    write_plugin(project / "plugins" / "acme", requires=requires, **INTERCEPTING)
    shown = tavern("--project", project, "plugins", "show", "acme", "--json").json()
    assert shown["state"] == "needs-review"
    told = " ".join(problem["message"] for problem in shown["problems"])
    assert "which nobody has granted" in told
    assert "it requires the plugin no-such, which is not installed" in told
    assert "it requires tavern-llm >=99; 0.1" in told


def test_a_syntax_error_has_its_place_and_its_line(tmp_path: Path) -> None:
    project = tmp_path / "inn"
    assert tavern("init", project).code == 0
    code = {"__init__.py": "from . import nodes\n", "nodes.py": "# éé\ndef e(:\n    pass\n"}
    write_plugin(project / "plugins" / "acme", code)
    tavern("--project", project, "plugins", "grant", "acme")
    plugins = tavern("--project", project, "plugins", "list", "--check", "--json").json()
    (problem,) = next(plugin["problems"] for plugin in plugins if plugin["name"] == "acme")
    assert (problem["file"], problem["line"], problem["column"]) == (str(project / "plugins/acme/nodes.py"), 2, 7)
    assert problem["message"] == "loading: SyntaxError: invalid syntax, in `def e(:`"
