"""`tavern plugins new` and `tavern plugins check`: what the author of a plugin gets before anybody installs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import FEW_PLUGINS, Ran, tavern
from helpers.folder_plugins import write_plugin
from helpers.repetition import Failures

from tavern_devtools.scaffold import Scaffold, api_range, scaffold, write
from tavern_host import InvalidInput
from tavern_host.cli.terminal import run
from tavern_host.contracts.errors import Conflict
from tavern_host.projects import make_project

STUDIO = Path(__file__).parents[2] / "plugins" / "tavern_studio"
LONG = "a-name-as-long-as-the-name-of-a-plugin-may-ever-be"


def python(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a tool as an author does."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "TAVERN_"))} | environment
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=variables, capture_output=True, text=True, check=False, timeout=120
    )


# --- plugins new ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mypy_cache(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a folder for what the type checker remembers of the libraries, kept between runs of the tests."""
    cache: pytest.Cache | None = getattr(pytestconfig, "cache", None)
    return str(cache.mkdir("mypy") if cache else tmp_path_factory.mktemp("mypy"))


@pytest.mark.parametrize(
    ("name", "options"), [(LONG, []), ("x", ["--minimal"]), pytest.param("x", [], marks=pytest.mark.extended)]
)
def test_a_new_plugin_is_in_order_and_its_tests_pass(
    tmp_path: Path, mypy_cache: str, name: str, options: list[str]
) -> None:
    made = tavern("plugins", "new", name, *options, "--json", cwd=tmp_path).json()
    folder, package = tmp_path / name, name.replace("-", "_")
    assert (made["name"], made["folder"]) == (name, str(folder))
    assert sorted(made["files"]) == sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())

    tested = python("-m", "pytest", "-p", "no:cacheprovider", cwd=folder, **FEW_PLUGINS)
    assert tested.returncode == 0, tested.stdout
    assert "passed" in tested.stdout and "warning" not in tested.stdout
    for tool in (
        ["ruff", "check", "--no-cache", "."],
        ["ruff", "format", "--no-cache", "--check", "."],
        ["mypy", "--strict", "--cache-dir", mypy_cache, package, "tests"],
    ):
        done = python("-m", *tool, cwd=folder)
        assert done.returncode == 0, done.stdout + done.stderr

    report = tavern("plugins", "check", folder, "--json").json()
    assert report["ok"] is True
    assert [(p["name"], p["problems"], p["warnings"]) for p in report["plugins"]] == [(name, [], [])]


