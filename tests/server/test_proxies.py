"""The host reaches out through the proxies that the environment or the operator names, wherever it reaches out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from documentation.pages import ROOT
from helpers.command_line import tavern
from helpers.model_server import model_server, says
from helpers.repetition import Failures
from helpers.upstream_proxy import UpstreamProxy, set_variables, upstream_proxy
from helpers.waiting import following, until

from tavern_host import LLM, Host
from tavern_host.common.proxies import ProxySettings, proxy_for, proxy_variables, through
from tavern_host.contracts.errors import Misconfigured, TavernError
from tavern_llm.api.llm import ChatMessage, LlmRequest
from tests.scripts.proxied import telling_server

PROXY = "http://proxy.example:3128"
OWN_CLIENTS = {
    "tavern_host/context/facilities.py": "the session of all plugins",
    "plugins/tavern_scripts/api/outgoing.py": "connects to addresses that it has looked at, or asks for the proxy",
    "plugins/tavern_mcp/transport.py": "a client of its own, which is given the proxy",
    "plugins/tavern_scripts/network/proxy.py": "what scripts reach, unless that is through the proxy",
    "plugins/tavern_scripts/network/upstream.py": "what scripts reach through the proxy",
    "plugins/tavern_operations/handing_over.py": "the server of this machine",
    "plugins/tavern_isolation/child/outside.py": "the session of a plugin in its own process",
    "plugins/tavern_isolation/link.py": "one end of a pair of sockets",
    "plugins/tavern_containers/canary.py": "the host of its own canary, which must not be reached",
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
        for variables, proxies, address, expected in rows:
            with failures.row((variables, proxies, address)), monkeypatch.context() as patch:
                set_variables(patch, **variables)
                assert proxy_for(address, proxies) == expected
    assert through("http://ann:hush@proxy.example:3128/") == " through the proxy http://proxy.example:3128"


def test_a_proxy_that_is_not_of_http_is_refused_wherever_it_is_set(
    operator_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for other in ("socks5://ann:hush@proxy.example:1080", "SOCKS5h://ann:hush@proxy.example", "ftp://proxy.example"):
        monkeypatch.setenv("HTTPS_PROXY", other)
        for ask in (lambda: proxy_for("https://a.example/"), proxy_variables):
            with pytest.raises(Misconfigured, match="and must be http://HOST:PORT or https://HOST:PORT") as refused:
                ask()
            assert "HTTPS_PROXY names" in refused.value.message and "hush" not in refused.value.message
        file = operator_folders / "config" / "host.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"proxy": {"https": other}}))
        done = tavern("plugins", "list")
        assert done.code == 2 and "proxy.https" in done.err and "Traceback" not in done.err
        assert "must be http://HOST:PORT or https://HOST:PORT; proxies of the kind SOCKS are not used" in done.err
        assert "hush" not in done.err


def test_programs_get_the_proxies_that_the_host_has(monkeypatch: pytest.MonkeyPatch) -> None:
    here = "localhost,127.0.0.1,::1"
    rows: list[tuple[dict[str, str], ProxySettings | None, dict[str, str]]] = [
        ({}, None, {}),
        ({"https_proxy": PROXY}, None, {"HTTPS_PROXY": PROXY, "NO_PROXY": here}),
        ({"HTTP_PROXY": PROXY, "NO_PROXY": "b.example"}, None, {"HTTP_PROXY": PROXY, "NO_PROXY": f"b.example,{here}"}),
        ({"HTTP_PROXY": PROXY, "NO_PROXY": "*"}, None, {}),
        ({"HTTP_PROXY": "http://other"}, ProxySettings(), {}),
        (
            {"HTTP_PROXY": "http://other", "NO_PROXY": "*"},
            ProxySettings.model_validate({"https": PROXY, "except": ["a", "b"]}),
            {"HTTPS_PROXY": PROXY, "NO_PROXY": f"a,b,{here}"},
        ),
    ]
    for variables, settings, expected in rows:
        with monkeypatch.context() as patch:
            set_variables(patch, **variables)
            assert proxy_variables(settings) == expected


async def get(host: Host, url: str) -> str:
    """Return the answer to the session of a plugin."""
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
    """Return the answer of a model at an address, or the message of its error."""
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
    said = await ask(tmp_path / "gone", "http://models.example/v1")
    assert f"through the proxy {proxy.address}, which cannot be reached itself" in said


def test_every_client_is_one_that_knows_the_proxies() -> None:
    """A file that makes connections of its own stands in the table, with what it does about proxies."""
    folders = (ROOT / "tavern_host", ROOT / "plugins")
    files = [file for folder in folders for file in folder.rglob("*.py") if "node_modules" not in file.parts]
    found = {str(file.relative_to(ROOT)) for file in files if CLIENT.search(file.read_text(encoding="utf-8"))}
    assert {name for name in found if "testing" not in name} == set(OWN_CLIENTS)
