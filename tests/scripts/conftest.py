"""Hosts with scripts, and servers of packages with what installs from them."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tavern_host.projects import Folders
from tests.scripts.packagehouse import Index, Workshop, index
from tests.scripts.scripthost import Scripts, scripts_of


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_scripts(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scripts]:
    """The scripts of one host for a module, which says `pytestmark = pytest.mark.asyncio(loop_scope="module")`."""
    place = tmp_path_factory.mktemp("scripts")
    async with scripts_of(place, folders_of=Folders(*(place / name for name in ("config", "state", "data")))) as opened:
        yield opened


@pytest.fixture
def scripts(module_scripts: Scripts) -> Scripts:
    """The scripts of the module's host, without any files when a test begins."""
    for name in ("scripts", "files"):
        shutil.rmtree(module_scripts.host.project.root / name, ignore_errors=True)
        (module_scripts.host.project.root / name).mkdir()
    return module_scripts


@pytest.fixture
async def house() -> AsyncIterator[Index]:
    """A server of packages."""
    async with index() as served:
        yield served


@pytest.fixture
async def elsewhere() -> AsyncIterator[Index]:
    """A server of packages that nothing should be fetched from."""
    async with index() as served:
        yield served


@pytest.fixture
def shop(tmp_path: Path, house: Index) -> Workshop:
    """What builds environments of the packages of `house`."""
    return Workshop(tmp_path, house)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder on a machine that says nothing to pip, uv and npm."""
    monkeypatch.setattr("tavern_scripts.environments.python_indexes.SYSTEM_FILES", ())
    monkeypatch.setattr("tavern_scripts.environments.node_registries.SYSTEM_FILES", ())
    return tmp_path
