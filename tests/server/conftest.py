"""A host with a plugin that answers requests in every way, behind the real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tavern_host import Host
from tavern_host.projects import Folders
from tavern_host.testing.http import HttpClient, served

ACME = Path(__file__).parent / "plugins" / "acme_web"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HttpClient]:
    """Serve a project with the sample and the plugin `acme-web` to all tests of a module."""
    place = tmp_path_factory.mktemp("server")
    folders = Folders(place / "config", place / "state", place / "data")
    async with (
        Host(place / "inn", plugins=[ACME], trust=["acme-web"], sample=True, folders=folders) as host,
        served(host) as opened,
    ):
        yield opened


@pytest.fixture
async def own_site(tmp_path: Path) -> AsyncIterator[HttpClient]:
    """Serve such a project to one test alone."""
    async with Host(tmp_path / "inn", plugins=[ACME], trust=["acme-web"], sample=True) as host, served(host) as opened:
        yield opened


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run a test in the loop of its module's server."""
    for item in items:
        if ACME.parents[1] in item.path.parents and "site" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)
