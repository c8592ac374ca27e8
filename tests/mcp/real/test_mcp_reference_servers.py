"""The reference servers of the protocol as providers, each tool of theirs called, and the inspector as a client.

They come from the registries into an environment that is kept for the next time. Where there is no registry they are
left out, with the reason.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import COMMAND
from helpers.mcp_desk import OFFER, SERVERS, Desk, make_project
from helpers.repetition import Failures

from tavern_host import Host
from tavern_tools.api.tools import ToolFilter

pytest.importorskip("mcp", reason="needs the extra: pip install tavern-host[mcp]")
pytestmark = pytest.mark.extended
PLACE = Path(tempfile.gettempdir()) / f"tavern-mcp-servers-{os.getuid()}"
FROM_NPM = ("@modelcontextprotocol/server-everything", "@modelcontextprotocol/inspector")
FROM_PYPI = ("mcp-server-time", "mcp-server-git")
NOT_OF_THE_HOST = {
    "trigger-sampling-request",  # a model, by a person's word: see test_mcp_servers
    "trigger-elicitation-request",
    "trigger-url-elicitation",
    "trigger-sampling-request-async",
    "trigger-elicitation-request-async",
    "get-roots-list",  # roots are not offered
    "simulate-research-query",  # a task of the protocol's own
}


def installed(*command: str) -> None:
    done = subprocess.run(command, cwd=PLACE, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        pytest.skip(f"{command[0]} could not install: {(done.stderr or done.stdout).strip()[-300:]}")


@pytest.fixture(scope="session")
def npm() -> Path:
    """Return the folder of the packages from npm."""
    PLACE.mkdir(mode=0o755, exist_ok=True)
    modules = PLACE / "node_modules"
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("needs npm: apt install npm")
    if not all((modules / name).is_dir() for name in FROM_NPM):
        installed("npm", "install", "--no-audit", "--no-fund", *FROM_NPM)
    return modules


@pytest.fixture(scope="session")
def python() -> Path:
    """Return the Python of an environment with the packages from PyPI."""
    PLACE.mkdir(mode=0o755, exist_ok=True)
    found = PLACE / "venv" / "bin" / "python"
    if not (PLACE / "venv" / "bin" / "mcp-server-git").exists():
        installed(sys.executable, "-m", "uv", "venv", str(PLACE / "venv"), "--python", sys.executable)
        installed(sys.executable, "-m", "uv", "pip", "install", "--python", str(found), *FROM_PYPI)
    return found


async def test_every_tool_of_the_everything_server(npm: Path, tmp_path: Path) -> None:
    script = npm / FROM_NPM[0] / "dist" / "index.js"
    server = {"command": "node", "args": [str(script)], "read": [str(npm)], "sampling": "refuse"}
    arguments: dict[str, dict[str, Any]] = {
        "echo": {"message": "hello"},
        "get-sum": {"a": 2, "b": 3},
        "trigger-long-running-operation": {"duration": 0.2, "steps": 2},
        "get-annotated-message": {"messageType": "success", "includeImage": True},
        "get-resource-reference": {"resourceType": "Text", "resourceId": 1},
        "get-resource-links": {"count": 2},
        "get-structured-content": {"location": "New York"},
        "gzip-file-as-resource": {"name": "a.gz", "data": "data:text/plain;base64,aGVsbG8=", "outputType": "resource"},
        "resources.read": {"uri": "demo://resource/static/document/architecture.md"},
        "prompts.get": {"name": "simple-prompt"},
    }
    folders = make_project(tmp_path, {SERVERS: {"everything": server}})
    async with Host(tmp_path / "project", folders=folders) as host:
        desk = Desk(host)
        assert await desk.connect("everything") == ""
        tools = [tool.id for tool in await desk.tools.list_tools(ToolFilter(namespace="mcp")) if "/" in tool.id]
        assert {"mcp:everything/echo", "mcp:everything/resources.list", "mcp:everything/prompts.list"} <= {*tools}
        with Failures() as failures:
            for tool in tools:
                name = tool.partition("/")[2]
                if name not in NOT_OF_THE_HOST:
                    with failures.row(name):
                        result = await desk.call(tool, **arguments.get(name, {}))
                        assert result.status == "done", result.error
        picture = await desk.call("mcp:everything/get-tiny-image")
        image = next(part for part in picture.content if part.type == "image")
        assert (host.project.root / "files" / str(image.uri)).stat().st_size == image.size


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with a file that is changed."""
    place = tmp_path / "repository"
    run_git(tmp_path, "init", "-q", "-b", "main", str(place))
    (place / "a.txt").write_text("one\n")
    run_git(place, "add", ".")
    run_git(place, "commit", "-q", "-m", "one")
    (place / "a.txt").write_text("two\n")
    return place


