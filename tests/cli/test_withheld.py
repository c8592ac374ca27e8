"""What a withheld plugin would offer is named with why it is not there, and with the command that helps."""

from __future__ import annotations

import json
import re
from pathlib import Path

from helpers.command_line import tavern
from helpers.folder_plugins import INTERCEPTING, write_plugin
from helpers.repetition import Failures, repetitions

COMMANDS = {"permissions": {"hooks": ["hook:server:commands:register"]}}


def cannot(project: Path, file: Path, *words: str | Path, node: str) -> str:
    """Return the output of a command that fails, where a workflow has a node of this type."""
    file.write_text(json.dumps({"nodes": [{"id": "a", "type": node}], "edges": []}))
    ran = tavern("--project", project, *words)
    assert ran.code != 0
    return ran.out + ran.err


def test_what_is_withheld_is_named_with_what_helps(project: Path) -> None:
    plugins, file = project / "plugins", project / "workflows" / "one.json"

    def said(*words: str | Path, node: str = "core:TextMerge") -> str:
        return cannot(project, file, *words, node=node)

    write_plugin(plugins / "waits", **INTERCEPTING)
    write_plugin(plugins / "off")
    write_plugin(plugins / "fails", {"__init__.py": "import no_such_module\n"})
    write_plugin(plugins / "bad", {"plugin.yaml": "name: bad\nversion: [\n"})
    write_plugin(plugins / "needs", requires={"plugins": {"no-such": ">=1"}})
    write_plugin(plugins / "hidden", {"__init__.py": ""}, **COMMANDS)
    for words in (["grant", "fails"], ["disable", "off"]):
        assert tavern("--project", project, "plugins", *words).code == 0
    with Failures() as failures:
        for name, why in (
            ("waits", "waits for review (`tavern plugins show waits`, then `tavern plugins grant waits`)"),
            ("off", "is disabled (`tavern plugins enable off`)"),
            ("fails", "failed (`tavern plugins list --check` says why)"),
            ("bad", "is invalid (`tavern plugins show bad` says why)"),
            ("needs", "is incompatible (`tavern plugins show needs` says why)"),
        ):
            commands = (
                (name, "hello"),
                ("workflow", "run", "one"),
                ("tools", "show", f"{name}:say"),
                ("tools", "call", f"{name}:say"),
                ("tools", "show", f"node:{name}:Say"),
                ("workflow", "check", file),
            )
            for words in commands if name == "waits" else commands[: repetitions(1, 6)]:
                with failures.row(f"{name}: {words[:2]}"):
                    assert f"; the plugin {name} {why}" in said(*words, node=f"{name}:Say")
        with failures.row("a command of another name"):
            assert "it may be a command of hidden waits for review" in said("hello")


def test_a_core_node_that_is_withheld_or_mistyped_is_named(project: Path) -> None:
    file = project / "workflows" / "one.json"

    def said(*words: str | Path, node: str) -> str:
        return cannot(project, file, *words, node=node)

    with Failures() as failures:
        with failures.row("core"):
            assert tavern("--project", project, "plugins", "disable", "tavern-llm").code == 0
            told = "the plugin tavern-llm is disabled (`tavern plugins enable tavern-llm`)"
            assert told in said("workflow", "run", "one", node="core:LlmApiRequest")
        for words, meant in (
            (("workflow", "check", file), "core:TextMerge"),
            (("workflow", "run", "one"), "core:TextMerge"),
            (("workflo", "list"), "workflow"),
        ):
            with failures.row(f"a mistyped name: {words[:2]}"):
                assert re.search(f"(?i)did you mean '?{meant}", said(*words, node="core:TextMerg"))


def test_dependencies_and_grants_are_reported_together(project: Path) -> None:
    requires = {"plugins": {"no-such": ">=1", "tavern-llm": ">=99"}}
    write_plugin(project / "plugins" / "acme", requires=requires, **INTERCEPTING)
    shown = tavern("--project", project, "plugins", "show", "acme", "--json").json()
    assert shown["state"] == "needs-review"
    told = " ".join(problem["message"] for problem in shown["problems"])
    assert "which nobody has granted" in told
    assert "it requires the plugin no-such, which is not installed" in told
    assert "it requires tavern-llm >=99; 0.1" in told


def test_a_syntax_error_has_its_place_and_its_line(project: Path) -> None:
    code = {"__init__.py": "from . import nodes\n", "nodes.py": "# éé\ndef e(:\n    pass\n"}
    write_plugin(project / "plugins" / "acme", code)
    tavern("--project", project, "plugins", "grant", "acme")
    plugins = tavern("--project", project, "plugins", "list", "--check", "--json").json()
    (problem,) = next(plugin["problems"] for plugin in plugins if plugin["name"] == "acme")
    assert (problem["file"], problem["line"], problem["column"]) == (str(project / "plugins/acme/nodes.py"), 2, 7)
    assert problem["message"] == "loading: SyntaxError: invalid syntax, in `def e(:`"
