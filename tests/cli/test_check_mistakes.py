"""What `tavern plugins check` says of mistakes: each with its place and its mend, in English and in Chinese."""

from __future__ import annotations

import json
import os
import re
import zipfile
from pathlib import Path
from typing import Any

from helpers.command_line import tavern
from helpers.folder_plugins import write_plugin
from helpers.held_time import HeldClock
from helpers.repetition import Failures
from helpers.waiting import until

from tavern_devtools.api.checks import PLUGIN_CHECKS
from tavern_host import Host
from tavern_host.projects import make_project
from tavern_host.runtime.installed import catalogue
from tests.cli.mistakes import MISTAKES, Mistake

HAN = re.compile("[\u4e00-\u9fff]")
HEAD = '[project]\nname = "mistakes"\nversion = "1.0.0"\ndependencies = ["tavern-host"]\n'
DATA = '[tool.setuptools.package-data]\n"*" = ["**/*"]\n[project.entry-points."tavern_host.plugins"]\n'


def write_all(root: Path) -> None:
    """Write the plugins of all mistakes as one project."""
    entries = []
    for number, mistake in enumerate(MISTAKES):
        name, package = f"acme-{number}", f"acme_{number}"
        text = json.dumps({**mistake.manifest})
        manifest = {"description": "Fine.", **json.loads(text.replace("NAME", name))}
        files = {path.replace("NAME", name): body.replace("NAME", name) for path, body in mistake.files.items()}
        write_plugin(root / package, {"__init__.py": "", **files}, **manifest)
        entries.append(f'{name} = "{package}"\n')
    (root / "tests").mkdir()
    (root / "pyproject.toml").write_text(HEAD + DATA + "".join(entries))


def is_it(finding: dict[str, Any], mistake: Mistake, root: Path, number: int) -> bool:
    """Return whether a finding is what is to be said of a mistake."""
    place = root / f"acme_{number}"
    words = {"NAME": f"acme-{number}", "PKG": f"acme_{number}", "PATH": str(place)}
    says, mend, file = mistake.says, mistake.mend, mistake.file
    for word, value in words.items():
        says, mend, file = (text.replace(word, value) for text in (says, mend, file))
    named = finding.get("file") or f"acme_{number}/plugin.yaml"
    return (
        finding["rule"] == mistake.rule
        and finding["level"] == mistake.level
        and says in finding["message"]
        and mend in f"{finding['message']} ({finding.get('hint')})"
        and root / named == place / file
        and finding.get("line", 1) == mistake.line
    )


def test_each_mistake_is_named_with_its_place_and_mend(tmp_path: Path) -> None:
    assert len(MISTAKES) >= 60
    write_all(tmp_path)
    found = tavern("plugins", "check", tmp_path, "--json").json()["plugins"]
    chinese = catalogue("zh")
    with Failures() as failures:
        for number, (mistake, report) in enumerate(zip(MISTAKES, found, strict=True)):
            with failures.row(mistake.name):
                said = [*report["problems"], *report["warnings"]]
                named = next((one for one in said if is_it(one, mistake, tmp_path, number)), None)
                assert named is not None, "\n".join(map(str, said))
                for text in filter(None, (named["message"], named.get("hint"))):
                    assert HAN.search(chinese.say(text)), f"not in Chinese: {text}"


PROJECT = """\
[build-system]
build-backend = "{backend}"
[project]
name = "acme-inn"
version = "1.0.0"
dependencies = ["tavern-host"]
[project.entry-points."tavern_host.plugins"]
{entry} = "acme_inn"
{more}
"""
HATCH, SETUP = "hatchling.build", "setuptools.build_meta"
PACKAGE = '[tool.hatch.build.targets.wheel]\npackages = ["acme_inn"]\n'
VITE = {"frontend": {"build": {"entry": "./web/index.js"}, "dev": {"entry": "./frontend/index.js"}}}
WHEELS: list[tuple[str, str, str, dict[str, Any], list[str]]] = [
    (HATCH, PACKAGE, "acme-inn", {}, []),
    (SETUP, '[tool.setuptools.package-data]\nacme_inn = ["*.yaml", "tools/*.json"]', "acme-inn", {}, []),
    (SETUP, "", "acme-inn", {}, ["acme_inn/plugin.yaml would not be", "acme_inn/tools/a.tool.json would not be"]),
    (HATCH, f'{PACKAGE}exclude = ["*.json"]', "acme-inn", {}, ["acme_inn/tools/a.tool.json would not be in the wheel"]),
    (HATCH, PACKAGE, "acme-in", {}, ["the entry point is called 'acme-in', the manifest 'acme-inn'"]),
    (HATCH, PACKAGE, "acme-inn", VITE, ["the front end is not built: there is no ./web/index.js"]),
    (HATCH, f'{PACKAGE}[tool.hatch.build.hooks.custom]\npath = "build.py"', "acme-inn", VITE, []),
]


