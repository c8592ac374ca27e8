"""`tavern plugins new` and `tavern plugins check`: what the author of a plugin gets before anybody installs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import FEW_PLUGINS, Ran, tavern
from helpers.folder_plugins import write_plugin
from helpers.repetition import Failures

from tavern_devtools import inspection
from tavern_devtools.inspection import Candidate, inspected
from tavern_devtools.parts import PARTS
from tavern_devtools.scaffold import Scaffold, api_range, scaffold, write
from tavern_host import InvalidInput
from tavern_host.contracts.errors import Conflict
from tavern_host.projects import make_project

STUDIO = Path(__file__).parents[3] / "plugins" / "tavern_studio"
LONG = "a-name-as-long-as-the-name-of-a-plugin-may-ever-be"


def python(*arguments: str | Path, cwd: Path, **environment: str) -> str:
    """Run a tool as an author does, which has to succeed; return what it says."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "TAVERN_"))} | environment
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# --- plugins new ------------------------------------------------------------------------------------------


@pytest.mark.timeout(900)
def test_new_plugins_are_in_order_and_work(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """One of each kind; the tests of those with a front end use a browser."""
    kinds = {LONG: [], "x": ["--minimal"], "acme-plain": ["--ui", "plain"], "acme-counter": ["--ui", "vue"]}
    kinds |= {f"acme-{part}": [f"--{part}"] for part in PARTS}
    kinds["acme-parts"] = [*(f"--{part}" for part in PARTS), "--ui", "vanilla"]
    for name, options in kinds.items():
        made = tavern("plugins", "new", name, *options, "--json", cwd=tmp_path).json()
        files = {path.relative_to(tmp_path / name).as_posix() for path in (tmp_path / name).rglob("*.*")}
        assert (made["name"], made["folder"]) == (name, str(tmp_path / name))
        assert set(made["files"]) == {file for file in files if (tmp_path / name / file).is_file()}
    built = _built(tmp_path / "acme-counter")
    for checked in (["check"], ["format", "--check"]):
        python("ruff", *checked, "--no-cache", ".", cwd=tmp_path)
    others = ["acme-plain", "acme-parts", *(["acme-counter"] if built else [])]
    parts = [f"acme-{part}" for part in PARTS]
    cache: pytest.Cache | None = getattr(pytestconfig, "cache", None)  # of what is known of the libraries
    typed = ["--cache-dir", cache.mkdir("mypy") if cache else tmp_path / ".mypy", "--strict"]
    packages = [tmp_path / name / name.replace("-", "_") for name in ("x", *others, *parts)]
    python("mypy", *typed, LONG.replace("-", "_"), "tests", *packages, cwd=tmp_path / LONG)

    told = python("pytest", "-p", "no:cacheprovider", cwd=tmp_path / LONG, **FEW_PLUGINS)
    assert "7 passed" in told and "warning" not in told
    at_once = ["--import-mode", "importlib", "-c", "x/pyproject.toml", "--rootdir", ".", "-p", "no:cacheprovider"]
    told = python(
        "pytest", *at_once, *(f"{name}/tests" for name in ("x", *others, *parts)), cwd=tmp_path, **FEW_PLUGINS
    )
    assert "failed" not in told and ("skipped" not in told or "there is no browser" in told)
    for name in (LONG, "x", *others, *parts):
        found = report(tavern("plugins", "check", tmp_path / name, "--json"))
        assert (found["name"], found["problems"], found["warnings"]) == (name, [], [])
    for name in (LONG, "x", "acme-plain", "acme-parts", *parts):
        python("hatchling", "build", "-t", "wheel", cwd=tmp_path / name)
        (wheel,) = (tmp_path / name / "dist").glob("*.whl")
        assert report(tavern("plugins", "check", wheel, "--json"))["problems"] == []


def _built(folder: Path) -> bool:
    """Build a plugin with Vue into a wheel, if the packages of its front end are there."""
    packages = STUDIO / "frontend" / "node_modules"
    if not packages.is_dir():
        return False
    link = folder / "acme_counter" / "frontend" / "node_modules"
    link.symlink_to(packages)
    python("hatchling", "build", "-t", "wheel", cwd=folder)
    link.unlink()
    with zipfile.ZipFile(next((folder / "dist").glob("*.whl"))) as wheel:
        assert {"acme_counter/web/index.js", "acme_counter/web/style.css"} <= {*wheel.namelist()}
    return True


def test_it_is_said_what_was_written(tmp_path: Path) -> None:
    (tmp_path / "inn").mkdir()
    (tmp_path / "inn" / "LICENSE").write_text("mine")
    ran = tavern("plugins", "new", "acme-inn", "--folder", "inn", cwd=tmp_path)
    lines = ran.out.splitlines()
    assert lines[0] == f"Made the plugin acme-inn in {tmp_path / 'inn'}:"
    assert "  acme_inn/plugin.yaml" in lines and (tmp_path / "inn" / "acme_inn" / "plugin.yaml").is_file()
    wheel = "dist/acme_inn-0.1.0-py3-none-any.whl"
    commands = [line.strip() for line in lines[lines.index("  cd inn") :] if line.startswith("  ")]
    assert commands == [
        *("cd inn", "pip install -e '.[test]'", "pytest", "tavern plugins check .", "tavern --dev acme_inn serve"),
        *("pip wheel . --no-deps -w dist", f"tavern plugins check {wheel}"),
        *("pip uninstall acme-inn  # which `pip install -e` has put here", f"tavern plugins install {wheel}"),
    ]
    assert (tmp_path / "inn" / "LICENSE").read_text() == "mine"


def test_what_cannot_be_made_is_refused(tmp_path: Path) -> None:
    rows = [
        (["Acme Inn"], "lower-case letters and digits, words joined by '-' (did you mean 'acme-inn'?)"),
        (["acme-inn", "--ui", "react"], "--ui is vue or vanilla, got 'react'"),
        (["acme-inn", "--ui", "vue", "--minimal"], "leave out --minimal or --ui"),
        (["acme-inn", "--tool", "--minimal"], "leave out --minimal or --tool"),
    ]
    for words, message in rows:
        ran = tavern("plugins", "new", "--folder", "new", *words, cwd=tmp_path)
        assert (ran.code, message in ran.error) == (2, True)
    names = {
        **dict.fromkeys(("acme_inn", "AcmeInn"), "(did you mean 'acme-inn'?)"),
        "Ämter": "(did you mean 'amter'?)",
        "2nd-inn": "(did you mean 'nd-inn'?)",
        "../inn": "(did you mean 'inn'?)",
        **dict.fromkeys(("", "酒馆"), "must be kebab-case"),
        "core": "the name 'core' is the host's own (did you mean 'my-core'?)",
        "tavern-host": "must be another name; 'tavern-host' is the host itself",
        "json": "'json' is Python's own (did you mean 'my-json'?)",
        "class": "'class' is Python's own",
        "pydantic": "a package 'pydantic' is installed already",
        "tavern-engine": "a package 'tavern_engine' is installed already",
        f"{LONG}-x": "has 52 characters; it may have 50",
    }
    with Failures() as failures:
        for name, message in names.items():
            with failures.row(name), pytest.raises(InvalidInput) as refused:
                scaffold(name)
            assert message in refused.value.message, name
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_ever_written_over(tmp_path: Path) -> None:
    (tmp_path / "acme-inn" / "tests").mkdir(parents=True)
    precious = tmp_path / "acme-inn" / "tests" / "conftest.py"
    precious.write_text("mine")
    (tmp_path / "acme-inn" / "README.md").symlink_to(tmp_path / "elsewhere")

    ran = tavern("plugins", "new", "acme-inn", cwd=tmp_path)

    assert ran.code == 2
    assert "has README.md, tests/conftest.py already; nothing was written" in ran.error
    assert precious.read_text() == "mine"
    assert not (tmp_path / "elsewhere").exists()
    assert sorted(p.name for p in (tmp_path / "acme-inn").iterdir()) == ["README.md", "tests"]


def test_what_cannot_be_finished_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "new" / "sub").mkdir(parents=True)
    new = Scaffold("acme", "acme", {"a/deep/one.py": "1", "b.py": "2", "sub": "a folder stands here"})
    with pytest.raises(Conflict):
        write(new, tmp_path / "new")
    new = Scaffold("acme", "acme", {"a/deep/one.py": "1", "b.py": "2", "b.py/c.py": "beneath a file"})
    with pytest.raises(InvalidInput, match="cannot be written: "):
        write(new, tmp_path / "new")
    assert [p.name for p in (tmp_path / "new").rglob("*")] == ["sub"]


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs a user who may not write everywhere")
def test_a_folder_that_may_not_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "shut").mkdir(mode=0o500)
    ran = tavern("plugins", "new", "acme-inn", cwd=tmp_path / "shut")
    assert (ran.code, "cannot be written: Permission denied" in ran.error) == (2, True)


