"""The plugin in the readme, made of its text alone: checked, built, installed, found in an index, and used."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

from documentation.pages import Page
from helpers.command_line import tavern

from tests.real.packages.test_packages import KEY, plugins

WHEEL = "acme_words-1.0.0-py3-none-any.whl"
FLOW = {
    "name": "Turn",
    "nodes": [
        {"id": "in", "type": "core:GroupInput"},
        {"id": "turn", "type": "acme-words:Reverse"},
        {"id": "out", "type": "core:GroupOutput"},
    ],
    "edges": [
        {"id": "a", "source": "in", "sourceHandle": "text", "target": "turn", "targetHandle": "text"},
        {"id": "b", "source": "turn", "sourceHandle": "result", "target": "out", "targetHandle": "text"},
    ],
    "interfaceInputs": {"text": {"dataFlowType": "STRING"}},
    "interfaceOutputs": {"text": {"dataFlowType": "STRING"}},
}


def written(root: Path) -> list[str]:
    """Write the files that the readme shows; return its commands."""
    commands: list[str] = []
    for snippet in Page.read("README.md").snippets:
        said = snippet.directive or ""
        if said.startswith("file "):
            file = root / said.removeprefix("file ")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(snippet.text, encoding="utf-8")
        elif Path(__file__).name in said and snippet.language == "console":
            commands += [line.removeprefix("$ ") for line in snippet.text.splitlines()]
        elif Path(__file__).name in said and snippet.language == "json":
            (root / "index.json").write_text(snippet.text)
    return commands


def test_the_readme_has_the_whole_of_a_plugin(project: Path, tmp_path: Path) -> None:
    root = tmp_path / "acme-words"
    new, check, build, check_wheel, install = written(root)
    made = tavern(*new.split()[1:], "--folder", "new", cwd=tmp_path)
    assert (made.code, (tmp_path / "new" / "acme_words" / "nodes" / "reverse.py").is_file()) == (0, True)

    checked = tavern(*check.split()[1:], "--json", cwd=root).json()["plugins"]
    assert [(one["name"], one["problems"]) for one in checked] == [("acme-words", [])]
    assert [one["rule"] for one in checked[0]["warnings"]] == ["tests"], "which `plugins new` writes"
    isolated = [*build.split()[1:], "--no-build-isolation", "-q"]
    built = subprocess.run(
        [sys.executable, "-m", "pip", *isolated], cwd=root, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    checked = tavern(*check_wheel.split()[1:], "--json", cwd=root).json()["plugins"]
    assert [one["problems"] for one in checked] == [[]]

    words = install.split()[1:]
    installed = tavern("--project", project, *words, "--grant", cwd=root)
    assert installed.code == 0, installed.err
    assert "acme-words:Reverse" in tavern("--project", project, "nodes", "list").out
    (project / "workflows").mkdir(exist_ok=True)
    (project / "workflows" / "turn.json").write_text(json.dumps(FLOW))
    run = tavern("--project", project, "workflow", "run", "turn", "--input", "text=abc", "--json")
    assert (run.code, "cba" in run.out) == (0, True), run.out + run.err
    refused = tavern("--project", project, "workflow", "run", "turn", "--input", "text=secret")
    assert (refused.code, "not that word" in refused.out + refused.err) == (1, True)

    assert tavern("--project", project, "plugins", "uninstall", "acme-words").code == 0
    (entry,) = json.loads((root / "index.json").read_text())["plugins"]
    assert entry.pop("url").endswith(f"/{WHEEL}")
    entry |= {"path": f"dist/{WHEEL}", "sha256": hashlib.sha256((root / "dist" / WHEEL).read_bytes()).hexdigest()}
    (root / "index.json").write_text(json.dumps({"plugins": [entry]}))
    index = {KEY.rpartition(".")[2]: str(root / "index.json")}
    assert "Turns texts round." in plugins(project, "search", "texts", **index).out
    found = plugins(project, "install", "acme-words", "--grant", **index)
    assert (found.code, "acme-words 1.0.0 is installed" in found.out) == (0, True), found.out + found.err
