"""The program that installs packages reaches them as the host reaches everything: through the proxy that is named."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from aiohttp.typedefs import Handler
from helpers.upstream_proxy import set_variables, upstream_proxy
from helpers.wheel_maker import wheel

from tavern_host.common.proxies import NO_PROXY_HINT, ProxySettings, proxy_variables
from tavern_host.contracts.errors import Conflict, Misconfigured
from tavern_packages.installer import Installer, Wanted

OTHER = "http://127.0.0.1:9"


@pytest.fixture(params=["uv", "pip"])
def name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Return a program that installs, set up for an index which only the proxy can reach."""
    if request.param == "pip" and importlib.util.find_spec("pip") is None:
        pytest.skip("there is no pip in this environment")
    set_variables(monkeypatch)
    index, cache = "http://index.invalid/simple", str(tmp_path / "cache")
    uv = {"UV_DEFAULT_INDEX": index, "UV_CACHE_DIR": cache, "UV_HTTP_RETRIES": "0"}
    pip = {"PIP_INDEX_URL": index, "PIP_TRUSTED_HOST": "index.invalid", "PIP_RETRIES": "1", "PIP_CACHE_DIR": cache}
    for variable, value in (uv | pip).items():
        monkeypatch.setenv(variable, value)
    return str(request.param)


async def installed(name: str, settings: ProxySettings | None, work: Path) -> list[str]:
    """Return the files of a folder after the distribution dep-a was installed into it."""
    work.mkdir()
    installer, wanted = Installer(name, proxy_variables(settings)), Wanted("dep-a", "dep-a")
    found = await installer.resolve(wanted, [], work)
    await installer.unpack(wanted, found.values(), work / "into")
    return sorted(path.name for path in (work / "into").glob("dep_a.py"))


async def test_packages_are_resolved_and_downloaded_through_the_proxy(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = wheel(tmp_path, "dep-a", "1.0", {"dep_a.py": "VERSION = 1\n"})

    asked: list[str] = []

    @web.middleware
    async def told(request: web.Request, handler: Handler) -> web.StreamResponse:
        asked.append(f"{request.host}{request.path}")
        return await handler(request)

    async def page(request: web.Request) -> web.Response:
        return web.Response(text=f'<a href="/files/{file.name}">{file.name}</a>', content_type="text/html")

    app = web.Application(middlewares=[told])
    app.router.add_get("/simple/dep-a/", page)
    app.router.add_static("/files", tmp_path)
    async with TestServer(app) as server, upstream_proxy(server.port or 0) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.address)
        assert await installed(name, None, tmp_path / "by-variables") == ["dep_a.py"]
        assert {"index.invalid/simple/dep-a/", f"index.invalid/files/{file.name}"} <= {*asked}
        # In whose place is what the operator sets.
        others = {
            "HTTP_PROXY": OTHER,
            "http_proxy": OTHER,
            "NO_PROXY": "*",
            "UV_NO_CACHE": "1",
            "PIP_NO_CACHE_DIR": "1",
        }
        for variable, value in others.items():
            monkeypatch.setenv(variable, value)
        asked.clear()
        operators = ProxySettings(http=proxy.address)
        assert await installed(name, operators, tmp_path / "by-setting") == ["dep_a.py"]
        assert {"index.invalid/simple/dep-a/", f"index.invalid/files/{file.name}"} <= {*asked}


async def test_what_needs_no_proxy_is_looked_up_and_says_that_none_is_set(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with upstream_proxy() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.address)
        with pytest.raises(Conflict) as refused:
            await installed(name, ProxySettings(http=proxy.address, **{"except": [".invalid"]}), tmp_path / "a")
        monkeypatch.setenv("http_proxy", proxy.address)
        with pytest.raises(Conflict) as alone:
            await installed(name, ProxySettings(), tmp_path / "b")
        assert proxy.heads == []
    assert NO_PROXY_HINT in refused.value.message and NO_PROXY_HINT in alone.value.message


def test_a_proxy_of_another_kind_is_refused_before_anything_is_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://proxy.example:1080")
    with pytest.raises(Misconfigured, match="HTTPS_PROXY names socks5://proxy.example:1080"):
        Installer(name, proxy_variables())
