"""Wheels of the host and of `contrib/my-awesome-plugin`, installed with pip into an environment of their own."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest
from pip_environments import REPOSITORY, Environment, User, build_wheel, make_environment

SHIPPED = ("tavern_host", "plugins", "contrib", "pyproject.toml", "README.md", "LICENSE")
"""What the builds need of the repository."""


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the repository, so that building leaves nothing in it."""
    root = tmp_path_factory.mktemp("tree")
    for name in SHIPPED:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(
                source, root / name, ignore=shutil.ignore_patterns("__pycache__", ".*_cache", "node_modules")
            )
        else:
            shutil.copy(source, root / name)
    return root


@pytest.fixture(scope="session")
def host_wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel of `tavern-host`, built from the tree."""
    return build_wheel(tree, tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="session")
def plugin_wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel of `my-awesome-plugin`."""
    return build_wheel(tree / "contrib" / "my-awesome-plugin", tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="session")
def installed(host_wheel: Path, plugin_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Return an environment with both wheels and their dependencies."""
    environment = make_environment(tmp_path_factory.mktemp("installed") / "venv")
    environment.get_ready(*tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["dependencies"])
    environment.pip_install(host_wheel, plugin_wheel)
    return environment


@pytest.fixture
def user(installed: Environment, tmp_path: Path) -> User:
    """Return a user who has decided nothing yet."""
    return installed.at(tmp_path / "user")