def test_what_a_template_says_fits() -> None:
    ranges = {"0.1.0": ">=0.1,<0.2", "0.9.3": ">=0.9,<0.10", "1.2.0": ">=1.2,<2", "2.0.1rc1": ">=2.0,<3"}
    assert {version: api_range(version) for version in ranges} == ranges
    files = scaffold("on").files  # which YAML would read as true
    assert 'name: "on"' in files["on/plugin.yaml"]
    assert not [path for path in files if "$" in path or "${" in files[path]]


# --- plugins check ----------------------------------------------------------------------------------------


async def test_nothing_is_wrong_with_plugins_that_are_in_order() -> None:
    manifests = [
        path
        for where in ("plugins/*", "contrib/*/*")
        for path in sorted(STUDIO.parents[1].glob(f"{where}/plugin.yaml"))
    ]
    # git-workflows overrides what my-awesome-plugin does too; tests/cli/test_examples.py checks it alone
    folders = [path.parent for path in manifests if path.parent.name != "git_workflows"]
    assert len(folders) > 30
    with inspected([Candidate(folder, str(folder)) for folder in folders]) as inspection, Failures() as failures:
        for folder, report in zip(folders, await inspection.reports(imports=True), strict=True):
            with failures.row(folder.name):
                assert [str(one) for one in (*report.problems, *report.warnings)] == []


