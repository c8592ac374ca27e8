"""Programs that came with files of other programs, in the sandbox."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tavern_host import TOOL_MANAGER, Host
from tavern_host.contracts.settings import SETTINGS, SettingsChange
from tavern_importers.folders import from_path
from tavern_tools.api.toolcalls import ToolCallRequest, ToolResult
from tests.importers.imports_bench import FILES, Imports
from tests.importers.vcp_plugins import write_calculator, write_notes


@pytest.fixture
async def pets() -> AsyncIterator[TestServer]:
    async def answer(request: web.Request) -> web.Response:
        if "gone" in request.path:
            return web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"})
        body = await request.json() if request.can_read_body else None
        key = request.headers.get("X-API-Key")
        return web.json_response({"asked": f"{request.method} {request.raw_path}", "key": key, "body": body})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as server:
        yield server


async def called(host: Host, tool: str, **arguments: Any) -> ToolResult:
    request = ToolCallRequest(tool_id=tool, arguments=arguments)
    return await host.services.get(TOOL_MANAGER).call(request, call=host.call())


async def test_an_api_is_called_with_what_the_operator_set(tmp_path: Path, pets: TestServer) -> None:
    address = f"127.0.0.1:{pets.port}"
    settings: dict[str, Any] = {"extensions.tavern-scripts.allowedHosts": [address]}
    async with Host(tmp_path / "project", settings=settings) as host:
        text = (FILES / "petstore.yaml").read_text("utf-8").replace("8731", str(pets.port))
        await Imports(host).take("petstore.yaml", text.encode())
        denied = await called(host, "pet-store:listPets")
        assert "waits for review" in str(denied.error)
        await host.grant("pet-store")
        unset = await called(host, "pet-store:listPets")
        assert "the setting api_key is not set" in str(unset.error)
        change = SettingsChange(plugin="pet-store", values={"tools.pet-store:api.api_key": "open-sesame-1"})
        await host.services.get(SETTINGS).save(change, call=host.call())
        listed = await called(host, "pet-store:listPets", limit=5, tags=["a", "b c"], filter={"x": "1"})
        asked = "GET /v1/pets?limit=5&tags=a&tags=b+c&filter%5Bx%5D=1"
        assert listed.structured == {"asked": asked, "key": "open-sesame-1", "body": None}
        made = await called(host, "pet-store:createPet", body={"name": "Tom"})
        assert isinstance(made.structured, dict)
        assert made.structured["body"] == {"name": "Tom"}
        shown = await called(host, "pet-store:显示宠物", 宠物编号="a/../b")
        assert shown.structured == {"asked": "GET /v1/pets/a%2F..%2Fb", "key": None, "body": None}
        for wrong, said in (("..", "it is a part of the address"), ("gone", "answered with 302")):
            refused = await called(host, "pet-store:显示宠物", 宠物编号=wrong)
            assert said in str(refused.error)
        about = await called(host, "pet-store:api")
        assert isinstance(about.structured, dict)
        assert about.structured["isSet"] == {"api_key": True}


async def test_plugins_of_vcp_run_as_they_are(tmp_path: Path) -> None:
    async with Host(tmp_path / "project") as host:
        manager = Imports(host).manager
        for folder in (write_calculator(tmp_path / "calc"), write_notes(tmp_path / "notes")):
            file = from_path(folder, ["plugin-manifest.json"])
            result = await manager.import_file(file, call=host.call())
            await host.grant(result.things[0].id)
        divided = await called(host, "sci-calculator:Divide", left="1", right="3")
        assert divided.structured == "结果：0.33"
        failed = await called(host, "sci-calculator:Divide")
        assert "缺少 left" in str(failed.error)
        assert (await called(host, "note-keeper:Create", title="你好")).structured == {"created": "你好"}
        assert (await called(host, "note-keeper:List")).structured == [1, 2]


async def test_functions_for_models_become_drafts_or_workflows(imports: Imports) -> None:
    await imports.take("greeting.json", {"nodes": [], "edges": []})
    result = await imports.take("functions.json")
    tools = imports.host.project.folder("tools")
    greeting = json.loads((tools / "greeting.tool.json").read_text())
    assert greeting["implementation"] == {"type": "workflow", "workflowId": "greeting"}
    weather = json.loads((tools / "get_weather.tool.json").read_text())
    assert weather["parameters"]["required"] == ["city"]
    compile((imports.host.project.root / "scripts" / "get_weather.py").read_text(), "draft", "exec")
    assert result.next_steps == ["write what they do, in scripts/: get_weather"]
    again = await imports.take("functions.json")
    assert (again.things, len(again.without_effect)) == ([], 2)
