"""`contrib/my-awesome-plugin`, installed with pip: found, refused, granted, revoked."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from pip_environments import Environment, Served, User

pytestmark = pytest.mark.timeout(300)

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


def test_it_is_found_and_waits_for_review(user: User) -> None:
    found = about_the_plugin(user.tavern("plugins", "list"))
    assert (found["state"], found["version"]) == ("needs-review", "1.0.0")
    assert (found["source"], found["firstParty"]) == (f"entry-point:{NAME}", False)
    assert found["problems"][0]["hint"] == f"look at `tavern plugins show {NAME}`, then `tavern plugins grant {NAME}`"


def test_the_review_says_what_it_asks_for_and_what_nobody_has_granted(user: User) -> None:
    asked = {p["name"]: (p["level"], p["granted"]) for p in user.tavern("plugins", "show", NAME)["permissions"]}
    assert asked == {
        "hook:server:nodes:register": ("add", True),
        "hook:server:tools:discover": ("add", True),
        "hook:server:ui:declare": ("add", True),
        "hook:server:workflow:before-execute": ("intercept", False),
        "ui.inject:node:header:right": ("add", True),
        "ui.wrap:ui:BaseNode": ("intercept", False),
        "services.override:workflowManager": ("override", False),
    }


@pytest.mark.parametrize("command", [["plugins", "list"], ["plugins", "show", NAME], ["workflow", "list"]])
def test_nothing_of_it_is_imported_before_it_is_granted(user: User, command: list[str]) -> None:
    imported = user.imported_by(*command)
    assert "tavern_host.host" in imported
    assert not [name for name in imported if name.startswith("my_awesome_plugin")]


def test_listing_imports_nothing_of_it_even_when_it_is_granted(user: User) -> None:
    user.tavern("plugins", "grant", NAME)
    assert "my_awesome_plugin" not in user.imported_by("plugins", "list")


def test_a_command_that_starts_the_host_imports_it_when_it_is_granted(user: User) -> None:
    user.tavern("plugins", "grant", NAME)
    assert "my_awesome_plugin" in user.imported_by("workflow", "list")


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


def test_its_tool_can_be_called(user: User) -> None:
    user.tavern("plugins", "grant", NAME)
    result = user.tavern("tools", "call", "MyAwesomePlugin:splitItems", "--arg", "input=- bread\n- milk")
    assert result["structured"] == {"items": ["bread", "milk"], "left_out": 0}


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


def served_parts(server: Served) -> dict[str, bool]:
    """Return which parts of the plugin a browser finds."""
    _, nodes = server.ask("GET", "/api/nodes")
    _, tools = server.ask("GET", "/api/tools")
    return {
        "script": server.ask("GET", f"/plugins/{NAME}/index.js")[0] == 200,
        "style": server.ask("GET", f"/plugins/{NAME}/style.css")[0] == 200,
        "node": any(node["namespace"] == NAME for node in nodes),
        "tool": "MyAwesomePlugin:doSomething" in json.dumps(tools),
    }


def test_a_page_finds_it_only_while_it_is_granted(user: User, tmp_path: Path) -> None:
    with user.serving(make_project(tmp_path / "project")) as server:
        assert not any(served_parts(server).values())
        status, info = server.ask("POST", f"/api/plugins/{NAME}/grant")
        assert (status, info["state"]) == (200, "started")
        assert info["frontend"] == {
            "entryUrl": f"/plugins/{NAME}/index.js",
            "styleUrls": [f"/plugins/{NAME}/style.css"],
        }
        assert all(served_parts(server).values())
        status, info = server.ask("POST", f"/api/plugins/{NAME}/revoke")
        assert (status, info["state"]) == (200, "needs-review")
        assert not any(served_parts(server).values())


def test_a_served_host_follows_a_grant_that_is_given_and_taken_back_at_a_terminal(user: User, tmp_path: Path) -> None:
    project = make_project(tmp_path / "project")

    def wait_until(state: str) -> str:
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline:
            _, info = server.ask("GET", f"/api/plugins/{NAME}")
            if info["state"] == state:
                break
            time.sleep(0.1)
        return str(info["state"])

    with user.serving(project) as server:
        user.tavern("--project", str(project), "plugins", "grant", NAME)
        assert wait_until("started") == "started"
        user.tavern("--project", str(project), "plugins", "revoke", NAME)
        assert wait_until("needs-review") == "needs-review"
        assert not any(served_parts(server).values())
