"""A host whose project takes files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tavern_host import Host
from tests.importers.imports_bench import Imports


@pytest.fixture
async def imports(tmp_path: Path) -> AsyncIterator[Imports]:
    async with Host(tmp_path / "project") as host:
        yield Imports(host)