@pytest.mark.parametrize("kind", ["plain", "vue"])
def test_a_new_front_end_is_in_order_and_works_in_a_browser(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "acme-counter"
    assert tavern("plugins", "new", "acme-counter", "--ui", kind, cwd=tmp_path).code == 0
    if kind == "vue":
        packages = STUDIO / "frontend" / "node_modules"
        if not packages.is_dir():
            pytest.skip("its packages are not installed: pip install -e '.[test]' after removing tavern_studio/web")
        link = folder / "acme_counter" / "frontend" / "node_modules"
        link.symlink_to(packages)
        built = python("-m", "hatchling", "build", "-t", "wheel", cwd=folder)
        assert built.returncode == 0, built.stdout + built.stderr
        link.unlink()
        with zipfile.ZipFile(next((folder / "dist").glob("*.whl"))) as wheel:
            assert {"acme_counter/web/index.js", "acme_counter/web/style.css"} <= {*wheel.namelist()}
        for checked in (["check"], ["format", "--check"]):
            assert python("-m", "ruff", *checked, "--no-cache", ".", cwd=folder).returncode == 0
    report = tavern("plugins", "check", folder, "--json").json()
    assert [(p["name"], p["problems"], p["warnings"]) for p in report["plugins"]] == [("acme-counter", [], [])]
    tested = python("-m", "pytest", "-p", "no:cacheprovider", cwd=folder, **FEW_PLUGINS)
    assert tested.returncode == 0, tested.stdout
    assert "2 passed" in tested.stdout or "there is no browser" in tested.stdout


def test_a_front_end_is_of_one_kind(tmp_path: Path) -> None:
    for options, message in (
        (["--ui", "react"], "--ui is vue or plain, got 'react'"),
        (["--ui", "vue", "--minimal"], "--minimal has no front end: leave out --minimal or --ui"),
    ):
        ran = tavern("plugins", "new", "acme-inn", *options, cwd=tmp_path)
        assert (ran.code, message in ran.error) == (2, True)
        assert not (tmp_path / "acme-inn").exists()


def test_it_is_said_what_was_written_and_what_comes_next(tmp_path: Path) -> None:
    ran = tavern("plugins", "new", "acme-inn", "--folder", "inn", cwd=tmp_path)
    lines = ran.out.splitlines()
    assert lines[0] == f"Made the plugin acme-inn in {tmp_path / 'inn'}:"
    assert "  acme_inn/plugin.yaml" in lines
    assert [line.strip() for line in lines[-4:]] == [
        *("cd inn", "pip install -e '.[test]'", "pytest", "tavern plugins check .")
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "Acme Inn",
            "must be kebab-case: lower-case letters and digits, words joined by '-' (did you mean 'acme-inn'?)",
        ),
        ("acme_inn", "(did you mean 'acme-inn'?)"),
        ("AcmeInn", "(did you mean 'acme-inn'?)"),
        ("Ämter", "(did you mean 'amter'?)"),
        ("2nd-inn", "(did you mean 'nd-inn'?)"),
        ("../inn", "(did you mean 'inn'?)"),
        ("", "must be kebab-case"),
        ("酒馆", "must be kebab-case"),
        ("core", "the name 'core' is the host's own (did you mean 'my-core'?)"),
        ("tavern-host", "must be another name; 'tavern-host' is the host itself"),
        ("json", "'json' is Python's own (did you mean 'my-json'?)"),
        ("class", "'class' is Python's own"),
        ("pydantic", "a package 'pydantic' is installed already"),
        ("tavern-engine", "a package 'tavern_engine' is installed already"),
        (f"{LONG}-x", "has 52 characters; it may have 50"),
    ],
)
def test_a_name_that_cannot_be_is_refused_before_anything_is_written(tmp_path: Path, name: str, message: str) -> None:
    ran = tavern("plugins", "new", "--folder", "new", "--", name, cwd=tmp_path)
    assert ran.code == 2
    assert message in ran.error
    assert not (tmp_path / "new").exists()


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


def test_files_of_other_names_stay_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "LICENSE").write_text("mine")
    assert tavern("plugins", "new", "acme-inn", "--folder", ".", cwd=tmp_path).code == 0
    assert (tmp_path / "LICENSE").read_text() == "mine"
    assert (tmp_path / "acme_inn" / "plugin.yaml").is_file()


def test_what_cannot_be_finished_leaves_nothing_behind(tmp_path: Path) -> None:
    blocked = tmp_path / "new" / "sub"
    blocked.mkdir(parents=True)
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
    assert ran.code == 2
    assert "cannot be written: Permission denied" in ran.error


@pytest.mark.parametrize(
    ("version", "wanted"),
    [("0.1.0", ">=0.1,<0.2"), ("0.9.3", ">=0.9,<0.10"), ("1.2.0", ">=1.2,<2"), ("2.0.1rc1", ">=2.0,<3")],
)
def test_a_new_plugin_is_for_the_versions_that_keep_the_api(version: str, wanted: str) -> None:
    assert api_range(version) == wanted


def test_a_name_that_yaml_would_read_as_something_else_stays_a_name() -> None:
    files = scaffold("on").files
    assert 'name: "on"' in files["on/plugin.yaml"]
    assert not [path for path in files if "$" in path or "${" in files[path]]


