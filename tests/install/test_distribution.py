"""What pip makes of the repository: a wheel with the kernel and all first-party plugins, an sdist that gives
the same wheel, and an installation that follows the source; and `contrib/my-awesome-plugin`, installed with pip:
found, refused, granted, revoked."""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pip_environments import REPOSITORY, Environment, User, build_wheel, make_environment, must_run

pytestmark = pytest.mark.timeout(300)

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
FIRST_PARTY = PROJECT["entry-points"]["tavern_host.plugins"]


def contents(wheel: Path) -> set[str]:
    """Return the names of the files in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def files_of(folder: Path, root: Path) -> set[str]:
    """Return the names of a package's files, relative to `root`."""
    found = (p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return {p.relative_to(root).as_posix() for p in found}


def states(plugins: list[dict[str, Any]]) -> dict[str, str]:
    """Return the state of each plugin in `tavern plugins list`."""
    return {plugin["name"]: plugin["state"] for plugin in plugins}


def test_every_first_party_plugin_has_an_entry_point() -> None:
    folders = {path.parent.name for path in (REPOSITORY / "plugins").glob("*/plugin.yaml")}
    assert folders == set(FIRST_PARTY.values())


def test_the_wheel_has_all_packages_and_nothing_else(host_wheel: Path, tree: Path) -> None:
    folders = [tree / "tavern_host", *(tree / "plugins" / name for name in FIRST_PARTY.values())]
    wanted = set().union(*(files_of(folder, folder.parent) for folder in folders))
    assert {name for name in wanted - contents(host_wheel) if not name.startswith("tavern_studio/frontend/")} == set()
    assert "tavern_studio/web/studio.js" in contents(host_wheel)
    assert not any(name.startswith("tavern_studio/frontend/") for name in contents(host_wheel))
    tops = {name.partition("/")[0] for name in contents(host_wheel)}
    assert tops == {"tavern_host", *FIRST_PARTY.values(), f"tavern_host-{version_in(host_wheel)}.dist-info"}


def version_in(wheel: Path) -> str:
    """Return the version in a wheel's file name."""
    return wheel.name.split("-")[1]


def test_the_sdist_gives_the_same_wheel(tree: Path, host_wheel: Path, tmp_path: Path) -> None:
    must_run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", tmp_path, tree, cwd=tmp_path)
    (sdist,) = tmp_path.glob("*.tar.gz")
    (tmp_path / "wheel").mkdir()
    assert contents(build_wheel(sdist, tmp_path / "wheel")) == contents(host_wheel)


def test_installed_plugins_are_first_party_in_order_and_without_a_review(user: User) -> None:
    plugins = [p for p in user.tavern("plugins", "list") if p["firstParty"]]
    assert states(plugins) == dict.fromkeys(FIRST_PARTY, "discovered")
    assert all(p["source"] == "entry-point:tavern-host" and p.get("problems", []) == [] for p in plugins)


def test_an_installed_host_starts_all_first_party_plugins(user: User) -> None:
    code = (
        "import asyncio, json; from tavern_host import Host\n"
        "async def main():\n"
        "    async with Host() as host: print(json.dumps([p.to_json() for p in host.plugins()]))\n"
        "asyncio.run(main())"
    )
    done = user.python("-c", code)
    assert done.returncode == 0, done.stderr
    plugins = [p for p in json.loads(done.stdout) if p["firstParty"]]
    assert states(plugins) == dict.fromkeys(FIRST_PARTY, "started")
    assert [p["problems"] for p in plugins if p.get("problems")] == []


def test_the_installed_command_says_its_version(user: User, host_wheel: Path) -> None:
    assert user.try_tavern("--version").stdout == f"tavern-host {version_in(host_wheel)}\n"


def test_an_editable_installation_follows_the_source(tree: Path, installed: Environment, tmp_path: Path) -> None:
    environment = make_environment(tmp_path / "venv")
    ours = shutil.ignore_patterns("tavern_*", "my_awesome_plugin*")
    shutil.copytree(installed.packages, environment.packages, ignore=ours, dirs_exist_ok=True)
    environment.pip_install("--no-deps", "--editable", tree)
    user = environment.at(tmp_path / "user")
    assert states(user.tavern("plugins", "list")) == dict.fromkeys(FIRST_PARTY, "discovered")
    where = user.python("-c", "import tavern_host, tavern_engine; print(tavern_host.__file__, tavern_engine.__file__)")
    assert where.stdout.split() == [
        str(tree / "tavern_host" / "__init__.py"),
        str(tree / "plugins" / "tavern_engine" / "__init__.py"),
    ]


# --- contrib/my-awesome-plugin ------------------------------------------------------------------------

NAME = "my-awesome-plugin"
LIVE_HOST = Path(__file__).with_name("live_host.py")

TEXT = {"dataFlowType": "STRING"}
GREET: dict[str, Any] = {
    "name": "Greet",
    "nodes": [
        {"id": "in", "type": "core:GroupInput"},
        {"id": "join", "type": "core:TextMerge", "inputValues": {"separator": ""}},
        {"id": "out", "type": "core:GroupOutput"},
    ],
    "edges": [
        {
            "id": "e1",
            "source": "in",
            "sourceHandle": "greeting_prefix",
            "target": "join",
            "targetHandle": "text_inputs__0",
        },
        {"id": "e2", "source": "in", "sourceHandle": "name", "target": "join", "targetHandle": "text_inputs__1"},
        {"id": "e3", "source": "join", "sourceHandle": "merged_text", "target": "out", "targetHandle": "greeting"},
    ],
    "interfaceInputs": {"greeting_prefix": {**TEXT, "config": {"default": "…, "}}, "name": TEXT},
    "interfaceOutputs": {"greeting": TEXT},
}
"""Joins `greeting_prefix`, which has a default of its own, and `name`."""


def make_project(root: Path) -> Path:
    """Make a project with two workflows."""
    (root / "workflows").mkdir(parents=True)
    (root / "tavern.yaml").write_text("name: stories\n")
    (root / "workflows" / "greet.json").write_text(json.dumps(GREET))
    (root / "workflows" / "tale.json").write_text('{"name": "Tale"}')
    return root


def about_the_plugin(plugins: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the entry of the plugin in `tavern plugins list`."""
    (found,) = [plugin for plugin in plugins if plugin["name"] == NAME]
    return found


# --- refused -----------------------------------------------------------------------------------------


def test_it_waits_for_review_and_nothing_of_it_is_imported(user: User) -> None:
    said = []
    for command in (["plugins", "list"], ["plugins", "show", NAME], ["workflow", "list"]):
        imported, answer = user.imported_by(*command)
        assert "tavern_host.host" in imported
        assert not [name for name in imported if name.startswith("my_awesome_plugin")], command
        said.append(answer)
    found = about_the_plugin(said[0])
    assert (found["state"], found["version"]) == ("needs-review", "1.0.0")
    assert (found["source"], found["firstParty"]) == (f"entry-point:{NAME}", False)
    assert found["problems"][0]["hint"] == f"look at `tavern plugins show {NAME}`, then `tavern plugins grant {NAME}`"
    assert {p["name"]: (p["level"], p["granted"]) for p in said[1]["permissions"]} == {
        "hook:server:nodes:register": ("add", True),
        "hook:server:tools:discover": ("add", True),
        "hook:server:ui:declare": ("add", True),
        "hook:server:workflow:before-execute": ("intercept", False),
        "ui.inject:node:header:right": ("add", True),
        "ui.wrap:ui:BaseNode": ("intercept", False),
        "ui.frontend": ("intercept", False),
        "services.override:workflowManager": ("override", False),
    }


def test_a_command_that_starts_the_host_imports_it_when_it_is_granted(user: User) -> None:
    user.tavern("plugins", "grant", NAME)
    assert "my_awesome_plugin" in user.imported_by("workflow", "list")[0]


# --- granted on the command line ---------------------------------------------------------------------


def test_a_grant_changes_what_a_run_is_given_and_a_revocation_takes_it_back(user: User, tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")

    def greeting() -> Any:
        run = user.tavern("--project", str(project), "workflow", "run", "greet", "--input", "name=Ada")
        return run["outputs"]["greeting"]

    assert greeting() == "…, Ada"
    user.tavern("--project", str(project), "plugins", "grant", NAME)
    assert greeting() == "Hello, Ada"
    user.tavern("--project", str(project), "plugins", "revoke", NAME)
    assert greeting() == "…, Ada"


def test_a_project_may_say_how_to_greet_but_not_grant_the_plugin(user: User, tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")
    (project / "tavern.yaml").write_text(f'settings: {{"extensions.{NAME}.greetingPrefix": "Dear "}}\n')
    user.tavern("--project", str(project), "plugins", "grant", NAME)
    run = user.tavern("--project", str(project), "workflow", "run", "greet", "--input", "name=Ada")
    assert run["outputs"]["greeting"] == "Dear Ada"
    (project / "tavern.yaml").write_text(f"trust: [{NAME}]\n")
    refused = user.try_tavern("--project", str(project), "plugins", "list")
    assert refused.returncode == 2
    assert "this is the operator's to decide" in refused.stderr


# --- granted and revoked while a host runs -----------------------------------------------------------


@pytest.fixture(scope="module")
def seen(installed: Environment, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return what `live_host.py` sees."""
    folder = tmp_path_factory.mktemp("live")
    done = installed.at(folder / "user").python(LIVE_HOST, make_project(folder / "project"))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_host_that_runs_without_the_grant_has_nothing_of_it(seen: Any) -> None:
    assert seen["imported while refused"] == []
    assert seen["refused"] == {
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


def test_a_grant_brings_all_of_it_into_the_running_host(seen: Any) -> None:
    granted = seen["granted"]
    assert granted.pop("contributions") == {
        "override": ["workflowManager"],
        "ui outlet": ["node:header:right"],
        "ui wrap": ["ui:BaseNode"],
        "hook": ["tavern_before_execute", "tavern_override_services", "tavern_declare_ui"],
        "node": ["my-awesome-plugin:SplitItems"],
    }
    assert granted == {
        "state": "started",
        "greeting": {"greeting": "Hello, Ada"},
        "stack": ["tavern-workflows", NAME],
        "names": ["Greet", "Second tale (1 earlier version)"],
        "nodes": ["my-awesome-plugin:SplitItems"],
        "tools": ["MyAwesomePlugin:doSomething", "MyAwesomePlugin:splitItems"],
        "item": {"items": ["tea"], "left_out": 0},
        "front end": True,
    }


def test_the_override_reaches_the_original_and_adds_what_it_is_for(seen: Any) -> None:
    assert seen["earlier"] == "Tale"
    assert seen["held while granted"] == [2, 2]


def test_a_revocation_takes_all_of_it_out_of_the_running_host_at_once(seen: Any) -> None:
    assert seen["revoked"] == seen["refused"] | {"names": ["Greet", "Second tale"]}
    assert seen["taken out by the operator"] == ["Greet", "Second tale"]


def test_methods_that_it_took_out_of_its_views_stop_too(seen: Any) -> None:
    denied = f"permission_denied: {NAME} may not call workflowManager.list_workflows: its grant was taken back"
    assert seen["held after"] == [denied, denied]


# --- while `tavern serve` runs -----------------------------------------------------------------------