FINE: dict[str, Any] = {"description": "Fine.", "permissions": {"hooks": ["hook:server:host:startup"]}}
FINE_CODE = "from tavern_host import hookimpl\n\n@hookimpl\ndef tavern_startup(context):\n    raise SystemExit\n"


def check(*arguments: str | Path) -> Ran:
    return tavern("plugins", "check", *arguments)


def report(ran: Ran) -> dict[str, Any]:
    """Return the one report that was given."""
    (found,) = ran.json()["plugins"]
    return dict(found)


def said(problems: list[dict[str, Any]]) -> list[str]:
    return [problem["message"] for problem in problems]


def test_a_folder_is_checked_apart_from_the_machine(tmp_path: Path, operator_folders: Path) -> None:
    """It is imported and not started; neither a project nor its plugins are needed, or changed."""
    code = f"open({str(tmp_path / 'imported')!r}, 'w').close()\nprint('I am printed')\n{FINE_CODE}"
    folder = write_plugin(tmp_path / "acme_inn", {"__init__.py": code}, **FINE)
    project = tmp_path / "project"
    make_project(project)
    write_plugin(project / "plugins" / "other", {"__init__.py": "raise RuntimeError('imported')\n"}, **FINE)
    (project / "plugins" / "broken").mkdir()
    before = {path for path in tmp_path.rglob("*") if "__pycache__" not in path.parts}

    chinese = {"LANGUAGE": "", "LC_ALL": "zh_CN.UTF-8"}
    unread = tavern("--project", tmp_path, "plugins", "check", folder, "--no-import", **chinese)  # which is no project
    assert (unread.code, (tmp_path / "imported").exists()) == (0, False)
    assert "只看了它的文件：没有导入其代码" in unread.out
    words = unread.out.split()
    assert words[words.index("增加") :][:3] == ["增加", "hook:server:host:startup", "在宿主启动时做一些事。"]
    assert report(tavern("--project", project, "plugins", "check", folder, "--json"))["state"] == "loaded"
    (tmp_path / "imported").unlink()
    after = {path for path in tmp_path.rglob("*") if "__pycache__" not in path.parts}
    assert (after, operator_folders.exists()) == (before, False)

    (project / "tavern.yaml").write_text("nonsense: [")
    (operator_folders / "config").mkdir(parents=True)
    (operator_folders / "config" / "host.yaml").write_text("nonsense: [")
    ran = tavern("--project", project, "plugins", "check", folder)
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "The host finds nothing wrong with acme-inn.")
    assert ran.err.splitlines() == [f"Importing {folder} to see what it registers …", "I am printed"]
    assert "hook: tavern_startup" in ran.out and "I am printed" not in ran.out