Check = Callable[..., Ran]


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Check:
    """Return a function that runs `tavern plugins check` in this process, which is quicker."""

    def run_here(*arguments: str | Path) -> Ran:
        capsys.readouterr()
        code = run(["plugins", "check", *map(str, arguments)])
        return Ran(code, *capsys.readouterr())

    return run_here


# --- plugins check ----------------------------------------------------------------------------------------

FINE = {"description": "Fine.", "permissions": {"hooks": ["hook:server:host:startup"]}}
FINE_CODE = "from tavern_host import hookimpl\n\n@hookimpl\ndef tavern_startup(context):\n    raise SystemExit\n"


def report(ran: Ran) -> dict[str, Any]:
    """Return the one report that was given."""
    (found,) = ran.json()["plugins"]
    return dict(found)


def said(problems: list[dict[str, Any]]) -> list[str]:
    return [problem["message"] for problem in problems]


def test_a_folder_is_checked_without_being_started(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "acme_inn", {"__init__.py": "print('I am printed')\n" + FINE_CODE}, **FINE)
    ran = tavern("plugins", "check", folder)
    assert ran.code == 0
    assert f"Importing {folder} to see what it registers …" in ran.err and "I am printed" in ran.err
    assert "I am printed" not in ran.out
    assert ran.out.splitlines()[-1] == "The host finds nothing wrong with acme-inn."
    assert "hook: tavern_startup" in ran.out
    assert report(tavern("plugins", "check", folder, "--json"))["state"] == "loaded"


@pytest.mark.parametrize("broken", ["none", "no project", "both files"])
def test_authors_need_neither_a_project_nor_its_plugins(tmp_path: Path, operator_folders: Path, broken: str) -> None:
    folder = write_plugin(tmp_path / "acme_inn", {"__init__.py": FINE_CODE}, **FINE)
    project = tmp_path / "project"
    make_project(project)
    write_plugin(project / "plugins" / "other", {"__init__.py": "raise RuntimeError('imported')\n"}, **FINE)
    (project / "plugins" / "broken").mkdir()
    if broken == "no project":
        project = tmp_path
    elif broken == "both files":
        (project / "tavern.yaml").write_text("nonsense: [")
        (operator_folders / "config").mkdir(parents=True, exist_ok=True)
        (operator_folders / "config" / "host.yaml").write_text("nonsense: [")
    ran = tavern("--project", project, "plugins", "check", folder)
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "The host finds nothing wrong with acme-inn.")
    assert ran.err.splitlines() == [f"Importing {folder} to see what it registers …"]


WRONG: list[tuple[dict[str, str], dict[str, Any], list[str]]] = [
    ({}, {"apiVersion": ">=9"}, ["it is made for tavern-host >=9; this is "]),
    ({}, {"nmae": "x"}, ["unknown key 'nmae'"]),
    ({}, {"permissions": {"hooks": ["hook:server:host:starup"]}}, ["there is no permission 'hook:server:host:sta"]),
    ({}, {"tools": {"entry": "./tools"}}, ["tools.entry: there is no folder 'tools'"]),
    ({"__init__.py": "import nothing_like_it"}, {}, ["No module named 'nothing_like_it'"]),
    ({"__init__.py": "raise SystemExit(3)"}, {}, ["tried to end the program"]),
    (
        {"__init__.py": "from tavern_host import hookimpl\n@hookimpl\ndef tavern_statup(context): ...\n"},
        {},
        ["there is no hook 'tavern_statup'"],
    ),
    (
        {"__init__.py": FINE_CODE.replace("(context)", "(kontext)")},
        {},
        ["the hook tavern_startup has no argument 'kontext'", "the hook tavern_startup is not declared"],
    ),
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
]
"""The files and the manifest of a plugin, and what is wrong with it."""