def test_what_would_not_be_in_the_wheel_is_named(tmp_path: Path) -> None:
    a_tool = '{"id": "a", "implementation": {"type": "node", "nodeType": "core:TextMerge"}}'
    files = {"__init__.py": "", "tools/a.tool.json": a_tool, "frontend/index.js": ""}
    chinese = catalogue("zh")
    with Failures() as failures:
        for number, (backend, more, entry, manifest, said) in enumerate(WHEELS):
            root = tmp_path / f"project-{number}"
            about = {"description": "Fine.", "tools": {"entry": "./tools"}, **manifest}
            write_plugin(root / "acme_inn", files, **about)
            (root / "tests").mkdir()
            (root / "pyproject.toml").write_text(PROJECT.format(backend=backend, entry=entry, more=more))
            (report,) = tavern("plugins", "check", root, "--no-import", "--json").json()["plugins"]
            with failures.row(f"{number}: {said}"):
                problems = [one["message"] for one in report["problems"]]
                assert [text for text, found in zip(said, problems, strict=True) if text not in found] == [], problems
                texts = [text for one in report["problems"] for text in (one["message"], one["hint"])]
                assert [text for text in texts if not HAN.search(chinese.say(text))] == []
                assert {one["rule"] for one in report["problems"]} <= {"wheel"}


MANY = """\
name: acme-inn
displayName: 5
version: one
nodez: {entry: ./nodes}
tools: {entry: ./tools}
agents: {entry: ./agents}
configOptions:
  - {key: extensions.other.a, type: string, label: A}
permissions:
  hooks: ["hook:server:host:starup"]
  ui: {inject: ["node:foter"]}
"""


def test_all_mistakes_of_a_plugin_are_said_at_once(tmp_path: Path) -> None:
    files = {"plugin.yaml": MANY, "agents/a.json": "{", "a.py": "def tavern_startup(): ...\n"}
    ran = tavern("plugins", "check", write_plugin(tmp_path / "acme_inn", files), "--format", "lines", cwd=tmp_path)
    assert ran.code == 1
    places = [line.partition(": ")[0] for line in ran.out.splitlines()]
    manifest = [place.rpartition(":")[0] for place in places if "plugin.yaml" in place]
    assert manifest == [f"acme_inn/plugin.yaml:{line}" for line in (2, 3, 4, 8, 5, 10, 11)]
    assert any(place.startswith("acme_inn/agents/a.json:") for place in places), "what can be read is checked"


ODD = {"deep": "[" * 100_000, "null": "null", "nan": '{"a": NaN}'}
KINDS = {"tools": ".tool.json", **dict.fromkeys(("workflows", "agents", "knowledge", "triggers"), ".json")}


def test_files_in_every_form_are_named_and_keep_nothing_else_from_being_checked(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "acme", {"web/index.js": "f("}, **{key: {"entry": f"./{key}"} for key in KINDS})
    for kind, suffix in KINDS.items():
        (folder / kind).mkdir()
        for name, text in ODD.items():
            (folder / kind / f"{name}{suffix}").write_text(text)
        (folder / kind / f"bytes{suffix}").write_bytes(b"\xff\xfe")
        os.mkfifo(folder / kind / f"pipe{suffix}")
        (folder / kind / f"link{suffix}").symlink_to("/etc/passwd")
    (report,) = tavern("plugins", "check", folder, "--json").json()["plugins"]
    named = {str(Path(one["file"]).relative_to(folder)) for one in report["problems"] if one["rule"] in KINDS}
    with Failures() as failures:
        for kind, suffix in KINDS.items():
            for name in (*ODD, "bytes", "pipe", "link"):
                with failures.row(f"{kind}/{name}"):
                    assert f"{kind}/{name}{suffix}" in named
    assert [one for one in report["problems"] if one["rule"] == "host"] == []


