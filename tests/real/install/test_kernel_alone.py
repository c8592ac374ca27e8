"""The kernel without any first-party plugin, installed from a wheel of its own with one plugin of somebody else."""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from pip_environments import REPOSITORY, Environment, must_run

pytestmark = pytest.mark.timeout(600)  # it builds and installs

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
BUILD = '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
KERNEL = f"""{BUILD}[project]
name = "tavern-host"
version = "9.0.0"
dependencies = {json.dumps([name.partition(";")[0].strip() for name in PROJECT["dependencies"]])}
[project.scripts]
tavern = "tavern_host.cli:main"
[tool.hatch.build.targets.wheel]
packages = ["tavern_host"]
"""
INN = f"""{BUILD}[project]
name = "acme-inn"
version = "1.0.0"
dependencies = ["tavern-host"]
[project.entry-points."tavern_host.plugins"]
acme-inn = "acme_inn"
[tool.hatch.build.targets.wheel]
packages = ["acme_inn"]
"""
MANIFEST = """name: acme-inn
displayName: Inn
version: 1.0.0
permissions:
  hooks: ["hook:server:services:register", "hook:server:commands:register", "hook:server:host:startup"]
  services: {use: ["acme-inn.desk:ring"]}
publishes:
  services:
    - name: acme-inn.desk
      interface: desk:Desk
      permissions: [{name: "acme-inn.desk:ring", level: add, allows: "Ring the bell."}]
"""
DESK = """from tavern_host import CallContext, ServiceInterface, ServiceKey, acts


class Desk(ServiceInterface, name="acme-inn.desk"):
    @acts("acme-inn.desk:ring", "Ring the bell.", level="add")
    async def ring(self, times: int, *, call: CallContext | None = None) -> str: ...


DESK = ServiceKey(Desk)


class Bell(Desk):
    async def ring(self, times: int, *, call: CallContext | None = None) -> str:
        return "ding " * times
"""
PLUGIN = """from tavern_host import CommandInfo, CommandOutput, hookimpl, service_info

from acme_inn.desk import DESK, Bell


@hookimpl
def tavern_register_services():
    return [service_info(DESK, Bell)]


@hookimpl
def tavern_register_commands():
    return [CommandInfo(name="ring", help="Ring.", handler="acme_inn:ring")]


async def ring(arguments, context):
    yield CommandOutput(kind="result", data={"rung": await context.services.get(DESK).ring(2)})


@hookimpl
def tavern_startup(context):
    context.log.info("open")
"""
CALLS = """import asyncio, json, sys
from acme_inn.desk import DESK
from tavern_host import Host

async def main():
    async with Host(sys.argv[1]) as host:
        states = {plugin.name: plugin.state.value for plugin in host.plugins()}
        ours = {name.partition(".")[0] for name in sys.modules if name.startswith("tavern_")}
        print(json.dumps([states, await host.services.get(DESK).ring(3), sorted(ours)]))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Return an environment with a wheel of the kernel and one of the plugin."""
    root = tmp_path_factory.mktemp("sources")
    shutil.copytree(REPOSITORY / "tavern_host", root / "kernel" / "tavern_host")
    (root / "kernel" / "pyproject.toml").write_text(KERNEL)
    package = root / "inn" / "acme_inn"
    package.mkdir(parents=True)
    (root / "inn" / "pyproject.toml").write_text(INN)
    for name, text in (("plugin.yaml", MANIFEST), ("desk.py", DESK), ("__init__.py", PLUGIN)):
        (package / name).write_text(text)
    options = ["-q", "--no-deps", "--no-build-isolation", "--wheel-dir", root / "wheels"]
    must_run(sys.executable, "-m", "pip", "wheel", *options, root / "kernel", root / "inn", cwd=root)
    environment = Environment(tmp_path_factory.mktemp("kernel") / "venv")
    environment.make(*PROJECT["dependencies"])
    environment.pip_install(*sorted((root / "wheels").glob("*.whl"), reverse=True))
    return environment


def test_the_kernel_loads_and_calls_a_plugin_without_any_other(installed: Environment, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "tavern.yaml").write_text("name: inn\n")
    program = tmp_path / "calls.py"
    program.write_text(CALLS)
    states, rung, modules = json.loads(installed.python(program, project).stdout.splitlines()[-1])
    assert states == {"acme-inn": "started"}
    assert rung == "ding ding ding "
    assert modules == ["tavern_host", "tavern_plugins"], "the latter is where folder plugins are imported"


def test_its_command_line_has_the_plugin_s_commands(installed: Environment, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "tavern.yaml").write_text("name: inn\n")
    assert installed.tavern("--project", project, "ring") == {"rung": "ding ding "}
    listed = installed.tavern("--project", project, "plugins", "list")
    assert [(one["name"], one["firstParty"]) for one in listed] == [("acme-inn", False)]
