"""What runs single nodes in these tests; see `node_bench`."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from node_bench import HostedNodes, Nodes

from tavern_host import Host


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Host]:
    """Start a host on a project with the module's `PROJECT_FILES`, by name, and its `SETTINGS`."""
    project = tmp_path_factory.mktemp("project")
    for name, text in getattr(request.module, "PROJECT_FILES", {}).items():
        (project / name).write_text(text, encoding="utf-8")
    async with Host(project=project, settings=getattr(request.module, "SETTINGS", {})) as host:
        yield host


@pytest.fixture
def hosted(module_host: Host) -> HostedNodes:
    """Return the nodes of a module's host, without files. The module says `asyncio(loop_scope="module")`."""
    files = module_host.project.root / "files"
    shutil.rmtree(files, ignore_errors=True)
    return HostedNodes(module_host, files)
