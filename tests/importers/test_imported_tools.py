"""Tools and servers of other programs' files: what is written and set up, before anything of it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.repetition import Failures, refused

from tavern_host import InvalidInput
from tavern_host.contracts.errors import Conflict, ServiceUnavailable
from tavern_host.contracts.plugins import PluginState
from tavern_host.contracts.settings import SETTINGS
from tavern_mcp.api.servers import MCP_SERVERS
from tavern_tools.api.toolcalls import ToolCallRequest
from tavern_tools.api.tools import TOOL_MANAGER
from tests.importers.imports_bench import FILES, Imports
from tests.importers.vcp_plugins import CALCULATOR, NOTES, PROGRAM


def tools_of(imports: Imports, plugin: str) -> dict[str, dict[str, Any]]:
    """Return the tool files of a plugin of the project, by the part of their ids that is their own."""
    folder = imports.host.project.plugins / plugin / "tools"
    found = [json.loads(path.read_text("utf-8")) for path in folder.iterdir()]
    return {one["id"].partition(":")[2]: one for one in found}


async def test_each_operation_of_an_api_is_a_tool_that_waits_for_a_review(imports: Imports) -> None:
    result = await imports.take("petstore.yaml")
    assert [one.id for one in result.things] == [
        *("pet-store", "pet-store:listPets", "pet-store:createPet", "pet-store:显示宠物"),
        *("pet-store:get_outside", "pet-store:api"),
    ]
    assert imports.host.plugin("pet-store").state is PluginState.NEEDS_REVIEW
    tools = tools_of(imports, "pet-store")
    listed = tools["listPets"]["parameters"]
    assert listed["properties"]["limit"] == {"type": "integer", "exclusiveMaximum": 100}
    created = tools["createPet"]["parameters"]
    assert created["properties"]["body"]["allOf"] == [{"$ref": "#/$defs/Pet"}]
    pet = created["$defs"]["Pet"]["properties"]
    assert pet["friend"] == {"$ref": "#/$defs/Pet"}  # it refers to itself
    assert pet["tag"] == {"type": ["string", "null"], "enum": ["a", "b", None]}
    assert tools["显示宠物"]["parameters"]["required"] == ["宠物编号"]
    assert tools["get_outside"]["parameters"]["properties"] == {"x": {}}
    assert tools["listPets"]["securityContext"] == {"networkAccess": {"allowHosts": ["{server}"]}}
    assert "references that lead out of the file or nowhere are left open: https://example.com" in str(result)
    assert "upload: its body is multipart/form-data" in str(result)
    assert "tavern plugins grant pet-store" in result.next_steps[0]
    before = sorted(imports.host.project.plugins.rglob("*"))
    await refused([(imports.take("petstore.yaml"), Conflict, "has a plugin in plugins/pet-store already")])
    assert sorted(imports.host.project.plugins.rglob("*")) == before


async def test_of_an_api_that_is_taken_which_is_picked(imports: Imports) -> None:
    rows = [(["list*"], {"listPets", "api"}), (["pets"], {"listPets", "createPet", "api"})]
    rows += [(["GET /pets*"], {"listPets", "显示宠物", "api"}), (["/outside"], {"get_outside", "api"})]
    with Failures() as failures:
        for number, (only, expected) in enumerate(rows):
            with failures.row(only):
                await imports.take("petstore.yaml", only=only, name=f"shop {number}")
                assert tools_of(imports, f"shop-{number}").keys() == expected
    await refused(
        [
            (imports.take("petstore.yaml", only=["cats"]), InvalidInput, "no operation of the API is picked"),
            (imports.take("a.json", {"swagger": "2.0"}), InvalidInput, "convert it to OpenAPI 3"),
            (imports.take("a.json", {"openapi": "3.1.0", "paths": {}}), InvalidInput, "no operation"),
        ]
    )
    dry = await imports.take("petstore.yaml", dry_run=True)
    assert (len(dry.things), (imports.host.project.plugins / "pet-store").exists()) == (6, False)


def large(operations: int) -> dict[str, Any]:
    """Return an API in which each schema refers to another, in a circle, and one is endless in breadth."""
    schemas: dict[str, Any] = {
        f"S{n}": {
            "properties": {"next": {"$ref": f"#/components/schemas/S{(n + 1) % 50}"}, "d": {"description": "x" * 99}}
        }
        for n in range(50)
    }
    schemas["Wide"] = {"properties": {f"p{n}": {"type": "string", "description": "y" * 90} for n in range(5_000)}}
    paths: dict[str, Any] = {}
    for n in range(operations):
        schema = {"$ref": f"#/components/schemas/{'Wide' if n == 7 else f'S{n % 50}'}"}
        body = {"content": {"application/json": {"schema": schema}}}
        paths[f"/r{n}"] = {"post": {"operationId": f"op{n % 199}", "requestBody": body}}
    return {"openapi": "3.1.0", "info": {"title": "Large"}, "paths": paths, "components": {"schemas": schemas}}


async def test_schemas_that_are_none_are_left_open(imports: Imports) -> None:
    wrong = {"type": "objekt", "required": ["a", "a"], "enum": {}, "exclusiveMaximum": "x"}
    parameters = [{"name": name, "in": "query", "schema": one} for name, one in (("q", wrong), ("r", 3), ("s", [None]))]
    parameters.append({"name": "t", "in": "query", "schema": {"type": "object", "additionalProperties": True}})
    paths = {"/x": {"get": {"operationId": "find", "tags": 3, "parameters": [*parameters, None, {"in": "query"}]}}}
    result = await imports.take("odd.json", {"openapi": "3.0.0", "info": {"title": "Odd"}, "paths": paths})
    assert tools_of(imports, "odd")["find"]["parameters"]["properties"] == {"q": {}, "r": {}, "s": {}, "t": {}}
    assert "schemas that are none are left open" in result.without_effect


async def test_a_large_api_is_bounded_and_names_are_each_ones_own(imports: Imports) -> None:
    result = await imports.take("large.json", large(200))
    assert len(result.things) == 202
    assert len({one.id for one in result.things}) == 202
    assert "schemas that are too large are left open" in result.without_effect
    assert "say where the server is" in str(result.next_steps)
    sizes = [len(path.read_bytes()) for path in (imports.host.project.plugins / "large" / "tools").iterdir()]
    assert (len(sizes), max(sizes) < 200_000) == (201, True)
    with pytest.raises(InvalidInput, match="at most 300 become tools"):
        await imports.take("large.json", large(301))


async def test_a_plugin_of_vcp_keeps_its_program_and_not_its_secrets(imports: Imports, tmp_path: Path) -> None:
    from tests.importers.test_import_manager import packed

    manifest = json.dumps(CALCULATOR)
    files = {"calc/plugin-manifest.json": manifest, "calc/calculator.py": PROGRAM, "calc/config.env": "SECRET_KEY=abc"}
    result = await imports.take("calc.zip", packed(**files), hosts=["api.example.com"])
    folder = imports.host.project.plugins / "sci-calculator"
    assert {path.name for path in (folder / "program").iterdir()} == {
        *("calculator.py", "plugin-manifest.json", "vcp_call.py")
    }
    tool = tools_of(imports, "sci-calculator")["Divide"]
    assert tool["parameters"]["properties"].keys() == {"left", "right"}
    assert [(one["key"], one["type"]) for one in tool["configSchema"]] == [
        ("precision", "number"),
        ("secret_key", "password"),
    ]
    assert tool["securityContext"] == {"networkAccess": {"allowHosts": ["api.example.com"]}}
    assert "its settings file is not copied" in str(result.next_steps)
    await refused(
        [
            (imports.take("plugin-manifest.json", NOTES), InvalidInput, "import its folder, or a ZIP archive of it"),
            (imports.take("m.json", {**NOTES, "pluginType": "service"}), InvalidInput, "and is no tool"),
            (
                imports.take("m.json", {**NOTES, "entryPoint": {"type": "native", "command": "./run.exe a"}}),
                InvalidInput,
                "only those of Python, Node.js and Bun",
            ),
        ]
    )


async def test_servers_of_claude_wait_until_they_are_approved(imports: Imports) -> None:
    result = await imports.take("claude_desktop_config.json")
    assert [one.id for one in result.things] == ["filesystem", "github", "time", "docs"]
    assert result.without_effect == ["GitHub 仓库: autoApprove, disabled"]
    assert "tavern mcp approve github" in str(result.next_steps)
    host = imports.host
    shown = {one.name: one for one in await host.services.get(MCP_SERVERS).servers()}
    assert {one.status for one in shown.values()} == {"unapproved"}
    assert "sets PATHY to the host's variable HOME" in shown["github"].shown
    for name in ("github", "docs"):  # a fast test fails where a process is started
        with pytest.raises(ServiceUnavailable, match="not approved"):
            await host.services.get(MCP_SERVERS).ask(name, "resources", {}, call=host.call())
    called = await host.services.get(TOOL_MANAGER).call(ToolCallRequest(tool_id="mcp:time/now"), call=host.call())
    assert "not approved" in str(called.error)
    values = await host.services.get(SETTINGS).values("tavern-mcp", call=host.call())
    assert "not-a-real-token" not in str(values)
    state = next(path for path in host.folders.state.rglob("settings.json"))
    assert "not-a-real-token" not in state.read_text()
    again = await imports.take("claude_desktop_config.json")
    assert "there is an MCP server github already" in str(again.without_effect)


async def test_servers_that_cannot_be_are_named(imports: Imports) -> None:
    servers: dict[str, Any] = {
        "__proto__": {"command": "x", "sandbox": False, "readOnly": ["*"]},
        "a": {"command": 5},
        "b": {"url": "ftp://x"},
        "c": {"command": "x", "args": "y"},
        "d": {"command": "/bin/x", "args": ["/\0", f"/{'x' * 9000}", str(FILES)]},
    }
    result = await imports.take("mcp.json", {"servers": servers})
    assert [one.id for one in result.things] == ["proto", "d"]
    assert [one.partition(":")[0] for one in result.without_effect] == ["__proto__", "a", "b", "c"]
    shown = {one.name: one.shown for one in await imports.host.services.get(MCP_SERVERS).servers()}
    assert shown["proto"] == ["runs x"]
    assert shown["d"][-1] == f"sees {FILES}"
    await refused(
        [(imports.take("m.json", {"mcpServers": {f"s{n}": {"command": "x"} for n in range(201)}}), InvalidInput, "200")]
    )
