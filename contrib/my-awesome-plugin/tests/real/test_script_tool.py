"""The tool that is a script of the plugin's own."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tavern_host import TOOL_MANAGER, Host
from tavern_scripts.api.scripts import SCRIPT_EXECUTION
from tavern_tools.api.toolcalls import ToolCallRequest, ToolErrorType

pytestmark = [
    pytest.mark.tavern(plugins=["../../my_awesome_plugin"]),
    pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js: apt install nodejs"),
]

TOOL = "MyAwesomePlugin:doSomething"


async def call(host: Host, **arguments: Any) -> Any:
    if not any(report.chosen for report in await host.services.get(SCRIPT_EXECUTION).backends()):
        pytest.skip("there is no sandbox for scripts here")
    return await host.services.get(TOOL_MANAGER).call(ToolCallRequest(tool_id=TOOL, arguments=arguments))


async def test_a_text_is_counted(host: Host) -> None:
    result = await call(host, input="Tea for two,\nand two for tea")
    assert result.status == "done", result.error
    assert result.structured["words"] == 7
    assert result.structured["lines"] == 2
    assert result.structured["most"][0] == {"word": "tea", "count": 2}


async def test_other_writing_has_words_too(host: Host) -> None:
    assert (await call(host, input="今天天气很好")).structured["characters"] == 6


async def test_the_tool_asks_for_its_input(host: Host) -> None:
    assert (await call(host)).error.type is ToolErrorType.PARAMETER_VALIDATION


async def test_the_tool_is_the_plugins_own(host: Host) -> None:
    tool = await host.services.get(TOOL_MANAGER).get(TOOL)
    assert (tool.plugin, tool.kind, tool.unavailable) == ("my-awesome-plugin", "script", None)