WRONG: list[tuple[dict[str, str], dict[str, Any], list[str]]] = [
    ({}, {"apiVersion": ">=9"}, ["it is made for tavern-host >=9; this is "]),
    ({"plugin.yaml": "name: acme-1\ndisplayName: Inn\nversion: one\n"}, {}, ["must be a version"]),
    ({}, {"permissions": {"hooks": ["hook:server:host:starup"]}}, ["there is no permission 'hook:server:host:sta"]),
    ({}, {"tools": {"entry": "./tools"}}, ["tools.entry: there is no folder 'tools'"]),
    ({"tools/a.tool.json": "{}"}, {}, ["tools: there is a folder 'tools' that no entry names"]),
    ({"__init__.py": "import nothing_like_it"}, {}, ["No module named 'nothing_like_it'"]),
    ({"__init__.py": "raise SystemExit(3)"}, {}, ["tried to end the program"]),
    ({"__init__.py": FINE_CODE.replace("startup", "statup")}, {}, ["there is no hook 'tavern_statup'"]),
    (
        {"nodes/__init__.py": "from tavern_host import node\n@node()\ndef f(x: set) -> str: ...\n"},
        {"nodes": {"entry": "./nodes"}},
        ["slot 'x': <class 'set'> has no data-flow type"],
    ),
    ({"tools/a.tool.json": '{"id": "a"'}, {"tools": {"entry": "./tools"}}, ["is not JSON: Expecting"]),
    (
        {
            "__init__.py": "from tavern_host import *\n@hookimpl\ndef tavern_register_commands():\n"
            "    return [CommandInfo.model_construct(name='acme', help=5, handler=f'{__name__}:x')]\n"
        },
        {"permissions": {"hooks": ["hook:server:commands:register"]}},
        ["its result is no wire value: [0].help: expected str, found int"],
    ),
    (
        {"tools/a.tool.json": json.dumps({"id": "a", "implementation": {"type": "node", "nodeType": "acme:Gone"}})},
        {"description": "", "tools": {"entry": "./tools"}},
        [],
    ),
]
"""The files and the manifest of a plugin, and what is wrong with it; the last one has warnings alone."""


def test_what_the_host_would_find_wrong_is_told(tmp_path: Path) -> None:
    entries = [f'acme-{number} = "acme_{number}"' for number in range(len(WRONG))]
    (tmp_path / "pyproject.toml").write_text(PYPROJECT.replace('acme-inn = "acme_inn"', "\n".join(entries)))
    for number, (files, manifest, _) in enumerate(WRONG):
        write_plugin(tmp_path / f"acme_{number}", {"__init__.py": "", **files}, **{"description": "Fine.", **manifest})
    ran = check(tmp_path, "--json")
    assert ran.code == 1
    found = {Path(one["path"]).name: one for one in ran.json()["plugins"]}
    with Failures() as failures:
        for number, (_, _, messages) in enumerate(WRONG):
            with failures.row(number):
                problems = said(found[f"acme_{number}"]["problems"])
                assert len(problems) == len(messages), problems
                assert [m for m, text in zip(messages, problems, strict=True) if m not in text] == [], problems
    (problem,) = found["acme_1"]["problems"]
    assert (problem["file"], problem["line"], problem["column"] >= 1) == ("acme_1/plugin.yaml", 3, True)
    assert {
        "the manifest has no description; it is what operators read first",
        "there is no node acme:Gone",
    } <= {*said(found[f"acme_{len(WRONG) - 1}"]["warnings"])}


