"""The pytest fixture `installed_plugin`, for tests of what pip makes of a plugin:
`pytest_plugins = ["tavern_host.testing", "tavern_devtools.testing"]`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Protocol

import pytest

from tavern_devtools.environments import InstallationError, InstalledPlugin, Ran, install, make_environment

__all__ = ["InstallPlugin", "InstallationError", "InstalledPlugin", "Ran"]


class InstallPlugin(Protocol):
    """Installs a plugin with pip, once in a session."""

    def __call__(self, source: Path | str) -> InstalledPlugin:
        """Return an environment with the plugin of a project folder, wheel or sdist.

        Raises `InstallationError`, which says what is missing where no package index can be reached.
        """


@pytest.fixture(scope="session")
def _installations(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    @cache
    def installed(source: Path) -> Path:
        work = tmp_path_factory.mktemp("installed")
        environment = make_environment(work / "venv")
        install(source, environment, work)
        return environment

    return installed


@pytest.fixture
def installed_plugin(
    request: pytest.FixtureRequest, tmp_path: Path, _installations: Callable[[Path], Path]
) -> InstallPlugin:
    """Return a function that installs a plugin with pip into an environment of its own; see `InstallPlugin`."""

    def install_plugin(source: Path | str) -> InstalledPlugin:
        path = (request.node.path.parent / source).resolve()
        return InstalledPlugin(_installations(path), tmp_path / "user")

    return install_plugin