def test_files_of_a_wheel_are_named_as_they_are_in_it(tmp_path: Path) -> None:
    manifest = "name: acme-inn\ndisplayName: Inn\nversion: 1.0.0\ndescription: Fine.\ntools: {entry: ./tools}\n"
    entry = "[tavern_host.plugins]\nacme-inn = acme_inn\n"
    files = {"acme_inn/plugin.yaml": manifest, "acme_inn/tools/a.tool.json": "{", "a.dist-info/entry_points.txt": entry}
    with zipfile.ZipFile(tmp_path / "acme_inn-1.0.0-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    ran = tavern("plugins", "check", tmp_path / "acme_inn-1.0.0-py3-none-any.whl", "--format", "lines")
    assert ran.out.startswith("acme_inn/tools/a.tool.json:1:2: error: is not JSON")


def test_findings_are_shown_to_editors_and_ci(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "acme_inn", {"tools/a.tool.json": '{\n "id": 5'}, tools={"entry": "./tools"})
    ran = tavern("plugins", "check", folder, "--format", "lines", cwd=tmp_path)
    tool, *_ = [line for line in ran.out.splitlines() if "a.tool.json" in line]
    assert (ran.code, ran.error) == (1, "Error: 1 problem with acme-inn")
    assert re.fullmatch(r"acme_inn/tools/a\.tool\.json:2:\d+: error: is not JSON: .* \[tools\]", tool)
    assert "acme_inn/plugin.yaml:1:1: warning: the manifest has no description" in ran.out
    chinese = tavern("plugins", "check", folder, "--format", "lines", cwd=tmp_path, LC_ALL="zh_CN.UTF-8")
    assert all(HAN.search(line) for line in chinese.out.splitlines())

    shown = json.loads(tavern("plugins", "check", folder, "--format", "sarif", cwd=tmp_path).out)
    (results,) = [run["results"] for run in shown["runs"]]
    place = {one["ruleId"]: one["locations"][0]["physicalLocation"] for one in results}["tools"]
    assert (shown["version"], place["artifactLocation"]["uri"]) == ("2.1.0", "acme_inn/tools/a.tool.json")
    assert place["region"]["startLine"] == 2
    wrong = tavern("plugins", "check", folder, "--format", "xml")
    assert (wrong.code, "--format is text, lines, sarif, got 'xml'" in wrong.error) == (2, True)


BROKEN = {"tools/a.tool.json": json.dumps({"id": "a", "implementation": {"type": "workflow", "workflowId": "gone"}})}


def test_a_list_that_checks_says_the_same(tmp_path: Path) -> None:
    make_project(tmp_path / "inn")
    write_plugin(tmp_path / "inn" / "plugins" / "acme", BROKEN, tools={"entry": "./tools"})
    ran = tavern("--project", tmp_path / "inn", "plugins", "list", "--check", "--json")
    (acme,) = [one for one in ran.json() if one["name"] == "acme"]
    assert [one["message"] for one in acme["problems"]] == ["there is no workflow gone"]


async def test_a_host_that_serves_says_the_same(tmp_path: Path, held_clock: HeldClock) -> None:
    folder = write_plugin(tmp_path / "acme", BROKEN, tools={"entry": "./tools"})
    async with Host(tmp_path / "inn", plugins=[folder], serving=True) as host:
        assert host.plugin("acme").problems == []
        held_clock.advance(5)
        await until(lambda: bool(host.plugin("acme").problems))
        (problem,) = host.plugin("acme").problems
        assert (problem.message, problem.hint) == ("there is no workflow gone", "correct the id, or add the workflow")
        assert (problem.file, problem.line) == (str(folder / "tools" / "a.tool.json"), 1)
        checked = await host.services.get(PLUGIN_CHECKS).check_loaded()
        assert [(one.plugin, len(one.findings)) for one in checked] == [("acme", 1)]
        assert len(host.plugin("acme").problems) == 1, "it is said once"
