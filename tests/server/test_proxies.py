"""The host reaches out through the proxies that the environment or the operator names, wherever it reaches out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from documentation.pages import ROOT
from helpers.model_server import model_server, says
from helpers.repetition import Failures
from helpers.upstream_proxy import UpstreamProxy, upstream_proxy
from helpers.waiting import following, until

from tavern_host import LLM, Host
from tavern_host.contracts.errors import ServiceUnavailable, TavernError
from tavern_host.contracts.llm import ChatMessage, LlmRequest
from tavern_host.contracts.proxies import ProxySettings, proxy_for, through
from tavern_host.testing.http import served
from tests.scripts.proxied import telling_server

PROXY = "http://proxy.example:3128"
OWN_CLIENTS = {
    "tavern_host/context/facilities.py": "the session of all plugins",
    "plugins/tavern_tools/tasks/callbacks.py": "connects to addresses that it has looked at, or asks for the proxy",
    "plugins/tavern_mcp/transport.py": "a client of its own, which is given the proxy",
    "plugins/tavern_scripts/network/proxy.py": "what scripts reach, unless that is through the proxy",
    "plugins/tavern_scripts/network/upstream.py": "what scripts reach through the proxy",
    "plugins/tavern_operations/handing_over.py": "the server of this machine",
}
"""Which files make connections, and to what."""
CLIENT = re.compile(r"ClientSession\(|AsyncClient\(|open_connection\(|create_connection\(|urlopen\(|HTTPS?Connection\(")


def test_which_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ProxySettings.model_validate({"https": PROXY, "except": ["inn.example", ".local.example"]})
    rows: list[tuple[dict[str, str], ProxySettings | None, str, str | None]] = [
        ({}, None, "https://a.example/", None),
        ({"HTTPS_PROXY": PROXY}, None, "https://a.example/", PROXY),
        ({"https_proxy": PROXY}, None, "https://a.example:8443/x?y", PROXY),
        ({"HTTPS_PROXY": PROXY}, None, "http://a.example/", None),
        ({"HTTP_PROXY": "proxy.example:3128"}, None, "http://a.example/", PROXY),
        ({"HTTP_PROXY": PROXY, "NO_PROXY": "b.example,.a.example"}, None, "http://x.a.example/", None),
        ({"HTTP_PROXY": PROXY, "NO_PROXY": "b.example"}, None, "http://a.example/", PROXY),
        ({"HTTP_PROXY": PROXY, "NO_PROXY": "*"}, None, "http://a.example/", None),
        *(({"HTTP_PROXY": PROXY}, None, f"http://{own}:9/", None) for own in ("localhost", "127.0.0.1", "[::1]")),
        ({"HTTPS_PROXY": "http://other"}, settings, "https://a.example/", PROXY),
        ({"HTTP_PROXY": "http://other"}, settings, "http://a.example/", None),
        ({}, settings, "https://inn.example/", None),
        ({}, settings, "https://x.local.example/", None),
        ({"HTTPS_PROXY": PROXY}, ProxySettings(), "https://a.example/", None),
    ]
    with Failures() as failures:
        for variables, given, address, expected in rows:
            with failures.row((variables, given, address)), monkeypatch.context() as patch:
                for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
                    patch.delenv(name, raising=False)
                    patch.delenv(name.lower(), raising=False)
                for name, value in variables.items():
                    patch.setenv(name, value)
                assert proxy_for(address, given) == expected
    assert through("http://ann:hush@proxy.example:3128/") == " through the proxy http://proxy.example:3128"


async def get(host: Host, url: str) -> str:
    """Return what is answered to the session of a plugin."""
    async with host._manager.active["tavern-llm"].context.http.session().get(url) as answer:
        return await answer.text()


async def test_the_session_of_a_plugin_uses_the_proxy_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with telling_server() as told, upstream_proxy(told.port) as proxy, Host(tmp_path / "inn") as host:
        monkeypatch.setenv("HTTP_PROXY", proxy.address.replace("//", "//ann:hush@"))
        assert await get(host, "http://inn.example/a") == "hello from /a"
        assert proxy.asked == ["GET http://inn.example/a"]
        assert "Proxy-Authorization: Basic YW5uOmh1c2g=" in proxy.heads[0]
        assert await get(host, f"http://127.0.0.1:{told.port}/b") == "hello from /b"
        assert len(proxy.heads) == 1


async def test_the_operators_proxy_takes_the_place_of_the_environments(
    tmp_path: Path, operator_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = operator_folders / "config" / "host.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    async with telling_server() as told, upstream_proxy(told.port) as first, upstream_proxy(told.port) as second:
        monkeypatch.setenv("HTTP_PROXY", first.address)
        async with following(Host(tmp_path / "inn")) as host:
            await get(host, "http://inn.example/a")
            file.write_text(json.dumps({"proxy": {"http": second.address}}))
            await until(lambda: reached(host, second))
            assert first.asked[0] == "GET http://inn.example/a"


async def reached(host: Host, proxy: UpstreamProxy) -> bool:
    await get(host, "http://inn.example/again")
    return bool(proxy.heads)


def model(url: str) -> dict[str, Any]:
    far = {"adapter": "openai", "base_url": url, "model": "tiny", "retry_seconds": 0}
    return {"extensions.tavern-llm.models": {"far": far}}


async def ask(project: Path, url: str) -> str:
    """Return what a model at an address says, or what is said of it."""
    async with Host(project, settings=model(url)) as host:
        request = LlmRequest(model="far", messages=[ChatMessage(role="user", content="Hi")])
        try:
            return (await host.services.get(LLM).complete(request)).text
        except TavernError as error:
            return error.message


async def test_a_model_is_reached_through_the_proxy_which_failures_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with model_server(default=says("Hello.")) as server, upstream_proxy() as proxy:
        proxy.leads_to = urlsplit(server.base_url).port or 0
        monkeypatch.setenv("HTTP_PROXY", proxy.address)
        assert await ask(tmp_path / "a", "http://models.example/v1") == "Hello."
        assert proxy.asked == ["POST http://models.example/v1/chat/completions"]
    async with upstream_proxy(refuses_with="502 Cannot Resolve") as proxy:
        for variable, scheme in (("HTTP_PROXY", "http"), ("HTTPS_PROXY", "https")):
            monkeypatch.setenv(variable, proxy.address.replace("//", "//ann:hush@"))
            said = await ask(tmp_path / scheme, f"{scheme}://models.example/v1")
            assert f"through the proxy {proxy.address}" in said and "502" in said and "hush" not in said
    said = await ask(tmp_path / "gone", "http://models.example/v1")
    assert f"through the proxy {proxy.address}, which cannot be reached itself" in said


async def test_a_name_that_has_no_address_says_that_no_proxy_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    said = await ask(tmp_path / "inn", "http://models.invalid/v1")
    assert "its name has no address, and no proxy is set for it (HTTPS_PROXY, HTTP_PROXY" in said


async def test_alarms_reach_their_webhook_through_the_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"extensions.tavern-alarms.webhook": "http://alarms.example/x", "extensions.tavern-alarms.denials": 2}
    async with telling_server() as told, upstream_proxy(told.port) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.address)
        async with Host(tmp_path / "inn", serving=True, settings=settings) as host, served(host) as site:
            for _ in range(4):
                await site.get("/api/me", headers={"Authorization": "Bearer none"})
            await until(lambda: proxy.asked)
            assert proxy.asked[0] == "POST http://alarms.example/x"


async def test_packages_and_advisories_name_the_proxy_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tavern_advisories.advisories import _download

    async with upstream_proxy(refuses_with="502 No") as proxy, Host(tmp_path / "inn", serving=True) as host:
        monkeypatch.setenv("HTTPS_PROXY", proxy.address)
        context = host._manager.active["tavern-advisories"].context
        with pytest.raises(ServiceUnavailable, match=f"through the proxy {proxy.address}"):
            await _download(context, "https://osv.example/all.zip", tmp_path / "all.zip")
        assert proxy.asked == ["CONNECT osv.example:443"]


def test_every_client_is_one_that_knows_the_proxies() -> None:
    """A file that makes connections of its own stands in the table, with what it does about proxies."""
    folders = (ROOT / "tavern_host", ROOT / "plugins")
    files = [file for folder in folders for file in folder.rglob("*.py") if "node_modules" not in file.parts]
    found = {str(file.relative_to(ROOT)) for file in files if CLIENT.search(file.read_text(encoding="utf-8"))}
    assert {name for name in found if "testing" not in name} == set(OWN_CLIENTS)