def test_what_the_host_would_find_wrong_is_told(check: Check, tmp_path: Path) -> None:
    entries = [f'acme-{number} = "acme_{number}"' for number in range(len(WRONG))]
    (tmp_path / "pyproject.toml").write_text(PYPROJECT.replace('acme-inn = "acme_inn"', "\n".join(entries)))
    for number, (files, manifest, _) in enumerate(WRONG):
        write_plugin(tmp_path / f"acme_{number}", {"__init__.py": "", **files}, **{"description": "Fine.", **manifest})
    ran = check(tmp_path, "--json")
    assert ran.code == 1
    found = {Path(one["path"]).name: said(one["problems"]) for one in ran.json()["plugins"]}
    with Failures() as failures:
        for number, (_, _, messages) in enumerate(WRONG):
            with failures.row(messages[0]):
                problems = found[f"acme_{number}"]
                assert len(problems) == len(messages), problems
                assert [m for m, text in zip(messages, problems, strict=True) if m not in text] == [], problems


def test_problems_are_shown_and_counted(tmp_path: Path) -> None:
    code = FINE_CODE.replace("(context)", "(kontext)")
    ran = tavern("plugins", "check", write_plugin(tmp_path / "acme_inn", {"__init__.py": code}, description="Fine."))
    assert (ran.code, ran.error) == (1, "Error: 2 problems with acme-inn")
    problems = [line for line in ran.out.splitlines() if line.startswith("problem: ")]
    assert len(problems) == 2
    assert f"{tmp_path / 'acme_inn' / '__init__.py'}:3: " in problems[0]


def test_a_mistake_in_the_manifest_is_told_with_line_and_column(check: Check, tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "acme_inn")
    (folder / "plugin.yaml").write_text("name: acme-inn\ndisplayName: Inn\nversion: one\n")
    (problem,) = report(check(folder, "--json"))["problems"]
    assert (problem["file"], problem["line"]) == ("acme_inn/plugin.yaml", 3)
    assert problem["column"] >= 1 and "must be a version" in problem["message"]


def test_without_an_import_nothing_is_run(check: Check, tmp_path: Path) -> None:
    marker = tmp_path / "imported"
    folder = write_plugin(tmp_path / "acme_inn", {"__init__.py": f"open({str(marker)!r}, 'w').close()"}, **FINE)
    ran = check(folder, "--no-import")
    assert ran.code == 0
    assert "looked at the manifest alone: its code was not imported" in ran.out
    assert not marker.exists()
    check(folder)
    assert marker.exists(), "a check that imports does run it"


def test_what_is_no_fault_is_a_warning(check: Check, tmp_path: Path) -> None:
    files = {"tools/a.tool.json": json.dumps({"id": "a", "implementation": {"type": "node", "nodeType": "acme:Gone"}})}
    folder = write_plugin(tmp_path / "acme_inn", files, tools={"entry": "./tools"})
    ran = check(folder, "--json")
    assert ran.code == 0
    assert said(report(ran)["warnings"]) == [
        "the manifest has no description; it is what operators read first",
        "the tool a cannot be called here: it needs node acme:Gone",
    ]


def test_nothing_of_this_machine_is_changed_by_a_check(tmp_path: Path, operator_folders: Path) -> None:
    folder = write_plugin(tmp_path / "acme_inn", {"__init__.py": FINE_CODE}, **FINE)
    before = sorted(tmp_path.rglob("*"))
    assert tavern("plugins", "check", folder, cwd=tmp_path).code == 0
    after = {path for path in tmp_path.rglob("*") if "__pycache__" not in path.parts}
    assert after - set(before) == set()
    assert not operator_folders.exists()


PYPROJECT = """\
[project]
name = "acme-inn"
version = "1.0.0"
dependencies = ["tavern-host"]
[project.entry-points."tavern_host.plugins"]
acme-inn = "acme_inn"
"""


def write_project(root: Path, pyproject: str = PYPROJECT, source: str = ".") -> Path:
    """Write a project that is in order."""
    write_plugin(root / source / "acme_inn", {"__init__.py": FINE_CODE}, **FINE)
    (root / "tests").mkdir()
    (root / "pyproject.toml").write_text(pyproject)
    return root


