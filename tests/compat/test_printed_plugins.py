"""The plugins that the platform's documents print do what their text says, as they are printed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml
from example_bench import OpenBench
from platform_documents import block
from printed_plugins import GET, TOOL, printed, write_awesome, write_fetcher, write_short

from tavern_engine.api.nodes import NODE_MANAGER
from tavern_host import Host
from tavern_tools.api.toolcalls import ToolErrorType

LINE = "tools: {entry: ./tools}"


BLOCKS = {
    "awesome-6.2.yaml": ("6.2", 1),
    "awesome-18.2.yaml": ("18.2", 1),
    "my-awesome.tool.json": ("18.2", 2),
    "bilibili-16.2.yaml": ("16.2", 1),
    "bilibili.tool.json": ("16.2", 2),
}
"""Where in the document 000 each file stands."""


def test_the_files_here_are_those_of_the_documents(spec_dir: Path, tmp_path: Path) -> None:
    assert {name: printed(name) for name in BLOCKS} == {
        name: block(spec_dir, "000", section, number) for name, (section, number) in BLOCKS.items()
    }
    for section, folder in (("16.1", write_fetcher(tmp_path)), ("18.1", write_short(tmp_path))):
        shown = re.findall(r"[\w./-]+\.\w+$", block(spec_dir, "000", section), re.MULTILINE)
        assert {str(path.relative_to(folder)) for path in folder.rglob("*.*")} == set(shown)


def test_the_plugin_of_6_asks_for_what_it_prints_and_runs_nothing_before_the_grant(tmp_path: Path) -> None:
    host = Host(tmp_path / "project", plugins=[write_awesome(tmp_path)])
    host.link()
    plugin = host.plugin("my-awesome-plugin")
    asked = yaml.safe_load(printed("awesome-6.2.yaml"))["permissions"]
    wanted = {*asked["hooks"], "services.override:workflowManager", "ui.frontend"}
    wanted |= {f"ui.{kind}:{name}" for kind, names in asked["ui"].items() for name in names}
    names = {one.name: one.granted for one in plugin.permissions if not one.name.startswith("code:")}
    assert (plugin.state, set(names) - {"hook:server:nodes:register", "hook:server:tools:discover"}) == (
        "needs-review",
        wanted | {"hook:server:ui:declare"},
    )
    assert not any(names[name] for name in asked["hooks"])


async def test_the_plugin_of_6_brings_its_node_and_its_tool(open_bench: OpenBench, tmp_path: Path) -> None:
    async with open_bench(write_awesome(tmp_path)) as bench:
        plugin = bench.host.plugin("my-awesome-plugin")
        assert plugin.frontend is not None and plugin.frontend.dev_entry == "web/index.ts"
        assert (plugin.display_name, plugin.version, plugin.problems) == ("我的超棒插件", "1.0.0", [])
        nodes = [one.full_type for one in await bench.host.services.get(NODE_MANAGER).list_nodes()]
        assert "my-awesome-plugin:AwesomeNode" in nodes
        assert (await bench.tools.get(TOOL)).plugin == "my-awesome-plugin"
        for address, end in ((plugin.frontend.entry_url, "/index.js"), (plugin.frontend.style_urls[0], "/style.css")):
            assert address.startswith("/plugins/my-awesome-plugin/") and address.endswith(end)


async def test_the_plugin_of_18_says_which_line_its_tool_needs(open_bench: OpenBench, tmp_path: Path) -> None:
    folder = write_short(tmp_path)
    async with open_bench(folder) as bench:
        plugin = bench.host.plugin("my-awesome-plugin")
        [problem], [option] = plugin.problems, plugin.config_options
        assert problem.hint is not None and problem.hint.startswith(f"add the line `{LINE}`")
        assert (option["key"], option["defaultValue"]) == ("extensions.my-awesome-plugin.enableFeatureX", True)
        assert TOOL not in [tool.id for tool in await bench.tools.list_tools()]

        (folder / "plugin.yaml").write_text(f"{printed('awesome-18.2.yaml')}{LINE}\n", "utf-8")
        await bench.host.reload("my-awesome-plugin")
        assert bench.host.plugin("my-awesome-plugin").problems == []
        shown, tool = json.loads(printed("my-awesome.tool.json")), await bench.tools.get(TOOL)
    assert (tool.timeout, tool.parameters) == (shown["implementation"]["timeout"], shown["parameters"])
    assert tool.unavailable == "needs service scriptExecution"


async def test_the_plugin_of_16_brings_its_tool_and_its_setting(open_bench: OpenBench, tmp_path: Path) -> None:
    async with open_bench(write_fetcher(tmp_path)) as bench:
        plugin, tool = bench.host.plugin("bilibili-fetcher"), await bench.tools.get(GET)
        result = await bench.call(GET, url="BV1")
    shown = json.loads(printed("bilibili.tool.json"))
    [option] = plugin.config_options
    assert option["key"] == f"extensions.bilibili-fetcher.tools.{GET}.bilibiliCookie"
    assert (plugin.problems, tool.config_schema, tool.parameters) == ([], shown["configSchema"], shown["parameters"])
    assert (tool.display_name, tool.description, tool.kind) == (shown["displayName"], shown["description"], "script")
    said = shown["implementation"]
    assert (tool.implementation.command, tool.timeout) == (said["command"], said["timeout"])
    assert result.error is not None and result.error.type == ToolErrorType.SERVICE_UNAVAILABLE
    assert result.error.message == f"{GET} cannot be called now: needs service scriptExecution"
