"""A host with a plugin that answers requests in every way, behind the real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from helpers.served import Site, served

from tavern_host import Host

ACME = Path(__file__).parent / "plugins" / "acme_web"


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """Serve a project with the sample and the plugin `acme-web`."""
    async with Host(tmp_path / "inn", plugins=[ACME], trust=["acme-web"], sample=True) as host, served(host) as opened:
        yield opened