@pytest.mark.parametrize("source", [".", "src", "plugins"])
def test_a_project_is_found_by_its_entry_point(check: Check, tmp_path: Path, source: str) -> None:
    hatch = '[tool.hatch.build.targets.wheel]\npackages = ["plugins/acme_inn"]\n' if source == "plugins" else ""
    how = ["--json"] if source == "." else ["--json", "--no-import"]
    found = report(check(write_project(tmp_path, PYPROJECT + hatch, source), *how))
    assert (found["name"], found["problems"], found["warnings"]) == ("acme-inn", [], [])
    assert found["path"] == str(tmp_path / source / "acme_inn")
    assert "code:" not in json.dumps(found["permissions"]), "installed code is not reviewed file by file"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'acme-inn = "acme_inn"',
            'acme-in = "acme_inn"',
            "the entry point is called 'acme-in', the manifest 'acme-inn'",
        ),
        ('= "acme_inn"', '= "acme"', "names the package 'acme', which is neither in"),
        ('= "acme_inn"', '= "../../etc"', "the entry point 'acme-inn' names '../../etc', which is no package"),
        ('= "acme_inn"', '= "/etc"', "which is no package"),
    ],
)
def test_a_project_that_would_not_be_found_once_installed_is_told(
    check: Check, tmp_path: Path, old: str, new: str, message: str
) -> None:
    ran = check(write_project(tmp_path, PYPROJECT.replace(old, new)), "--json", "--no-import")
    assert ran.code == 1
    assert message in said(report(ran)["problems"])[0]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('version = "1.0.0"', 'version = "1.1.0"', "the project's version is 1.1.0, the manifest's 1.0.0"),
        ('["tavern-host"]', "[]", "it does not depend on tavern-host, so pip installs it where it cannot run"),
        ('["tavern-host"]', "5", "it does not depend on tavern-host, so pip installs it where it cannot run"),
    ],
)
def test_a_project_that_is_odd_is_warned_of(check: Check, tmp_path: Path, old: str, new: str, message: str) -> None:
    ran = check(write_project(tmp_path, PYPROJECT.replace(old, new)), "--json", "--no-import")
    assert (ran.code, said(report(ran)["warnings"])) == (0, [message])


@pytest.mark.parametrize(
    ("pyproject", "message"),
    [
        ("[project", "pyproject.toml cannot be read: "),
        ("", "has no entry point in the group tavern_host.plugins (add [project.entry-points"),
        (
            '[project.entry-points."tavern-host.plugins"]\na = "a"',
            "has no entry point in the group tavern_host.plugins (tavern-host.plugins must be called so)",
        ),
        ("project = 5", "has no entry point in the group"),
    ],
)
def test_a_project_without_a_plugin_is_told(check: Check, tmp_path: Path, pyproject: str, message: str) -> None:
    (tmp_path / "pyproject.toml").write_text(pyproject)
    ran = check(tmp_path)
    assert ran.code == 2
    assert message in ran.error


def test_a_path_that_is_no_plugin_is_told(check: Check, tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_text("x")
    (tmp_path / "not.whl").write_text("x")
    os.mkfifo(tmp_path / "pipe.whl")
    for path, message in (
        ("gone", "there is no "),
        ("file.txt", "give a plugin's folder, its project's folder, or a wheel"),
        ("not.whl", "is no wheel that can be read"),
        ("pipe.whl", "is no plugin"),
        (".", "has neither a plugin.yaml nor a pyproject.toml"),
    ):
        ran = check(tmp_path / path)
        assert (ran.code, message in ran.error) == (2, True), ran.err


@pytest.mark.parametrize("part", [".", "acme_inn"])
def test_a_plugin_that_is_installed_from_its_folder_is_checked_all_the_same(tmp_path: Path, part: str) -> None:
    project = write_project(tmp_path / "project")
    info = project / "acme_inn-1.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-inn\nVersion: 1.0.0\n")
    (info / "entry_points.txt").write_text("[tavern_host.plugins]\nacme-inn = acme_inn\n")
    (info / "RECORD").write_text("acme_inn/__init__.py,,\nacme_inn/plugin.yaml,,\n")
    ran = tavern(
        "plugins", "check", project / part, "--json", PYTHONPATH=f"{project}:{os.environ.get('PYTHONPATH', '')}"
    )
    found = report(ran)
    assert (found["name"], found["state"], found["imported"], found["problems"]) == ("acme-inn", "loaded", True, [])


