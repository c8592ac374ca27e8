"""What pip makes of the repository: a wheel with the kernel and all first-party plugins, an sdist that gives
the same wheel, and an installation that follows the source; and `contrib/my-awesome-plugin`, installed with pip:
found, refused, granted, revoked. All of it in one environment, which tests use in their order."""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from helpers.workflow_documents import function
from pip_environments import REPOSITORY, Environment, must_run

pytestmark = pytest.mark.timeout(900)  # it builds and installs

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
FIRST_PARTY = PROJECT["entry-points"]["tavern_host.plugins"]
SHIPPED = ("tavern_host", "plugins", "contrib", "pyproject.toml", "README.md", "LICENSE")
"""What the builds need of the repository."""
NAME = "my-awesome-plugin"
LIVE_HOST = Path(__file__).with_name("live_host.py")
JOINS = ("in.greeting_prefix > join.text_inputs__0", "in.name > join.text_inputs__1", "join.merged_text > out.greeting")
GREET = function(
    "Greet",
    {"join": {"type": "core:TextMerge", "inputValues": {"separator": ""}}},
    *JOINS,
    takes={"greeting_prefix": "STRING", "name": "STRING"},
    gives={"greeting": "STRING"},
)
GREET["interfaceInputs"]["greeting_prefix"]["config"] = {"default": "…, "}
"""Joins `greeting_prefix`, which has a default of its own, and `name`."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the repository, so that building leaves nothing in it; what is built is in its `dist`."""
    root = tmp_path_factory.mktemp("tree")
    ignored = shutil.ignore_patterns("__pycache__", ".*_cache", "node_modules")
    for name in SHIPPED:
        source = REPOSITORY / name
        shutil.copytree(source, root / name, ignore=ignored) if source.is_dir() else shutil.copy(source, root / name)
    must_run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", cwd=root)
    return root


