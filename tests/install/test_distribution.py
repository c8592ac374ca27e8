"""What pip makes of the repository: a wheel with the kernel and all first-party plugins, an sdist that gives
the same wheel, and an installation that follows the source."""

from __future__ import annotations

import json
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pip_environments import REPOSITORY, User, build_wheel, make_environment, must_run

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
    assert set().union(*(files_of(folder, folder.parent) for folder in folders)) - contents(host_wheel) == set()
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


@pytest.mark.slow
def test_an_editable_installation_follows_the_source(tree: Path, tmp_path: Path) -> None:
    environment = make_environment(tmp_path / "venv")
    environment.pip_install("--editable", tree)
    user = environment.at(tmp_path / "user")
    assert states(user.tavern("plugins", "list")) == dict.fromkeys(FIRST_PARTY, "discovered")
    where = user.python("-c", "import tavern_host, tavern_engine; print(tavern_host.__file__, tavern_engine.__file__)")
    assert where.stdout.split() == [
        str(tree / "tavern_host" / "__init__.py"),
        str(tree / "plugins" / "tavern_engine" / "__init__.py"),
    ]
