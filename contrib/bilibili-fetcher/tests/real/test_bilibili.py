"""The two tools, with a small server that answers as the API of Bilibili does."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tavern_host import TOOL_MANAGER, Host
from tavern_host.contracts.audit import AUDIT
from tavern_host.testing import MakeHost
from tavern_scripts.api.scripts import SCRIPT_EXECUTION
from tavern_tools.api.toolcalls import ToolCallRequest, ToolErrorType

PLUGIN = Path(__file__).parents[2]
GET, FORMAT = "BilibiliFetch:getSubtitle", "BilibiliFetch:formatSubtitle"
SETTING = f"extensions.bilibili-fetcher.tools.{GET}."
VIDEO = "BV1xx411c7mD"
SILENT, ODD = "BV1xx411c7mE", "BV1xx411c7mF"
COOKIE = "SESSDATA=d0n0tsh0w"

pytestmark = pytest.mark.tavern(plugins=[PLUGIN])


class Bilibili:
    """A server with one video of two parts, of which the second one has subtitles for those only who are logged in, one
    without subtitles, and one whose subtitles are odd."""

    def __init__(self) -> None:
        self.cookies: dict[str, list[str]] = {}
        self.address = ""

    async def start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/x/web-interface/view", self.view)
        app.router.add_get("/x/player/wbi/v2", self.player)
        app.router.add_get("/subtitle/{name}", self.subtitle)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    def saw(self, request: web.Request) -> None:
        self.cookies.setdefault(request.path, []).append(request.headers.get("Cookie", ""))

    async def view(self, request: web.Request) -> web.Response:
        self.saw(request)
        if request.query["bvid"] in (SILENT, ODD):
            cid = {SILENT: 21, ODD: 22}[request.query["bvid"]]
            return web.json_response({"code": 0, "data": {"title": "", "cid": cid, "pages": None}})
        if request.query["bvid"] != VIDEO:
            return web.json_response({"code": -404, "message": "啥都木有", "data": None})
        pages = [{"cid": 11, "page": 1}, {"cid": 12, "page": 2}]
        return web.json_response({"code": 0, "data": {"bvid": VIDEO, "title": "一个例子", "cid": 11, "pages": pages}})

    async def player(self, request: web.Request) -> web.Response:
        self.saw(request)
        tracks = [{"lan": "zh-CN", "subtitle_url": "/subtitle/zh"}, {"lan": "en", "subtitle_url": "/subtitle/en"}]
        if request.query["cid"] == "21":
            return web.json_response({"code": 0, "data": {"subtitle": None}})
        if request.query["cid"] == "22":
            tracks = [{"lan": "ja", "subtitle_url": ""}, {"lan": "en", "subtitle_url": "/subtitle/odd"}]
        if request.query["cid"] == "12" and "SESSDATA=" not in request.headers.get("Cookie", ""):
            tracks = []
        return web.json_response({"code": 0, "data": {"subtitle": {"subtitles": tracks}}})

    async def subtitle(self, request: web.Request) -> web.Response:
        self.saw(request)
        if request.match_info["name"] == "odd":
            return web.json_response(["no", "body"])
        texts = {"zh": ["大家好", "今天…"], "en": ["Hello", "Today…"]}[request.match_info["name"]]
        body = [{"from": n + 0.5, "to": n + 1.25, "content": text, "sid": n} for n, text in enumerate(texts)]
        return web.json_response({"body": body, "lang": request.match_info["name"]})


@pytest.fixture
async def bilibili() -> AsyncIterator[Bilibili]:
    server = Bilibili()
    runner = await server.start()
    yield server
    await runner.cleanup()


@pytest.fixture
def settings(bilibili: Bilibili) -> dict[str, Any]:
    """Return the settings of the operator: the address of the API, and the permission to reach it."""
    allowed = [bilibili.address.removeprefix("http://")]
    return {f"{SETTING}apiBase": bilibili.address, "extensions.tavern-scripts.allowedHosts": allowed}


async def call(host: Host, tool: str, **arguments: Any) -> Any:
    if not any(report.chosen for report in await host.services.get(SCRIPT_EXECUTION).backends()):
        pytest.skip("there is no sandbox for scripts here")
    return await host.services.get(TOOL_MANAGER).call(ToolCallRequest(tool_id=tool, arguments=arguments))


# --- getting subtitles ----------------------------------------------------------------------------


@pytest.mark.parametrize("url", [VIDEO, f"https://www.bilibili.com/video/{VIDEO}/?spm=1", f"  {VIDEO}?p=1"])
async def test_a_video_has_its_subtitles(make_host: MakeHost, settings: Any, url: str) -> None:
    async with make_host(settings=settings) as host:
        result = await call(host, GET, url=url)
        assert result.status == "done", result.error
        assert result.structured == {
            "bvid": VIDEO,
            "title": "一个例子",
            "language": "zh-CN",
            "languages": ["zh-CN", "en"],
            "text": "大家好\n今天…",
            "lines": [{"from": 0.5, "to": 1.25, "content": "大家好"}, {"from": 1.5, "to": 2.25, "content": "今天…"}],
        }


async def test_a_language_can_be_chosen(make_host: MakeHost, settings: Any) -> None:
    async with make_host(settings=settings) as host:
        assert (await call(host, GET, url=VIDEO, language="en")).structured["text"] == "Hello\nToday…"
        error = (await call(host, GET, url=VIDEO, language="fr")).error
        assert error.message.endswith(f"{VIDEO} has no subtitles in fr; there is zh-CN, en")


async def test_the_cookie_opens_more_and_goes_to_the_api_alone(
    make_host: MakeHost, settings: Any, bilibili: Bilibili
) -> None:
    async with make_host(settings=settings) as host:
        error = (await call(host, GET, url=f"{VIDEO}?p=2")).error
        assert "many are shown only with the cookie of a login (setting bilibiliCookie)" in error.message
    bilibili.cookies.clear()
    async with make_host(settings={**settings, f"{SETTING}bilibiliCookie": COOKIE}) as host:
        result = await call(host, GET, url=f"{VIDEO}?p=2")
        assert result.structured["text"] == "大家好\n今天…"
        assert bilibili.cookies == {
            "/x/web-interface/view": [COOKIE],
            "/x/player/wbi/v2": [COOKIE],
            "/subtitle/zh": [""],
        }
        entries = await host.services.get(AUDIT).tail(1000)
        assert "d0n0tsh0w" not in json.dumps([entry.to_json() for entry in entries])


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://example.com/", "is neither the address nor the BV number of a Bilibili video"),
        ("BV0000000000", "Bilibili refused: 啥都木有"),
        (f"{VIDEO}?p=9", f"{VIDEO} has 2 parts; there is no part 9"),
        (SILENT, f"{SILENT} has no subtitles that can be seen"),
        (ODD, f"the subtitles of {ODD} in en are in a form that is not known"),
    ],
)
async def test_what_is_wrong_is_told(make_host: MakeHost, settings: Any, url: str, said: str) -> None:
    async with make_host(settings=settings) as host:
        error = (await call(host, GET, url=url)).error
        assert error.type is ToolErrorType.SCRIPT
        assert said in error.message


async def test_a_server_that_is_gone_is_told_of(make_host: MakeHost, settings: Any) -> None:
    settings = {**settings, f"{SETTING}apiBase": "http://127.0.0.1:9"}
    settings["extensions.tavern-scripts.allowedHosts"] = ["127.0.0.1:9"]
    async with make_host(settings=settings) as host:
        assert "127.0.0.1:9" in (await call(host, GET, url=VIDEO)).error.message


async def test_without_the_operators_leave_it_reaches_nothing(
    make_host: MakeHost, settings: Any, bilibili: Bilibili
) -> None:
    del settings["extensions.tavern-scripts.allowedHosts"]
    async with make_host(settings=settings) as host:
        error = (await call(host, GET, url=VIDEO)).error
        assert error.type is ToolErrorType.SCRIPT
        assert "the operator does not allow it" in str(error.details)
        assert bilibili.cookies == {}


async def test_many_calls_at_once_do_not_mix(make_host: MakeHost, settings: Any) -> None:
    async with make_host(settings=settings) as host:
        await call(host, GET, url=VIDEO)
        found = await asyncio.gather(*(call(host, GET, url=VIDEO, language=lan) for lan in ["en", "zh-CN"] * 4))
        assert [result.structured["language"] for result in found] == ["en", "zh-CN"] * 4


# --- writing them ---------------------------------------------------------------------------------

LINES = [{"from": 0, "to": 1.5, "content": "大家好"}, {"from": 3661.001, "to": 3662, "content": "a --> b\n\nc"}]


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js: apt install nodejs")
@pytest.mark.parametrize(
    ("form", "text"),
    [
        (
            "srt",
            "1\n00:00:00,000 --> 00:00:01,500\n大家好\n\n2\n01:01:01,001 --> 01:01:02,000\na → b\nc\n",
        ),
        (
            "vtt",
            "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\n大家好\n\n01:01:01.001 --> 01:01:02.000\na → b\nc\n",
        ),
        ("text", "大家好\na --> b\n\nc"),
    ],
)
async def test_subtitles_are_written_in_a_form(host: Host, form: str, text: str) -> None:
    result = await call(host, FORMAT, lines=LINES, format=form)
    assert result.status == "done", result.error
    assert result.structured == {"format": form, "text": text}


# --- the plugin -----------------------------------------------------------------------------------


async def test_it_is_a_plugin_of_two_script_tools(host: Host) -> None:
    info = host.plugin("bilibili-fetcher")
    assert info.problems == []
    tools = [tool for tool in await host.services.get(TOOL_MANAGER).list_tools() if tool.plugin == "bilibili-fetcher"]
    assert [(tool.id, tool.kind, tool.unavailable) for tool in tools] == [
        (FORMAT, "script", None),
        (GET, "script", None),
    ]