# --- wheels -----------------------------------------------------------------------------------------------

MANIFEST = "name: acme-inn\ndisplayName: Inn\nversion: 1.0.0\ndescription: Fine.\n"
ENTRY = "[console_scripts]\nx = a:b\n[tavern_host.plugins]\nacme-inn = acme_inn\n"


def write_wheel(path: Path, files: Mapping[str, str]) -> Path:
    """Write a wheel with these files."""
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return path


def test_a_wheel_is_read_and_never_imported(tmp_path: Path) -> None:
    marker = tmp_path / "imported"
    files = {
        "acme_inn/__init__.py": f"open({str(marker)!r}, 'w').close()",
        "acme_inn/plugin.yaml": MANIFEST,
        "acme_inn-1.0.0.dist-info/entry_points.txt": ENTRY,
    }
    ran = tavern("plugins", "check", write_wheel(tmp_path / "acme_inn-1.0.0-py3-none-any.whl", files), cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert "looked at the manifest alone: a wheel is read, not imported" in ran.out
    assert not marker.exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["acme_inn-1.0.0-py3-none-any.whl"]


@pytest.mark.parametrize(
    ("files", "code", "message"),
    [
        ({"acme_inn-1.0.0.dist-info/entry_points.txt": ENTRY}, 1, "there is no acme_inn/plugin.yaml in the wheel"),
        (
            {
                "acme_inn/plugin.yaml": MANIFEST + "tools: {entry: ./tools}\n",
                "acme_inn-1.0.0.dist-info/entry_points.txt": ENTRY,
            },
            1,
            "tools.entry: there is no folder 'tools'",
        ),
        (
            {"acme_inn/plugin.yaml": "name: [", "acme_inn-1.0.0.dist-info/entry_points.txt": ENTRY},
            1,
            "acme_inn/plugin.yaml:1:",
        ),
        ({"acme_inn/plugin.yaml": MANIFEST}, 2, "holds no plugin: it has no entry point in the group"),
        ({"a-1.dist-info/entry_points.txt": "what is this"}, 2, "its entry_points.txt is damaged"),
        ({"a-1.dist-info/entry_points.txt": ENTRY.replace("= acme_inn", "= /etc/x")}, 1, "which is no package"),
        ({"a-1.dist-info/entry_points.txt": ENTRY.replace("= acme_inn", "= ..")}, 1, "which is no package"),
        (
            {
                "../../../acme_inn/plugin.yaml": MANIFEST,
                "/acme_inn/plugin.yaml": MANIFEST,
                "a-1.dist-info/entry_points.txt": ENTRY,
            },
            0,
            "nothing wrong with acme-inn",
        ),
    ],
)
def test_what_is_wrong_with_a_wheel_is_told_and_nothing_leaves_its_place(
    check: Check, tmp_path: Path, files: Mapping[str, str], code: int, message: str
) -> None:
    box = tmp_path / "a" / "b" / "c"
    box.mkdir(parents=True)
    ran = check(write_wheel(box / "acme_inn-1.0.0-py3-none-any.whl", files))
    assert (ran.code, message in ran.out + ran.err) == (code, True), ran.out + ran.err
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["acme_inn-1.0.0-py3-none-any.whl"]


def test_a_wheel_beyond_reason_is_not_unpacked(check: Check, tmp_path: Path) -> None:
    path = tmp_path / "big-1.0.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for number in range(3):
            wheel.writestr(f"big/{number}", b"\0" * (100 << 20))
    ran = check(path)
    assert ran.code == 2
    assert "holds more than 20000 files or 200 MiB; no plugin does" in ran.error
