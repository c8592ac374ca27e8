"""Fixtures: the page of a served project in a browser, which all tests of a process share with a loop of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser
from studio_bench import WIDE, Studio, browsing, show

from tavern_host import Host
from tavern_host.testing.http import HttpClient, served


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makemodule(module_path: Path) -> Generator[None, pytest.Module, pytest.Module]:
    """Let tests run in the loop of the browser."""
    module = yield
    if module_path.stem != "test_page":
        module.add_marker(pytest.mark.asyncio(loop_scope="session"))
    return module


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Give the browser."""
    async with asynccontextmanager(browsing)() as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def site(tmp_path: Path) -> AsyncIterator[HttpClient]:
    """Serve a fresh project with the sample."""
    async with Host(tmp_path / "inn", sample=True) as host, served(host) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def studio(browser: Browser, site: HttpClient) -> AsyncIterator[Studio]:
    """Return the page on a fresh project with the sample; whatever went wrong on the page fails the test."""
    context = await browser.new_context(**WIDE)
    studio = await show(context, site)
    yield studio
    await context.close()
    assert studio.mistakes == []