def run_git(place: Path, *words: str) -> str:
    command = ["git", "-C", str(place), "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


async def test_every_tool_of_the_python_servers(python: Path, tmp_path: Path, repository: Path) -> None:
    author = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    own = {"command": str(python), "startSeconds": 60}
    git_server = {**own, "args": ["-m", "mcp_server_git"], "sandbox": False, "env": author}
    time_server = {**own, "args": ["-m", "mcp_server_time", "--local-timezone=UTC"]}
    steps: list[tuple[str, dict[str, Any]]] = [
        *(("git_status", {}), ("git_diff_unstaged", {}), ("git_add", {"files": ["a.txt"]}), ("git_diff_staged", {})),
        *(("git_reset", {}), ("git_add", {"files": ["a.txt"]}), ("git_commit", {"message": "two"}), ("git_log", {})),
        *(("git_show", {"revision": "HEAD"}), ("git_create_branch", {"branch_name": "side"})),
        *(("git_checkout", {"branch_name": "side"}), ("git_diff", {"target": "main"})),
        ("git_branch", {"branch_type": "local"}),
    ]
    folders = make_project(tmp_path, {SERVERS: {"git": git_server, "time": time_server}})
    async with Host(tmp_path / "project", folders=folders) as host:
        desk = Desk(host)
        assert [await desk.connect(name) for name in ("git", "time")] == ["", ""]
        tools = {tool.id for tool in await desk.tools.list_tools(ToolFilter(namespace="mcp")) if "/" in tool.id}
        assert {f"mcp:git/{name}" for name, _ in steps} == {tool for tool in tools if tool.startswith("mcp:git/git")}
        with Failures() as failures:
            for name, more in steps:
                with failures.row(name):
                    result = await desk.call(f"mcp:git/{name}", repo_path=str(repository), **more)
                    assert result.status == "done", result.error
            with failures.row("time"):
                now = await desk.call("mcp:time/get_current_time", timezone="Asia/Shanghai")
                assert now.status == "done" and "+08:00" in str(now.structured), now.error
                noon = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
                assert "21:00" in str((await desk.call("mcp:time/convert_time", **noon)).structured)
    assert run_git(repository, "log", "--format=%s").split() == ["two", "one"]


def test_the_inspector_finds_and_calls_our_tools(npm: Path, tmp_path: Path) -> None:
    make_project(tmp_path, {})
    serve = [*COMMAND, "mcp", "serve", "--project", str(tmp_path / "project")]
    environment = {name: value for name, value in os.environ.items() if name.startswith(("TAVERN_", "PYTHON"))}
    environment["TAVERN_SETTINGS"] = json.dumps({OFFER: ["text:*"]})
    servers = {"tavern": {"command": serve[0], "args": serve[1:], "env": environment}}
    config = tmp_path / "inspector.json"
    config.write_text(json.dumps({"mcpServers": servers}))
    inspector = ["node", str(npm / FROM_NPM[1] / "cli" / "build" / "cli.js"), "--cli", "--config", str(config)]
    for more, expected in (
        (["--method", "tools/list"], '"text_loud"'),
        (["--method", "tools/call", "--tool-name", "text_loud", "--tool-arg", "text=hi"], '"HI"'),
    ):
        command = [*inspector, "--server", "tavern", *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert expected in done.stdout, done.stderr