@pytest.fixture(scope="module")
def wheels(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return wheels of the host, from its sdist, and of the plugin."""
    target = tmp_path_factory.mktemp("wheels")
    (sdist,) = tree.glob("dist/*.tar.gz")
    options = ["-q", "--no-deps", "--no-build-isolation", "--wheel-dir", target]
    must_run(sys.executable, "-m", "pip", "wheel", *options, sdist, tree / "contrib" / NAME, cwd=target)
    return sorted(target.glob("*.whl"), reverse=True)


@pytest.fixture(scope="module")
def installed(wheels: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Return an environment with both wheels and their dependencies, whose user has decided nothing yet."""
    environment = Environment(tmp_path_factory.mktemp("installed") / "venv")
    environment.make(*PROJECT["dependencies"], "hatchling", "editables")
    environment.pip_install(*wheels)
    return environment


def make_project(root: Path) -> Path:
    """Make a project with two workflows."""
    (root / "workflows").mkdir(parents=True)
    (root / "tavern.yaml").write_text("name: stories\n")
    (root / "workflows" / "greet.json").write_text(json.dumps(GREET))
    (root / "workflows" / "tale.json").write_text('{"name": "Tale"}')
    return root


def contents(wheel: Path) -> set[str]:
    """Return the names of the files in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def states(plugins: list[dict[str, Any]]) -> dict[str, str]:
    """Return the state of each first-party plugin in a list of plugins, which has no problem."""
    ours = [plugin for plugin in plugins if plugin["firstParty"]]
    assert [plugin["problems"] for plugin in ours if plugin.get("problems")] == []
    return {plugin["name"]: plugin["state"] for plugin in ours}


def test_the_wheel_has_all_packages_alone(wheels: list[Path], tree: Path) -> None:
    assert {path.parent.name for path in (REPOSITORY / "plugins").glob("*/plugin.yaml")} == set(FIRST_PARTY.values())
    found, version = contents(wheels[0]), wheels[0].name.split("-")[1]
    folders = [tree / "tavern_host", *(tree / "plugins" / name for name in FIRST_PARTY.values())]
    files = {path: path.relative_to(folder.parent).as_posix() for folder in folders for path in folder.rglob("*")}
    wanted = {name for path, name in files.items() if path.is_file() and "__pycache__" not in path.parts}
    assert {name for name in wanted - found if not name.startswith("tavern_studio/frontend/")} == set()
    assert "tavern_studio/web/studio.js" in found
    assert not any(name.startswith("tavern_studio/frontend/") for name in found)
    tops = {name.partition("/")[0] for name in found}
    assert tops == {"tavern_host", *FIRST_PARTY.values(), f"tavern_host-{version}.dist-info"}
    (straight,) = tree.glob("dist/*.whl")
    assert contents(straight) == found, "the sdist gives the same wheel"


def test_an_installed_plugin_waits_for_its_grant(installed: Environment, wheels: list[Path], tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    said = installed.python(installed.root / "bin" / "tavern", "--version").stdout
    assert said == f"tavern-host {wheels[0].name.split('-')[1]}\n"
    greet = ("--project", project, "workflow", "run", "greet", "--input", "name=Ada")
    answers = []
    for command in (["plugins", "list"], ["plugins", "show", NAME], greet):
        imported, answer = installed.imported_by(*command)
        assert "tavern_host.host" in imported
        assert not [name for name in imported if name.startswith("my_awesome_plugin")], command
        answers.append(answer)
    plugins, shown, run = answers
    assert states(plugins) == dict.fromkeys(FIRST_PARTY, "discovered")
    assert {plugin["source"] for plugin in plugins if plugin["firstParty"]} == {"entry-point:tavern-host"}
    (found,) = [plugin for plugin in plugins if plugin["name"] == NAME]
    assert (found["state"], found["version"]) == ("needs-review", "1.0.0")
    assert (found["source"], found["firstParty"]) == (f"entry-point:{NAME}", False)
    assert found["problems"][0]["hint"] == f"look at `tavern plugins show {NAME}`, then `tavern plugins grant {NAME}`"
    assert {p["name"]: (p["level"], p["granted"]) for p in shown["permissions"]} == {
        "hook:server:nodes:register": ("add", True),
        "hook:server:tools:discover": ("add", True),
        "hook:server:ui:declare": ("add", True),
        "hook:server:workflow:before-execute": ("intercept", False),
        "ui.inject:node:header:right": ("add", True),
        "ui.wrap:ui:BaseNode": ("intercept", False),
        "ui.frontend": ("override", False),
        "services.override:workflowManager": ("override", False),
    }
    assert run["outputs"]["greeting"] == "…, Ada"

    # A project may say how to greet, but not grant the plugin.
    (project / "tavern.yaml").write_text(f'settings: {{"extensions.{NAME}.greetingPrefix": "Dear "}}\n')
    installed.tavern("--project", project, "plugins", "grant", NAME)
    imported, run = installed.imported_by(*greet)
    assert ("my_awesome_plugin" in imported, run["outputs"]["greeting"]) == (True, "Dear Ada")
    installed.tavern("--project", project, "plugins", "revoke", NAME)
    assert installed.tavern(*greet)["outputs"]["greeting"] == "…, Ada"
    (project / "tavern.yaml").write_text(f"trust: [{NAME}]\n")
    assert "this is the operator's to decide" in installed.refused("--project", project, "plugins", "list")


def test_a_grant_changes_a_running_host_until_revoked(installed: Environment, tmp_path: Path) -> None:
    seen = json.loads(installed.python(LIVE_HOST, make_project(tmp_path / "project")).stdout)
    assert states(seen["plugins"]) == dict.fromkeys(FIRST_PARTY, "started")
    assert seen["imported while refused"] == []
    refused = {
        "state": "needs-review",
        "contributions": {},
        "greeting": {"greeting": "…, Ada"},
        "stack": ["tavern-workflows"],
        "names": ["Greet", "Tale"],
        "nodes": [],
        "tools": [],
        "item": "ToolNotFound",
        "front end": False,
    }
    assert seen["refused"] == refused
    assert seen["granted"] == {
        "state": "started",
        "contributions": {
            "override": ["workflowManager"],
            "ui outlet": ["node:header:right"],
            "ui wrap": ["ui:BaseNode"],
            "hook": ["tavern_before_execute", "tavern_override_services", "tavern_declare_ui"],
            "node": ["my-awesome-plugin:SplitItems"],
        },
        "greeting": {"greeting": "Hello, Ada"},
        "stack": ["tavern-workflows", NAME],
        "names": ["Greet", "Second tale (1 earlier version)"],
        "nodes": ["my-awesome-plugin:SplitItems"],
        "tools": ["MyAwesomePlugin:doSomething", "MyAwesomePlugin:splitItems"],
        "item": {"items": ["tea"], "left_out": 0},
        "front end": True,
    }
    assert (seen["earlier"], seen["held while granted"]) == ("Tale", [2, 2])
    assert seen["revoked"] == refused | {"names": ["Greet", "Second tale"]}
    assert seen["taken out by the operator"] == ["Greet", "Second tale"]
    denied = f"permission_denied: {NAME} may not call workflowManager.list_workflows: its grant was taken back"
    assert seen["held after"] == [denied, denied]


def test_an_editable_installation_follows_the_source(installed: Environment, tree: Path) -> None:
    """The last one, since it takes the place of what was installed."""
    installed.pip_install("--no-deps", "--no-build-isolation", "--editable", tree)
    assert states(installed.tavern("plugins", "list")) == dict.fromkeys(FIRST_PARTY, "discovered")
    code = "import tavern_host, tavern_engine; print(tavern_host.__file__, tavern_engine.__file__)"
    assert installed.python("-c", code).stdout.split() == [
        str(tree / "tavern_host" / "__init__.py"),
        str(tree / "plugins" / "tavern_engine" / "__init__.py"),
    ]
