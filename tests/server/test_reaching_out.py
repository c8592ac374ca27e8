"""Every way in which the host reaches out goes through the proxy, keeps to `NO_PROXY`, and says what was not found.

The installer of packages is a program of its own: `tests/real/packages/test_packages_behind_a_proxy.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.upstream_proxy import set_variables, upstream_proxy

from tavern_host import LLM, Host, clock
from tavern_host.common.proxies import NO_PROXY_HINT
from tavern_host.contracts.accounts import ACCOUNTS
from tavern_host.contracts.errors import TavernError
from tavern_host.testing.http import HttpClient, served
from tavern_llm.api.llm import ChatMessage, LlmRequest
from tavern_mcp.entry import servers_of
from tavern_operations.advisories.comparing import compared
from tavern_operations.alarms.following import _sent
from tavern_scripts.network.proxy import Proxy
from tavern_scripts.network.proxy_limits import Connection, ProxyLimits
from tavern_tools.api.toolcalls import TaskStatus, ToolTask
from tavern_tools.tasks.callbacks import Callbacks
from tests.scripts.proxied import Proxied

FAR = "https://far.invalid"
SETTINGS: dict[str, Any] = {
    "extensions.tavern-llm.models": {
        "far": {"adapter": "openai", "base_url": f"{FAR}/v1", "model": "m", "retry_seconds": 0}
    },
    "extensions.tavern-mcp.servers": {"far": {"url": f"{FAR}/mcp"}},
    "extensions.tavern-accounts.openid": {"issuer": FAR, "clientId": "inn"},
    "extensions.tavern-packages.index": f"{FAR}/index.json",
    "extensions.tavern-tools.callbackHosts": ["far.invalid:443"],
    "extensions.tavern-tools.callbackSecret": "a secret of the operator",
}


def context(host: Host, plugin: str) -> Any:
    return host._manager.active[plugin].context


async def a_model(host: Host, site: HttpClient) -> Any:
    await host.services.get(LLM).complete(LlmRequest(model="far", messages=[ChatMessage(role="user", content="Hi")]))


async def an_mcp_server(host: Host, site: HttpClient) -> Any:
    return await (await servers_of(context(host, "tavern-mcp"))).connect("far")


async def a_login(host: Host, site: HttpClient) -> Any:
    await host.services.get(ACCOUNTS).begin_openid("http://127.0.0.1/back", call=host.call())


async def the_index_of_plugins(host: Host, site: HttpClient) -> Any:
    return await (await site.get("/api/packages/index?q=x")).text()


async def the_wheel_of_a_plugin(host: Host, site: HttpClient) -> Any:
    return await (await site.post("/api/packages", json={"what": f"{FAR}/acme-1.0-py3-none-any.whl"})).text()


async def advisories(host: Host, site: HttpClient) -> Any:
    await compared(context(host, "tavern-operations"), f"{FAR}/all.zip")


async def the_webhook_of_alarms(host: Host, site: HttpClient) -> Any:
    return await _sent(context(host, "tavern-operations"), f"{FAR}/alarm", "msg_1", b"{}")


async def a_callback(host: Host, site: HttpClient) -> Any:
    tools = context(host, "tavern-tools")
    task = ToolTask(
        id="t", tool_id="t", status=TaskStatus.DONE, principal=host.call().principal, created_at=clock.now()
    )
    return (await Callbacks(tools.settings, tools.http).tell(f"{FAR}/told", task)).callback.error


async def what_a_script_reaches(host: Host, site: HttpClient) -> Any:
    log: list[Connection] = []
    upstream = context(host, "tavern-scripts").http.proxy
    async with Proxy(["far.invalid:443"], ProxyLimits(), log.append, upstream=upstream) as path:
        proxied = Proxied(path, log)
        await proxied.say(b"CONNECT far.invalid:443 HTTP/1.1\r\nHost: far.invalid\r\n\r\n", end=True)
        return (await proxied.last()).reason


WAYS: list[Callable[[Host, HttpClient], Awaitable[Any]]] = [
    *(a_model, an_mcp_server, a_login, the_index_of_plugins, the_wheel_of_a_plugin, advisories, the_webhook_of_alarms),
    *(a_callback, what_a_script_reaches),
]


async def answers(project: Path) -> dict[str, str]:
    """Return the answers of the far host or their errors, by way."""
    said = {}
    async with Host(project, settings=SETTINGS) as host, served(host) as site:
        for way in WAYS:
            try:
                said[way.__name__] = str(await way(host, site))
            except TavernError as error:
                said[way.__name__] = error.message
    return said


async def test_every_way_goes_through_the_proxy_and_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with upstream_proxy(refuses_with="502 No") as proxy:
        set_variables(monkeypatch, HTTPS_PROXY=proxy.address.replace("//", "//ann:hush@"))
        said = await answers(tmp_path / "inn")
    assert {way: text for way, text in said.items() if f"through the proxy {proxy.address}" not in text} == {}
    assert {way: text for way, text in said.items() if "hush" in text} == {}
    assert len(proxy.asked) >= len(WAYS) and set(proxy.asked) == {"CONNECT far.invalid:443"}


async def test_every_way_keeps_to_no_proxy_and_says_that_none_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with upstream_proxy() as proxy:
        set_variables(monkeypatch, HTTPS_PROXY=proxy.address, NO_PROXY=".invalid")
        said = await answers(tmp_path / "inn")
    assert {way: text for way, text in said.items() if NO_PROXY_HINT not in text} == {}
    assert proxy.asked == []


async def test_every_way_says_which_proxies_there_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_variables(monkeypatch, HTTPS_PROXY="socks5://ann:hush@proxy.example:1080")
    message = "HTTPS_PROXY names socks5://proxy.example:1080, and must be http://HOST:PORT or https://HOST:PORT"
    assert {way: text for way, text in (await answers(tmp_path / "inn")).items() if message not in text} == {}
