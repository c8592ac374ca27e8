"""The platform's own tool files, and the plugins that its documents show with them: listed, and carried out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from example_bench import OpenBench
from platform_documents import block, blocks, data_file, plain_json

from tavern_host.contracts.toolcalls import ToolErrorType
from tavern_tools.catalog.files import read_file

SUBTITLES = "import json, sys\nprint(json.dumps({'subtitle': 'of ' + json.load(sys.stdin)['url']}))\n"
BILIBILI = {
    "000 §6.3": lambda spec: block(spec, "000", "6.3"),
    "000 §16.2": lambda spec: block(spec, "000", "16.2", 2),
    "data L195": lambda spec: data_file(spec, "tool", "tool_implementation_patterns.md__L195.json"),
    "data L266": lambda spec: data_file(spec, "tool", "unified-plugin-and-tool-architecture.md__L266.json"),
}


def published_tools(spec_dir: Path) -> dict[str, str]:
    """Return every whole tool definition in the data files and the documents, by where it stands."""
    found = {path.name: path.read_text("utf-8") for path in (spec_dir / "data" / "comfytavern").glob("tool__*.json")}
    for name in ("000", "003"):
        for one in blocks(spec_dir, name):
            # A template of the format, or one key of a definition, is no definition.
            if re.match(r"\s*\{\s*\"(id|toolId)\"", one.text) and '"toolId": "string"' not in one.text:
                found[one.place] = one.text
    return found


def test_every_published_tool_definition_is_read_without_a_problem(spec_dir: Path, tmp_path: Path) -> None:
    published = published_tools(spec_dir)
    assert sorted(published) == [
        "000 §10.2.2 (1)",
        "000 §16.2 (2)",
        "000 §18.2 (2)",
        "000 §6.3 (1)",
        "003 §2.2.3 (1)",
        "tool__DesignDocs_architecture_tool_implementation_patterns.md__L195.json",
        "tool__DesignDocs_architecture_unified-plugin-and-tool-architecture.md__L266.json",
    ]
    for place, text in published.items():
        path = tmp_path / "a.tool.json"
        path.write_text(text, "utf-8")  # as it stands, comments and all
        definition, problems = read_file(path, None)
        assert (place, problems) == (place, [])
        given = json.loads(plain_json(text))
        assert definition.id == given.get("id", given.get("toolId"))
        assert definition.parameters == given["parameters"]


def write_case_study(spec_dir: Path, folder: Path, tool: str) -> Path:
    """Write the plugin of §16 as its tree shows it: a script, a tool file and a manifest."""
    tree = block(spec_dir, "000", "16.1")
    [root, script, file, manifest] = re.findall(r"[\w./-]+/?$", tree, re.MULTILINE)
    assert (root, manifest) == ("/plugins/bilibili-fetcher/", "plugin.yaml")
    plugin = folder / "bilibili-fetcher"
    for path, text in ((script, SUBTITLES), (file, tool), (manifest, block(spec_dir, "000", "16.2", 1))):
        (plugin / path).parent.mkdir(parents=True, exist_ok=True)
        (plugin / path).write_text(text, "utf-8")
    return plugin


@pytest.mark.parametrize("copy", BILIBILI)
async def test_the_tool_of_the_case_study_is_listed_and_says_what_it_needs(
    open_bench: OpenBench, spec_dir: Path, tmp_path: Path, copy: str
) -> None:
    text = BILIBILI[copy](spec_dir)
    shown = json.loads(text)
    async with open_bench(write_case_study(spec_dir, tmp_path, text)) as bench:
        tool = await bench.tools.get("BilibiliFetch:getSubtitle")
        listed = [t.id for t in await bench.tools.list_tools() if t.plugin == "bilibili-fetcher"]
        result = await bench.call(tool.id, url="BV1")
    assert listed == [shown["id"]]
    assert (tool.display_name, tool.description, tool.kind) == (shown["displayName"], shown["description"], "script")
    assert (tool.implementation.command, tool.timeout) == (
        shown["implementation"]["command"],
        shown["implementation"].get("timeout"),
    )
    assert tool.parameters == shown["parameters"]
    assert tool.config_schema == shown.get("configSchema", [])
    assert tool.unavailable == "needs service scriptExecution"
    assert result.error.type == ToolErrorType.SERVICE_UNAVAILABLE
    assert result.error.message == f"{tool.id} cannot be called now: needs service scriptExecution"


async def test_the_folder_of_10_2_1_holds_the_tool_of_10_2_2(
    open_bench: OpenBench, spec_dir: Path, tmp_path: Path
) -> None:
    part = yaml.safe_load(block(spec_dir, "000", "10.2.1"))
    assert part == {"tools": {"entry": "./tools"}}
    head = {"name": "my-awesome-plugin", "displayName": "A", "version": "1.0.0"}
    plugin = tmp_path / "my-awesome-plugin"
    (plugin / "tools").mkdir(parents=True)
    (plugin / "plugin.yaml").write_text(yaml.safe_dump({**head, **part}), "utf-8")
    (plugin / "tools" / "my-script-tool.tool.json").write_text(block(spec_dir, "000", "10.2.2"), "utf-8")
    async with open_bench(plugin) as bench:
        tool = await bench.tools.get("my-awesome-plugin:my_script_tool")
    assert (tool.plugin, tool.kind, tool.implementation.command) == (
        "my-awesome-plugin",
        "script",
        "bun run scripts/my-script.ts",
    )


@pytest.mark.parametrize("says_where", [True, False], ids=["with tools: entry", "as it stands"])
async def test_the_plugin_of_18_has_its_tool_where_its_manifest_names_the_folder(
    open_bench: OpenBench, spec_dir: Path, tmp_path: Path, says_where: bool
) -> None:
    files = re.findall(r"[\w./-]+\.\w+$", block(spec_dir, "000", "18.1"), re.MULTILINE)
    assert files == ["src/MyAwesomePlugin.ts", "plugin.yaml", "tools/my-awesome.tool.json"]
    manifest: dict[str, Any] = yaml.safe_load(block(spec_dir, "000", "18.2", 1))
    plugin = tmp_path / "my-awesome-plugin"
    (plugin / "tools").mkdir(parents=True)
    more = {"tools": {"entry": "./tools"}} if says_where else {}
    (plugin / "plugin.yaml").write_text(yaml.safe_dump({**manifest, **more}, allow_unicode=True), "utf-8")
    (plugin / "tools" / "my-awesome.tool.json").write_text(block(spec_dir, "000", "18.2", 2), "utf-8")
    async with open_bench(plugin) as bench:
        tools = [tool for tool in await bench.tools.list_tools() if tool.plugin == "my-awesome-plugin"]
    shown = json.loads(block(spec_dir, "000", "18.2", 2))
    assert [tool.id for tool in tools] == ([shown["id"]] if says_where else [])
    for tool in tools:
        assert (tool.timeout, tool.parameters) == (shown["implementation"]["timeout"], shown["parameters"])
        assert tool.unavailable == "needs service scriptExecution"