def test_problems_are_shown_and_counted(tmp_path: Path) -> None:
    code = FINE_CODE.replace("(context)", "(kontext)")
    ran = check(write_plugin(tmp_path / "acme_inn", {"__init__.py": code}, description="Fine."))
    assert (ran.code, ran.error) == (1, "Error: 2 problems with acme-inn")
    problems = [line for line in ran.out.splitlines() if line.startswith("problem: ")]
    assert f"{tmp_path / 'acme_inn' / '__init__.py'}:3: " in problems[0]
    assert "the hook tavern_startup has no argument 'kontext'" in problems[0]
    assert "the hook tavern_startup is not declared" in problems[1]
    assert len(problems) == 2


PYPROJECT = """\
[project]
name = "acme-inn"
version = "1.0.0"
dependencies = ["tavern-host"]
[project.entry-points."tavern_host.plugins"]
acme-inn = "acme_inn"
[tool.setuptools.package-data]
"*" = ["**/*"]
"""


def write_project(root: Path, pyproject: str = PYPROJECT, source: str = ".") -> Path:
    """Write a project that is in order."""
    write_plugin(root / source / "acme_inn", {"__init__.py": FINE_CODE}, **FINE)
    (root / "tests").mkdir()
    (root / "pyproject.toml").write_text(pyproject)
    return root


def test_a_project_is_found_by_its_entry_point(tmp_path: Path) -> None:
    hatch = '[tool.hatch.build.targets.wheel]\npackages = ["plugins/acme_inn"]\n'
    for source, added, how in ((".", "", []), ("src", "", ["--no-import"]), ("plugins", hatch, ["--no-import"])):
        root = tmp_path / f"project-{source}"
        found = report(check(write_project(root, PYPROJECT + added, source), "--json", *how))
        assert (found["name"], found["problems"], found["warnings"]) == ("acme-inn", [], [])
        assert found["path"] == str(root / source / "acme_inn")
        assert "code:" not in json.dumps(found["permissions"]), "installed code is not reviewed file by file"


def test_a_project_that_is_odd_is_told(tmp_path: Path) -> None:
    entry, needs, version = '= "acme_inn"', '["tavern-host"]', 'version = "1.0.0"'
    warned = "it does not depend on tavern-host, so pip installs it where it cannot run"
    rows = [
        (f"acme-inn {entry}", f"acme-in {entry}", "problems", "the entry point is called 'acme-in', the manifest"),
        (entry, '= "acme"', "problems", "names the package 'acme', which is neither in"),
        (entry, '= "../../etc"', "problems", "the entry point 'acme-inn' names '../../etc', which is no package"),
        (entry, '= "/etc"', "problems", "which is no package"),
        (version, 'version = "1.1.0"', "warnings", "the project's version is 1.1.0, the manifest's 1.0.0"),
        (needs, "[]", "warnings", warned),
        (needs, "5", "warnings", warned),
    ]
    project = write_project(tmp_path / "project")
    with Failures() as failures:
        for old, new, kind, message in rows:
            (project / "pyproject.toml").write_text(PYPROJECT.replace(old, new))
            with failures.row(new):
                ran = check(project, "--json", "--no-import")
                assert ran.code == (kind == "problems")
                assert message in said(report(ran)[kind])[0]
                assert kind == "problems" or len(report(ran)["warnings"]) == 1


def test_what_is_no_plugin_is_told(tmp_path: Path) -> None:
    group = "has no entry point in the group tavern_host.plugins"
    odd = '[project.entry-points."tavern-host.plugins"]\na = "a"'
    rows = {
        "[project": "pyproject.toml cannot be read: ",
        "": f"{group} (add [project.entry-points",
        odd: f"{group} (tavern-host.plugins must be called so)",
        "project = 5": "has no entry point in the group",
    }
    (tmp_path / "project").mkdir()
    with Failures() as failures:
        for pyproject, message in rows.items():
            (tmp_path / "project" / "pyproject.toml").write_text(pyproject)
            with failures.row(pyproject):
                ran = check(tmp_path / "project")
                assert (ran.code, message in ran.error) == (2, True), ran.err
        for file in ("file.txt", "not.whl"):
            (tmp_path / file).write_text("x")
        os.mkfifo(tmp_path / "pipe.whl")
        for path, message in (
            ("gone", "there is no "),
            ("file.txt", "give a plugin's folder, its project's folder, or a wheel"),
            ("not.whl", "is no wheel that can be read"),
            ("pipe.whl", "is no plugin"),
            (".", "has neither a plugin.yaml nor a pyproject.toml"),
        ):
            with failures.row(path):
                ran = check(tmp_path / path)
                assert (ran.code, message in ran.error) == (2, True), ran.err


def test_an_installed_plugin_is_checked_in_its_folder(tmp_path: Path) -> None:
    project = write_project(tmp_path / "project")
    info = project / "acme_inn-1.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-inn\nVersion: 1.0.0\n")
    (info / "entry_points.txt").write_text("[tavern_host.plugins]\nacme-inn = acme_inn\n")
    (info / "RECORD").write_text("acme_inn/__init__.py,,\nacme_inn/plugin.yaml,,\n")
    path = f"{project}:{os.environ.get('PYTHONPATH', '')}"
    for part in (".", "acme_inn"):
        found = report(tavern("plugins", "check", project / part, "--json", PYTHONPATH=path))
        assert (found["name"], found["state"], found["imported"]) == ("acme-inn", "loaded", True)
        assert found["problems"] == []


# --- wheels -----------------------------------------------------------------------------------------------

MANIFEST = "name: acme-inn\ndisplayName: Inn\nversion: 1.0.0\ndescription: Fine.\n"
ENTRY = "[console_scripts]\nx = a:b\n[tavern_host.plugins]\nacme-inn = acme_inn\n"
INFO = "acme_inn-1.0.0.dist-info/entry_points.txt"
YAML = "acme_inn/plugin.yaml"


def test_wheels_are_read_and_never_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker, box = tmp_path / "imported", tmp_path / "a" / "b" / "c"
    box.mkdir(parents=True)
    marking = {"acme_inn/__init__.py": f"open({str(marker)!r}, 'w').close()"}
    fine = "looked at its files alone: a wheel is read, not imported"
    rows: list[tuple[Mapping[str, str], int, str]] = [
        ({**marking, YAML: MANIFEST, INFO: ENTRY}, 0, fine),
        ({INFO: ENTRY}, 1, "there is no acme_inn/plugin.yaml in the wheel"),
        ({YAML: MANIFEST + "tools: {entry: ./tools}\n", INFO: ENTRY}, 1, "tools.entry: there is no folder 'tools'"),
        ({YAML: "name: [", INFO: ENTRY}, 1, "acme_inn/plugin.yaml:1:"),
        ({YAML: MANIFEST}, 2, "holds no plugin: it has no entry point in the group"),
        ({INFO: "what is this"}, 2, "its entry_points.txt is damaged"),
        ({INFO: ENTRY.replace("= acme_inn", "= /etc/x")}, 1, "which is no package"),
        ({INFO: ENTRY.replace("= acme_inn", "= ..")}, 1, "which is no package"),
        ({f"../../../{YAML}": MANIFEST, f"/{YAML}": MANIFEST, INFO: ENTRY}, 0, "nothing wrong with acme-inn"),
        ({f"big/{number}": "0" * (1 << 20) for number in range(3)}, 2, "more than 20000 files or 2 MiB; no plugin do"),
    ]
    monkeypatch.setattr(inspection, "MAX_BYTES", 2 << 20)
    with Failures() as failures:
        for files, code, message in rows:
            with zipfile.ZipFile(box / "acme_inn-1.0.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
                for name, text in files.items():
                    wheel.writestr(name, text)
            with failures.row(message):
                ran = tavern("plugins", "check", box / "acme_inn-1.0.0-py3-none-any.whl", cwd=tmp_path)
                assert (ran.code, message in ran.out + ran.err) == (code, True), ran.out + ran.err
                assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["acme_inn-1.0.0-py3-none-any.whl"]
